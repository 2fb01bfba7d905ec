package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// web is a scripted HTTP server on the memory transport: it sees what a transport would put on the
// wire, and answers with the events a transport would emit.
type web struct {
	legacy  bool
	session string // that a legacy server knows; "" forgets
	on      func(w *web, c *memory.Conn, out transports.Outbound, session string) (handled bool)

	mu   sync.Mutex
	next int
	log  []string
}

func (w *web) factory() transports.Factory {
	return memory.Factory(transports.Posts, "web", w.serve)
}

// serve is one transport: it keeps the session id that its initialize was given.
func (w *web) serve(ctx context.Context, c *memory.Conn) error {
	session := ""
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		sent := session
		if out.Method == "initialize" {
			sent = ""
		}
		w.mu.Lock()
		what := out.Method
		switch out.Op {
		case transports.OpListen:
			what = "GET"
		case transports.OpResume:
			what = "GET " + out.LastID
		}
		w.log = append(w.log, fmt.Sprintf("%s(%s)", what, sent))
		w.mu.Unlock()
		if w.on != nil && w.on(w, c, out, sent) {
			continue
		}
		switch {
		case out.Op == transports.OpListen:
			c.Emit(transports.Rejected{Ref: out.Ref, Status: 405, Session: sent})
		case w.legacy && out.Method == "initialize":
			w.mu.Lock()
			w.next++
			w.session = fmt.Sprintf("S%d", w.next)
			session = w.session
			w.mu.Unlock()
			w.result(c, out, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"web","version":"1"}}`)
		case w.legacy && out.Method == "server/discover":
			c.Emit(transports.Rejected{Ref: out.Ref, Status: 400, Body: []byte(`Bad Request: no session`)})
		case w.legacy && (sent == "" || sent != w.known()):
			if out.ID != "" {
				c.Emit(transports.Rejected{Ref: out.Ref, Status: 404, Session: sent})
			}
		case out.ID == "":
		case out.Method == "server/discover":
			w.result(c, out, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		case out.Method == "tools/call":
			w.result(c, out, `{"content":[{"type":"text","text":"ran"}]}`)
		default:
			w.result(c, out, `{}`)
		}
	}
}

func (w *web) known() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session
}

func (w *web) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = ""
}

func (w *web) result(c *memory.Conn, out transports.Outbound, result string) {
	c.Write(out.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, out.ID, result))
}

// took lists what came over the wire since it was asked last, as "method(session)".
func (w *web) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

func dial(t *testing.T, w *web, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Logger = quiet()
	c, err := client.Connect(t.Context(), w.factory(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := c.Stats().IllegalEvents; n != 0 {
			t.Errorf("%d illegal lifecycle events", n)
		}
	})
	synctest.Wait()
	return c
}

func TestH6_OneForgottenSessionOneInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		if diff := cmp.Diff([]string{"server/discover()", "initialize()", "notifications/initialized(S1)", "GET(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
		w.forget()
		var refused []uint64
		w.on = func(w *web, c *memory.Conn, out transports.Outbound, session string) bool {
			if session != "S1" {
				return false
			}
			if refused = append(refused, out.Ref); len(refused) == 3 { // all three are on their way
				for _, ref := range refused {
					c.Emit(transports.Rejected{Ref: ref, Status: 404, Session: session})
				}
			}
			return true
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		want := []string{
			"tools/call(S1)", "tools/call(S1)", "tools/call(S1)",
			"initialize()", "notifications/initialized(S2)", "GET(S2)",
			"tools/call(S2)", "tools/call(S2)", "tools/call(S2)",
		}
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH7_ASecondRefusalSurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.took()
		w.on = func(w *web, c *memory.Conn, out transports.Outbound, session string) bool {
			if out.Method == "tools/call" {
				c.Emit(transports.Rejected{Ref: out.Ref, Status: 404, Session: session})
				return true
			}
			return false
		}
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay"})
		var session *client.SessionError
		if !errors.As(err, &session) || client.OutcomeOf(err) != client.NotExecuted {
			t.Errorf("the second refusal: %v", err)
		}
		synctest.Wait()
		want := []string{"tools/call(S1)", "initialize()", "notifications/initialized(S2)", "GET(S2)", "tools/call(S2)"}
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
		w.on = nil
		time.Sleep(time.Second)
		if err := c.Call(t.Context(), "ping", nil, nil); err != nil {
			t.Errorf("the next call recovers: %v", err)
		}
	})
}

func TestM3_ABrokenReadIsIssuedAgainOnce(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		breaks       int
		want         []string
		outcome      client.Outcome
	}{
		{"a read", "resources/read", 1, []string{"resources/read()", "resources/read()"}, client.Answered},
		{"a read twice", "resources/read", 2, []string{"resources/read()", "resources/read()"}, client.OutcomeUnknown},
		{"a tool", "tools/call", 1, []string{"tools/call()"}, client.OutcomeUnknown},
		{"a vendor's", "acme/read", 1, []string{"acme/read()"}, client.OutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			breaks, ids := tt.breaks, map[string]bool{}
			w := &web{}
			c := dial(t, w, client.Config{})
			w.took()
			w.on = func(w *web, c *memory.Conn, out transports.Outbound, _ string) bool {
				if out.Method != tt.method || breaks == 0 {
					return false
				}
				if ids[out.ID] {
					t.Errorf("%s: id %s was used twice", tt.name, out.ID)
				}
				ids[out.ID] = true
				breaks--
				c.Emit(transports.Broken{Ref: out.Ref, Cause: errKilled})
				return true
			}
			err := c.Call(t.Context(), tt.method, json.RawMessage(`{"uri":"x","name":"x"}`), nil)
			if got := client.OutcomeOf(err); got != tt.outcome {
				t.Errorf("%s: %v is %s, want %s", tt.name, err, got, tt.outcome)
			}
			if diff := cmp.Diff(tt.want, w.took()); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		})
	}
}
