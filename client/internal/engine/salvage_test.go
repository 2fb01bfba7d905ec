package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSalvageTellsWhatAnUnreadableMessageIs(t *testing.T) {
	deep := strings.Repeat("[", 5000)
	for frame, want := range map[string]Salvaged{
		`{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}`:                  {ID: "7", Answers: true},
		`{"result":{"id":1,"method":"x"},"jsonrpc":"2.0","id":"a\"b"}`: {ID: `"a\"b"`, Answers: true},
		`{"id":-1.5e3, "error" : {"code":NaN}}`:                        {ID: "-1.5e3", Answers: true},
		`{"id":7,"error":null,"x":NaN}`:                                {ID: "7"},
		` {"method":"tools/call","id":4,"params":` + deep:              {ID: "4", Method: `"tools/call"`},
		`{"jsonrpc":"2.0","id":4,"result":` + deep:                     {ID: "4", Answers: true},
		"{\"id\":4,\"result\":\"a\x01b\\\"id\\\":5\"}":                 {ID: "4", Answers: true},
		`{"x":"id","id":null,"result":1}`:                              {Answers: true},
		`{"id":`:                                                       {},
		`{"id`:                                                         {},
		`{"id":"`:                                                      {ID: `"`},
		`log: {"id":1,"result":{}}`:                                    {},
		`[{"id":1,"result":{}}]`:                                       {},
		``:                                                             {},
		`{"a":{"id":1,"result":2},"b":[{"id":3}],"id":{"x":1},"result":[]}`: {Answers: true},
	} {
		if diff := cmp.Diff(want, Salvage([]byte(frame))); diff != "" {
			t.Errorf("%.60s: %s", frame, diff)
		}
	}
}

func TestIDKeyIsTheValueOfAnID(t *testing.T) {
	for raw, want := range map[string]string{
		`5`: "n5", `5.0`: "n5", `5e0`: "n5", `-0`: "n0", `1e2`: "n100", `-7`: "n-7", `1.5`: "n1.5",
		`9007199254740993`: "n9007199254740993", `1152921504606846976123`: "n1152921504606846976123",
		`"5"`: "s5", `"é"`: "sé", `"\u00e9"`: "sé", `"a\/b"`: "sa/b", `""`: "s", `"\ud83d\ude00"`: "s😀",
	} {
		if got := IDKey([]byte(raw)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}
