package streamable

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func FuzzClassify(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"result":{"a":[1,"\"}"]},"jsonrpc":"2.0","id":"x"}`, `{`, `{}`, `[]`, ``, `{"a":`, `{"a":1,}`,
		`{"jsonrpc":"2.0","id":1,"error":null,"result":1}`, `{"jsonrpc":"2.0","method":"x","result":1}`, `{"a":"\\"}`,
		`{"a":[{},[],{"b":-1.5e+10,"c":0.1E-2},true,false,null,"\u00e9\n"]} `, `{"a":01}`, `{"a":1.}`, "{\"a\":\"\t\"}", `{"a":[1}]`, `{"a":tru`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		k, id := classify(frame)
		trimmed := bytes.TrimLeft(frame, " \t\r\n")
		isObject := json.Valid(frame) && trimmed[0] == '{' && deepest(frame) <= maxDepth
		if isObject != (k >= other) && !(k == misfit && !isObject && bytes.Contains(frame, []byte(`"id"`))) {
			t.Fatalf("%q: kind %d, and that it is an object is %v", frame, k, isObject)
		}
		if k == unfinished && len(trimmed) > 0 && !isPrefix(trimmed) {
			t.Fatalf("%q is no beginning of an object", frame)
		}
		if k == notJSON && len(trimmed) > 0 && deepest(frame) <= maxDepth && isPrefix(trimmed) && !isObject {
			t.Fatalf("%q is the beginning of an object", frame)
		}
		if !isObject {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(frame, &object); err != nil {
			t.Fatal(err)
		}
		// A name that is written twice, or with escapes, may mean either.
		for _, name := range []string{"jsonrpc", "id", "method", "result", "error"} {
			if bytes.Count(frame, []byte(`"`+name+`"`)) > 1 || bytes.Contains(frame, []byte(`\u`)) {
				return
			}
		}
		given := func(name string) bool { return len(object[name]) > 0 && string(object[name]) != "null" }
		text := func(name string) bool { return !given(name) || object[name][0] == '"' }
		_, hasResult := object["result"]
		well := string(object["jsonrpc"]) == `"2.0"` && text("method") && !(given("error") && given("result"))
		want := other
		switch {
		case given("method"):
		case well && given("error"):
			want = failure
		case well && hasResult:
			want = result
		case given("id"), given("error") && given("result") && string(object["jsonrpc"]) == `"2.0"`:
			want = misfit
		}
		if k != want || string(id) != string(object["id"]) {
			t.Errorf("%q is %d with id %q, want %d with %q", frame, k, id, want, object["id"])
		}
	})
}

// isPrefix asks the decoder of the standard library whether text could go on to
// be an object.
func isPrefix(text []byte) bool {
	if text[0] != '{' {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var v json.RawMessage
	err := d.Decode(&v)
	return err == io.ErrUnexpectedEOF
}

// deepest counts brackets outside of strings.
func deepest(frame []byte) (most int) {
	depth, inString := 0, false
	for i := 0; i < len(frame); i++ {
		switch c := frame[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

func TestAnswersAreKnownByTheirMembers(t *testing.T) {
	for frame, want := range map[string]kind{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                           result,
		` { "result" : {"method":"x"} , "id":null, "jsonrpc" : "2.0" } `: result,
		`{"jsonrpc":"2.0","id":1,"result":null}`:                         result,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"}\"]"}}`:   failure,
		`{"jsonrpc":"2.0","id":1,"error":null,"result":{}}`:              result,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`:                misfit,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`:              failure,
		`{"jsonrpc":"2.0","result":{},"error":{}}`:                       misfit,
		`{"jsonrpc":"2.0","id":null}`:                                    other,
		`{"jsonrpc":"2.0","id":1,"method":null,"result":1}`:              result,
		`{"jsonrpc":2.0,"jsonrpc":"2.0","id":1,"result":1}`:              misfit,
		`{"method":5,"method":null,"jsonrpc":"2.0","id":1,"result":1}`:   misfit,
		`{"jsonrpc":2.0,"result":1}`:                                     other,
		`{"jsonrpc":"2.0","method":"x","params":{"result":1}}`:           other,
		`{"jsonrpc":"2.0","id":1,"method":"x","result":1}`:               other,
		`{"jsonrpc":"1.0","id":1,"result":{}}`:                           misfit,
		`{"id":1,"result":{}}`:                                           misfit,
		`{"jsonrpc":"2.0","id":1}`:                                       misfit,
		`{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}`:                    misfit,
		`{"jsonrpc":"2.0","id":1,"method":"x","error":NaN}`:              notJSON,
		`{"jsonrpc":"2.0","id":1,"result":{"a":`:                         unfinished,
		`{}`:                                                             other,
		`[]`:                                                             notJSON,
		`null`:                                                           notJSON,
		`hello`:                                                          notJSON,
		`{]`:                                                             notJSON,
		`{"a" 1}`:                                                        notJSON,
		`{"a":1 "b":2}`:                                                  notJSON,
		`{"a":}`:                                                         notJSON,
		`{"jsonrpc":"2.0","id":1,"result":{}}x`:                          notJSON,
		`{"jsonrpc":"2.0","id":1,"result":{}`:                            unfinished,
		`{"jsonrpc":"2.0","id":1,"result":"a\"`:                          unfinished,
		`{"jsonrpc":"2.0","id":1,"res`:                                   unfinished,
		`{"jsonrpc":`:                                                    unfinished,
		`{"a":12`:                                                        unfinished,
		`{"a"`:                                                           unfinished,
		`{"a":1,`:                                                        unfinished,
		`{`:                                                              unfinished,
		``:                                                               unfinished,
		"{\"a\":" + strings.Repeat("[", 1<<20):                           notJSON,
		"{\"jsonrpc\":\"2.0\",\"result\":" + strings.Repeat("[{\"a\":", 1) + "1}]}": result,
	} {
		if got, _ := classify([]byte(frame)); got != want {
			t.Errorf("classify(%.80q) = %d, want %d", frame, got, want)
		}
	}
}

// Strings around the widths of the scan, whatever stands where in them.
func TestStringsOfAnyLengthAreScanned(t *testing.T) {
	for n := range 150 {
		for _, tc := range []struct {
			insert string
			want   kind
		}{
			{"", result},
			{`\"`, result},
			{`\\`, result},
			{`\u00ff`, result},
			{"é", result},
			{"\x7f", result},
			{"\xff", result},
			{"\x1f", misfit},
			{"\n", misfit},
			{`\x`, misfit},
			{`\u00g0`, misfit},
			{`"`, notJSON},
		} {
			for at := 0; at <= n; at += 7 {
				frame := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("a", at) + tc.insert + strings.Repeat("b", n-at) + `"}`
				if got, _ := classify([]byte(frame)); got != tc.want {
					t.Fatalf("classify(%q) = %d, want %d", frame, got, tc.want)
				}
			}
		}
	}
}
