package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheEchoServerAnswersWhatTheBenchSends(t *testing.T) {
	const head = `{"jsonrpc":"2.0","id":7,`
	for _, tc := range []struct {
		name   string
		legacy bool
		in     string
		want   string
	}{
		{
			"a call is answered with its text", false,
			head + `"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`,
			head + `"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}`,
		},
		{
			"the order of fields does not matter", false,
			`{"params":{"arguments":{"text":"hi"},"name":"echo"},"method":"tools/call","id":7}`,
			head + `"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}`,
		},
		{
			"a modern server has no handshake", false,
			head + `"method":"initialize"}`,
			head + `"error":{"code":-32601,"message":"Method not found"}}`,
		},
		{
			"a legacy server has nothing to discover", true,
			head + `"method":"server/discover"}`,
			head + `"error":{"code":-32601,"message":"Method not found"}}`,
		},
		{"a notification gets no answer", true, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if err := serve(strings.NewReader(tc.in+"\n"), &out, tc.legacy); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.TrimSuffix(out.String(), "\n")); diff != "" {
				t.Errorf("the answer (-want +got):\n%s", diff)
			}
		})
	}
}
