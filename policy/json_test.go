package policy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The walk over valid JSON finds the members and elements that encoding/json
// finds, and refuses the same texts; go test runs the seeds, go test -fuzz more.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `null`, `7`, `"a"`, `[]`, `{}`, ` { } `, `[ ]`, `{"a":1}`, `{"a" : "}" , "b" : [ "]" , {} ] }`,
		`["\\","\"",-1.5e+3,true,null,{"a":{"b":[[]]}}]`, `{"a":1,"a":2}`, `{"\u0061":1}`, `{"a":1,}`, `[1 2]`, `{"a" "b"}`,
		`{1:2}`, `{"a":1}{}`, `[`, `{"a":`, "\ufeff{}", "{\"\xff\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := parse([]byte(s))
		var wantMembers map[string]json.RawMessage
		object := json.Unmarshal([]byte(s), &wantMembers) == nil && wantMembers != nil
		members, _ := fields(v)
		if diff := cmp.Diff(wantMembers, members); object && diff != "" {
			t.Errorf("members of %q (-encoding/json +ours):\n%s", s, diff)
		}
		if !object && members != nil {
			t.Errorf("%q is no object, but has members %q", s, members)
		}
		var wantValues []json.RawMessage
		array := json.Unmarshal([]byte(s), &wantValues) == nil && wantValues != nil
		values, ok := elements(v)
		if ok != array {
			t.Errorf("%q is an array: %v, to encoding/json: %v", s, ok, array)
		}
		if array && len(wantValues)+len(values) > 0 {
			if diff := cmp.Diff(wantValues, values); diff != "" {
				t.Errorf("elements of %q (-encoding/json +ours):\n%s", s, diff)
			}
		}
	})
}

func TestFields_SayWhenAMemberIsNamedTwice(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, `{"a":1,"b":1}`: true, `{"a":1,"A":1}`: true, `{"a":{"b":1},"b":1}`: true,
		`{"a":1,"a":1}`: false, `{"a":1,"b":2,"\u0061":3}`: false, `[]`: false, `null`: false, ``: false,
	} {
		if _, got := fields(parse([]byte(text))); got != want {
			t.Errorf("%s: ok is %v, want %v", text, got, want)
		}
	}
}
