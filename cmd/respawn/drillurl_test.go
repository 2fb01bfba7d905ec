//go:build linux

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// urlChecks are what the drill of a URL proves of any server, before and after
// those of a session.
var urlChecks = struct{ first, session, last []string }{
	[]string{"it serves", "it answers a ping", "it lists the same tools again"},
	[]string{"a deleted session is replaced", "it says the same of itself afterwards", "its tools are the same afterwards"},
	[]string{"no event was illegal", "nothing is left running"},
}

func TestTheDrillOfAGivenURL(t *testing.T) {
	stateful := newForgetful(t)
	stateless := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "stateless", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "none"}, nobody)
		return s
	}, &mcp.StreamableHTTPOptions{Stateless: true}))
	defer stateless.Close()
	for _, tc := range []struct {
		name, url string
		checks    []string
		says      string
	}{
		{
			"the official SDK's, stateful", stateful.URL,
			slices.Concat(urlChecks.first, urlChecks.session, urlChecks.last), "legacy, version 2025-11-25, forgetful 1",
		},
		{"the official SDK's, stateless", stateless.URL, slices.Concat(urlChecks.first, urlChecks.last), "modern, version 2026-07-28, stateless 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := executed(t, "drill", "-header", "X-Key: k", tc.url)
			if got.code != exitOK || got.err != "" {
				t.Errorf("exit %d, %q on stderr", got.code, got.err)
			}
			part := strings.TrimPrefix(tc.url, "http://")
			if diff := cmp.Diff(allHeld(part, tc.checks), table(got.out)); diff != "" {
				t.Errorf("the table (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.out, tc.says) {
				t.Errorf("nothing says %q", tc.says)
			}
			if t.Failed() {
				t.Log(got.out)
			}
		})
	}
	if key := stateful.header.Load(); key != "k" {
		t.Errorf("the header was %q", key)
	}
}

func TestAURLThatCannotBeDrilledIsAnErrorOfOneLine(t *testing.T) {
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tc := range []struct{ name, url, says string }{
		{"no MCP there", page.URL, "404"},
		{"nobody there", gone.URL, "refused"},
		{"no TLS there", strings.Replace(page.URL, "http:", "https:", 1), "TLS handshake"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := executed(t, "drill", "-timeout", "2s", tc.url)
			if got.code != exitFailure || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, tc.says) {
				t.Errorf("exit %d and on stderr %q, want %d and one line that says %q", got.code, got.err, exitFailure, tc.says)
			}
			if len(table(got.out)) > 0 {
				t.Errorf("there was nothing to prove:\n%s", got.out)
			}
		})
	}
}

// nobody calls this tool.
func nobody(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	return nil, nil, nil
}
