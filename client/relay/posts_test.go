package relay_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// post is one exchange with a scripted server behind HTTP.
type post struct {
	transports.Outbound
	*memory.Conn
	at time.Time
}

func (p *post) result(result string) {
	p.Write(p.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.ID, result))
}

// name is the method, or GET.
func (p *post) name() string {
	if p.Op == transports.OpListen {
		return "GET"
	}
	return p.Method
}

// office is a legacy server behind HTTP with one session. on may take an exchange.
type office struct {
	on func(p *post) bool

	mu   sync.Mutex
	took []*post
}

func (o *office) serve(ctx context.Context, c *memory.Conn) error {
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		p := &post{out, c, time.Now()}
		o.mu.Lock()
		o.took = append(o.took, p)
		o.mu.Unlock()
		switch {
		case o.on != nil && o.on(p):
		case p.Op == transports.OpListen:
			p.Emit(transports.Opened{Ref: p.Ref})
		case p.Method == "initialize":
			p.result(`{"protocolVersion":"2025-11-25","capabilities":{}}`)
		case p.ID != "":
			p.result(`{}`)
		}
	}
}

// times is when each exchange of a kind began, since the first.
func (o *office) times(name string) (all []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var first time.Time
	for _, p := range o.took {
		if p.name() != name {
			continue
		}
		if first.IsZero() {
			first = p.at
		}
		all = append(all, p.at.Sub(first))
	}
	return all
}

func (o *office) last(name string) *post {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range slices.Backward(o.took) {
		if p.name() == name {
			return p
		}
	}
	return nil
}

// reached has sent the host's opening, and heard its answer.
func reached(t *testing.T, o *office, cfg relay.Config) *host {
	t.Helper()
	h := inFrontOf(t, memory.Factory(transports.Posts, "office", o.serve), cfg)
	h.say(initialize, initialized)
	h.heard()
	return h
}

func TestRelay_OverHTTPTheFirstSessionHasItsStandaloneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{}
		h := reached(t, o, relay.Config{})
		get := o.last("GET")
		if get == nil {
			t.Fatal("no GET was sent")
		}
		get.Write(0, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		expect(t, "the host hears", h.brief(), []string{"tools/list_changed"})
	})
}

// The notification that waited for the opening is answered before the gate is open.
func TestRelay_OverHTTPTheStandaloneStreamComesHoweverSoonInitializedIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &office{}
		h := inFrontOf(t, late(memory.Factory(transports.Posts, "office", o.serve), "notifications/initialized", time.Second), relay.Config{})
		for _, frame := range []string{initialize, initialized} { // it waits for no answer
			h.FromHost([]byte(frame))
		}
		sleep(time.Minute)
		if n := len(o.times("GET")); n != 1 {
			t.Errorf("%d GETs were sent, want 1", n)
		}
	})
}

func TestRelay_OverHTTPNothingIsTriedAgainWithoutAWait(t *testing.T) {
	growing := func(t *testing.T, what string, times []time.Duration) {
		t.Helper()
		if len(times) < 3 || len(times) > 8 {
			t.Fatalf("%s was tried %d times in 10 s: %v", what, len(times), times)
		}
		for i := 2; i < len(times); i++ {
			if before, last := times[i-1]-times[i-2], times[i]-times[i-1]; before <= 0 || last < before {
				t.Errorf("%s was tried at %v, without growing waits", what, times)
			}
		}
	}
	t.Run("a server that can't be reached", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := &office{on: func(p *post) bool {
				if p.Method == "tools/call" {
					p.Emit(transports.Unsent{Ref: p.Ref, Cause: io.ErrUnexpectedEOF})
				}
				return p.Method == "tools/call"
			}}
			h := reached(t, o, relay.Config{Hold: 10 * time.Second})
			h.say(call(1, "tools/call"))
			sleep(10*time.Second - 1)
			expect(t, "just before", h.brief(), nil)
			sleep(time.Second)
			expect(t, "after the hold", h.brief(), []string{`1: -31002, not executed, attempt 6`})
			growing(t, "the call", o.times("tools/call"))
		})
	})
	t.Run("a standalone stream that ends at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := &office{on: func(p *post) bool {
				if p.Op == transports.OpListen {
					p.Emit(transports.Opened{Ref: p.Ref})
					p.Emit(transports.Broken{Ref: p.Ref})
				}
				return p.Op == transports.OpListen
			}}
			reached(t, o, relay.Config{})
			sleep(10 * time.Second)
			growing(t, "the GET", o.times("GET"))
		})
	})
	t.Run("a host's stream that ends at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := &office{on: func(p *post) bool {
				switch p.Method {
				case "server/discover":
					p.result(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
				case "subscriptions/listen":
					p.Write(p.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, p.ID))
					p.Emit(transports.Broken{Ref: p.Ref})
				}
				return true
			}}
			h := inFrontOf(t, memory.Factory(transports.Posts, "office", o.serve), relay.Config{})
			h.say(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`,
				`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`)
			sleep(10 * time.Second)
			growing(t, "the listen", o.times("subscriptions/listen"))
		})
	})
}
