package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/client"
)

// An answer that is odd is an answer, or it is none: either ends its call at once,
// also where the server keeps the stream open. It shows that the request ran, so
// the request is not made again.
func TestB102_OverRealHTTPAnOddAnswerEndsItsCallAtOnce(t *testing.T) {
	const none = "outcome unknown: HTTP 200"
	for name, tt := range map[string]struct{ frame, fate string }{
		"a result without id":            {`{"jsonrpc":"2.0","result":{}}`, "answered"},
		"a result whose id is null":      {`{"jsonrpc":"2.0","id":null,"result":{}}`, "answered"},
		"an error without id":            {`{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"}}`, "the peer says -32000"},
		"an id that is a string":         {`{"jsonrpc":"2.0","id":"ID","result":{}}`, "answered"},
		"a result and an error":          {`{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":-32020,"message":"x"}}`, none},
		"both, without id":               {`{"jsonrpc":"2.0","id":null,"result":{},"error":{"code":-32000,"message":"x"}}`, none},
		"a null result and an error":     {`{"jsonrpc":"2.0","id":ID,"result":null,"error":{"code":-32000,"message":"x"}}`, "the peer says -32000"},
		"a result and a null error":      {`{"jsonrpc":"2.0","id":ID,"result":{},"error":null}`, "answered"},
		"a null method":                  {`{"jsonrpc":"2.0","id":ID,"method":null,"result":{}}`, "answered"},
		"a method that is no text first": {`{"method":5,"method":null,"jsonrpc":"2.0","id":ID,"result":{}}`, none},
		"a NaN":                          {`{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}`, none},
		"neither":                        {`{"jsonrpc":"2.0","id":ID}`, none},
		"no version":                     {`{"id":ID,"result":{}}`, none},
		"a version that is a number":     {`{"jsonrpc":2.0,"id":ID,"result":{}}`, none},
		"two versions":                   {`{"jsonrpc":2.0,"jsonrpc":"2.0","id":ID,"result":{}}`, none},
		"an error that is a text":        {`{"jsonrpc":"2.0","id":ID,"error":"x"}`, "the peer says 0"},
	} {
		for _, framing := range []string{"JSON", "a stream that stays open"} {
			bubble(t, name+", "+framing, func(t *testing.T) {
				s := newSite(t, &site{})
				c := browse(t, s, client.Config{})
				asked := func(method string) bool { return method == "tools/call" || method == "resources/read" }
				s.becomes(func(h *hit) bool {
					if !asked(h.Method) {
						return false
					}
					frame := strings.ReplaceAll(tt.frame, "ID", h.ID)
					if framing == "JSON" {
						h.Header().Set("Content-Type", "application/json")
						h.write(frame)
						return true
					}
					h.stream()
					h.write("data: " + frame + "\n\n")
					select {
					case <-h.Request.Context().Done():
					case <-h.ended:
					}
					return true
				})
				began := time.Now()
				for _, method := range []string{"tools/call", "resources/read"} {
					if got := ask(t.Context(), c, method); got != tt.fate {
						t.Errorf("%s: %s, want %s", method, got, tt.fate)
					}
					if n := s.count(method); n != 1 {
						t.Errorf("%d POSTs of %s", n, method)
					}
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("that took %s", d)
				}
			})
		}
	}
}
