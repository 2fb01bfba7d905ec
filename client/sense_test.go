package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

func TestAConfigThatMakesNoSenseStartsNothing(t *testing.T) {
	for field, cfg := range map[string]client.Config{
		"MaxHeld":          {MaxHeld: -1},
		"MaxHeldBytes":     {MaxHeldBytes: -1},
		"Liveness.Timeout": {Liveness: client.Liveness{Idle: time.Second, Timeout: -1}},
		"Liveness.Misses":  {Liveness: client.Liveness{Idle: time.Second, Misses: -1}},
	} {
		p := &peer{}
		c, err := client.Connect(t.Context(), p.factory(), &cfg)
		if wrong := new(client.ConfigError); c != nil || !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: Connect returned %v", field, err)
		}
		if n := p.spawned(); n != 0 {
			t.Errorf("%s: %d servers were started", field, n)
		}
	}
}

// The encoder must not recurse into JSON that is there already, wherever it is.
func TestRawParamsThatNestTooDeeplyAreRefusedWhereverTheyAre(t *testing.T) {
	const levels = 2_000_000
	deep := json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{})
		for what, params := range map[string]any{
			"alone":               deep,
			"in a map":            map[string]any{"a": deep},
			"in a struct":         struct{ A any }{deep},
			"as raw arguments":    &mcp.CallToolParamsRaw{Name: "x", Arguments: deep},
			"as arguments":        &mcp.CallToolParams{Name: "x", Arguments: deep},
			"within arguments":    &mcp.CallToolParams{Name: "x", Arguments: map[string]any{"a": deep}},
			"and where it is bad": map[string]any{"a": json.RawMessage("{")},
		} {
			err := c.Call(t.Context(), "vendor/x", params, nil)
			if invalid := new(client.InvalidRequestError); !errors.As(err, &invalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := p.got("vendor/x"); len(got) != 0 {
			t.Errorf("sent were %d", len(got))
		}
	})
}

// A call that the server has asked for input has begun. If the answer to that can't
// be given any more, the call did not "never run".
func TestACallIsNeverNotExecutedAfterItsFirstRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: on("tools/call", func(l *life, m message) error {
			l.result(m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object"}}}},"requestState":"s"}`)
			return nil
		})}
		c := connect(t, p, client.Config{Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			p.kill()
			synctest.Wait()
			return &mcp.ElicitResult{Action: "accept"}, nil
		}})
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "pay"})
		if down := new(client.NotServingError); !errors.As(err, &down) || client.OutcomeOf(err) != client.OutcomeUnknown {
			t.Errorf("%s: %v", client.OutcomeOf(err), err)
		}
	})
}

func TestAnErrorObjectIsReadMemberByMember(t *testing.T) {
	for frame, want := range map[string]client.PeerError{
		`{"code":-32602.0,"message":"bad","data":{"x":1}}`: {Code: -32602, Message: "bad", Data: json.RawMessage(`{"x":1}`)},
		`{"code":"E_BAD","message":"bad"}`:                 {Message: "bad"},
		`{"code":7,"message":{"text":"bad"}}`:              {Code: 7, Message: `{"text":"bad"}`},
		`{"code":7,"Code":8,"message":"bad"}`:              {Code: 7, Message: "bad"},
		`"bad"`:                                            {Message: `unreadable error object: "bad"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{on: on("tools/list", func(l *life, m message) error {
				l.Write(0, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":`+frame+`}`)
				return nil
			})}
			c := connect(t, p, client.Config{})
			err := c.Call(t.Context(), "tools/list", nil, nil)
			got := new(client.PeerError)
			if !errors.As(err, &got) {
				t.Fatalf("%s: %v", frame, err)
			}
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("%s: %s", frame, diff)
			}
		})
	}
}

// A server that asks without end costs as many goroutines as handlers may run.
func TestAServerThatAsksWithoutEndIsRefused(t *testing.T) {
	const asked, bound = 3000, 1024
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true}
		slow := make(chan struct{})
		var running atomic.Int64
		connect(t, p, client.Config{ListRoots: func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) {
			running.Add(1)
			<-slow
			return &mcp.ListRootsResult{}, nil
		}})
		for i := range asked {
			p.last().Write(0, `{"jsonrpc":"2.0","id":"r`+strings.Repeat("x", i)+`","method":"roots/list"}`)
		}
		synctest.Wait()
		refused := 0
		for _, m := range p.messages() {
			if strings.Contains(string(m.Error), "too many requests") {
				refused++
			}
		}
		if running.Load() != bound || refused != asked-bound {
			t.Errorf("%d run and %d were refused", running.Load(), refused)
		}
		close(slow)
	})
}

// Whoever waits for an answer that came and can't be read would wait for nothing.
func TestAnAnswerThatCanNotBeReadEndsItsCallAtOnce(t *testing.T) {
	deep := strings.Repeat("[", 3000) + strings.Repeat("]", 3000)
	for what, result := range map[string]string{
		"not a number":        `{"x":NaN}`,
		"nested too deeply":   deep,
		"a control character": "{\"x\":\"a\x01b\"}",
		"cut in the middle":   `{"x":`,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{on: on("resources/read", func(l *life, m message) error {
				l.Write(0, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
				return nil
			})}
			c := connect(t, p, client.Config{RetryLost: true})
			began := time.Now()
			err := c.Call(t.Context(), "resources/read", map[string]string{"uri": "x"}, nil)
			if bad := new(client.DecodeError); !errors.As(err, &bad) || client.OutcomeOf(err) != client.Answered {
				t.Errorf("%s: %s: %v", what, client.OutcomeOf(err), err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: after %s", what, took)
			}
			if got := tool(t.Context(), c); got != "generation 1" {
				t.Errorf("%s: the next call: %s", what, got)
			}
			if n := len(p.got("resources/read")); n != 1 {
				t.Errorf("%s: the read was sent %d times", what, n)
			}
		})
	}
}
