package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMessageIsWhatItsFieldsSay(t *testing.T) {
	for _, tt := range []struct {
		frame string
		want  MessageKind
		err   bool
	}{
		{frame: `{"jsonrpc":"2.0","id":1,"result":{}}`, want: Response},
		{frame: `{"jsonrpc":"2.0","id":1,"result":null}`, want: Response},
		{frame: `{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"m"}}`, want: Response},
		{frame: `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, want: Response},
		{frame: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, want: AskedFor},
		{frame: `{"jsonrpc":"2.0","method":"x","params":{}}`, want: Notification},
		{frame: `{"jsonrpc":"2.0","id":null,"method":"x"}`, want: Notification},
		{frame: `{"jsonrpc":"2.0","id":1}`, want: Malformed},
		{frame: `{"jsonrpc":"2.0","id":1,"error":null}`, want: Malformed},
		{frame: `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`, want: Malformed},
		{frame: `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, want: Malformed},
		{frame: `{"jsonrpc":"1.0","id":1,"result":{}}`, want: Malformed},
		{frame: `{"id":1,"result":{}}`, want: Malformed},
		{frame: `{"jsonrpc":"2.0","ID":1,"Result":{}}`, want: Malformed},
		{frame: `{"level":"info"}`, want: Malformed},
		{frame: `{"jsonrpc":"2.0","id":1,"result":{}} x`, err: true},
		{frame: `{"jsonrpc":"2.0","id":1,"result":{}}{}`, err: true},
		{frame: `{"jsonrpc":"2.0","id":1,"result":{}}` + " \t\r", want: Response},
		{frame: `{"jsonrpc":"2.0","id":1,`, err: true},
		{frame: `{"jsonrpc":2,"id":1,"result":{}}`, err: true},
		{frame: `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 2<<20), err: true},
		{frame: `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 1023) + strings.Repeat("]", 1023) + `}`, want: Response},
		{frame: `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 1024) + strings.Repeat("]", 1024) + `}`, err: true},
		{frame: `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat(`[\"`, 5000) + `"}`, want: Response},
	} {
		var env Envelope
		err := Parse([]byte(tt.frame), &env)
		if (err != nil) != tt.err {
			t.Errorf("%.60s: error %v", tt.frame, err)
		} else if err == nil && env.Kind() != tt.want {
			t.Errorf("%.60s: kind %d, want %d", tt.frame, env.Kind(), tt.want)
		}
	}
}

func TestAFrameIsComposedFromWhatIsNew(t *testing.T) {
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	for _, tt := range []struct{ name, params, meta, token, want string }{
		{"no params", ``, ``, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{}}`},
		{"null params", ` null `, ``, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{}}`},
		{"untouched", `{"b":1.50,"a":2}`, ``, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"b":1.50,"a":2}}`},
		{"meta into nothing", `{ }`, meta, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `}}}`},
		{"meta first", `{"b":1.50}`, meta, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `},"b":1.50}}`},
		{"a token too", `{"b":1}`, meta, `7`, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `,"progressToken":7},"b":1}}`},
		{"a token alone", `{"b":1}`, ``, `7`, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{"progressToken":7},"b":1}}`},
		{
			"merged with the caller's own", `{"b":1.50,"_meta":{"x":[1],"io.modelcontextprotocol/protocolVersion":"forged"}}`, meta, ``,
			`{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `,"x":[1]},"b":1.50}}`,
		},
		{"a null meta", `{"_meta":null}`, meta, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `}}}`},
		{"_meta further down", `{"a":{"_meta":1}}`, meta, ``, `{"jsonrpc":"2.0","id":7,"method":"m","params":{"_meta":{` + meta + `},"a":{"_meta":1}}}`},
	} {
		got, err := appendFrame(nil, "7", "m", []byte(tt.params), []byte(tt.meta), tt.token)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	for _, params := range []string{`[]`, `7`, `"x"`, `{"_meta":7}`} {
		if got, err := appendFrame(nil, "7", "m", []byte(params), []byte(meta), ""); err == nil {
			t.Errorf("params %s became %s", params, got)
		}
	}
}

// A member is what the peer takes for it, so another spelling is another member.
func TestDecode_NamesMatchByCase(t *testing.T) {
	type value struct {
		Name string `json:"name"`
	}
	for raw, want := range map[string]value{
		`{"name":"a"}`:            {"a"},
		` {"name":"a"} `:          {"a"},
		`{"name":"a","Name":"b"}`: {"a"},
		`{"NAME":"b"}`:            {},
	} {
		var got value
		if err := Decode([]byte(raw), &got); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
	for _, raw := range []string{``, `{`, `{"name":7}`, `{}{}`} {
		if Decode([]byte(raw), new(value)) == nil {
			t.Errorf("%q was read", raw)
		}
	}
	for method, params := range map[string]string{
		"tools/call":     `{"name":"a","Name":"b"}`,
		"prompts/get":    `{"name":"a","NAME":"b"}`,
		"resources/read": `{"uri":"a","URI":"b"}`,
	} {
		if name := nameOf(method, []byte(params)); name != "a" {
			t.Errorf("%s %s names %q", method, params, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[1,2,{"b":"\u0000"}]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"x","params":{"_meta":{}}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var env Envelope
		if Parse(frame, &env) != nil {
			return
		}
		env.Kind()
		traits(env.Params)
		if len(env.Params) > 0 && env.Params[0] == '{' {
			if _, err := appendFrame(nil, "1", "m", env.Params, []byte(`"k":1`), "1"); err == nil && env.Kind() == Malformed {
				return
			}
		}
	})
}
