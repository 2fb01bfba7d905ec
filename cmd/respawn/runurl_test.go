package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// forgetful is the official SDK's stateful server behind HTTP, which can lose all
// its sessions as a restart does.
type forgetful struct {
	*httptest.Server
	handler     atomic.Pointer[http.Handler]
	initialized atomic.Int32
	ran         atomic.Int32
	header      atomic.Value
}

func newForgetful(t *testing.T) *forgetful {
	f := &forgetful{}
	f.forget()
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.header.Store(r.Header.Get("X-Key"))
		(*f.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *forgetful) forget() {
	server := mcp.NewServer(&mcp.Implementation{Name: "forgetful", Version: "1"}, &mcp.ServerOptions{
		InitializedHandler: func(context.Context, *mcp.InitializedRequest) { f.initialized.Add(1) },
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(f.ran.Add(1))}}}, nil, nil
	})
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	f.handler.Store(&h)
}

func TestRunPutsRecoveryInFrontOfAURL(t *testing.T) {
	f := newForgetful(t)
	t.Setenv("RESPAWN_TEST_KEY", "k")
	in, say := io.Pipe()
	heard, out := io.Pipe()
	var diagnostics strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(streams{in, out, &diagnostics}, []string{"run", "-header-env", "X-Key=RESPAWN_TEST_KEY", f.URL})
		out.Close()
	}()
	lines := bufio.NewScanner(heard)
	ask := func(frame string) map[string]json.RawMessage {
		t.Helper()
		if _, err := io.WriteString(say, frame+"\n"); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Fatalf("no protocol on stdout: %q", lines.Text())
			}
			if m["method"] == nil {
				return m
			}
		}
		t.Fatalf("the shim ended: %s", &diagnostics)
		return nil
	}
	ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}`)
	if _, err := io.WriteString(say, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	call := func(id string) string {
		t.Helper()
		m := ask(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"count","arguments":{}}}`)
		var r struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(m["result"], &r); err != nil || len(r.Content) != 1 {
			t.Fatalf("%s was answered %s %s", id, m["result"], m["error"])
		}
		return string(m["id"]) + " ran as " + r.Content[0].Text
	}
	got := []string{call(`1`)}
	f.forget()
	got = append(got, call(`"two"`), call(`3`))
	if diff := cmp.Diff([]string{`1 ran as 1`, `"two" ran as 2`, `3 ran as 3`}, got); diff != "" {
		t.Error(diff)
	}
	if n := f.initialized.Load(); n != 2 {
		t.Errorf("%d sessions were initialized, want 2", n)
	}
	if key := f.header.Load(); key != "k" {
		t.Errorf("the header was %q", key)
	}
	say.Close()
	for lines.Scan() {
	}
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d: %s", c, &diagnostics)
	}
}
