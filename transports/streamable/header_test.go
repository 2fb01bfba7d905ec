package streamable

import "testing"

// The values are those of 2026-07-28, Value Encoding, and what lies beside them.
func TestHeaderValuesAreEncodedByTheSentinel(t *testing.T) {
	for value, want := range map[string]string{
		"us-west1":               "us-west1",
		"Hello, 世界":              "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":               "=?base64?IHBhZGRlZCA=?=",
		"\ttab":                  "=?base64?CXRhYg==?=",
		"line1\nline2":           "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":     "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?half":          "=?base64?half",
		"=?BASE64?literal?=":     "=?BASE64?literal?=",
		"a b":                    "a b",
		"a\tb":                   "a\tb",
		"":                       "",
		"\x7f":                   "=?base64?fw==?=",
		"\xff":                   "=?base64?/w==?=",
		"cr\rlf":                 "=?base64?Y3INbGY=?=",
		"file:///a/b?c=d&e=%20f": "file:///a/b?c=d&e=%20f",
	} {
		if got := encode(value); got != want {
			t.Errorf("encode(%q) = %q, want %q", value, got, want)
		}
	}
}
