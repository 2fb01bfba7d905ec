package client_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

func TestS1_AClientUsesTheContractByDefault(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, d := &peer{legacy: legacy}, &diary{}
			c := connect(t, p, d.of(client.Config{}))
			for range 4 {
				p.kill()
				pass(100 * time.Millisecond)
			}
			if diff := cmp.Diff(oneGenerationAfterTheOther, d.read()); diff != "" {
				t.Error(diff)
			}
			if got := c.State(); got != fsm.Exhausted {
				t.Errorf("the state is %s", got)
			}
		})
	}
}

func TestS13_TheDelayCountsFromTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		var decided time.Time
		connect(t, p, client.Config{OnEnd: func(client.Ended) { decided = time.Now() }})
		for gen := 2; gen <= 4; gen++ {
			p.kill()
			synctest.Wait()
			if !decided.Equal(time.Now()) {
				t.Errorf("the death was decided at %s", decided)
			}
			pass(100*time.Millisecond - 1)
			if got := p.spawned(); got != gen-1 {
				t.Errorf("1 ns before the delay is over, %d incarnations have started", got)
			}
			pass(1)
			if got := p.spawned(); got != gen {
				t.Errorf("when the delay is over, %d incarnations have started", got)
			}
			pass(time.Second)
		}
	})
}

func TestS14_TheEngineCountsFromTheFirstRestartDecision(t *testing.T) {
	for _, tt := range []struct {
		second time.Duration // after the first death
		want   fsm.State
	}{
		{time.Minute, fsm.Exhausted}, // at the end of the window is inside it
		{time.Minute + 1, fsm.Dead},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{}
			c := connect(t, p, client.Config{Budget: tumbling(t, 1)})
			pass(time.Hour) // before the first death no window is open
			p.kill()
			pass(tt.second)
			p.kill()
			synctest.Wait()
			if got := c.State(); got != tt.want {
				t.Errorf("a second death %s after the first: %s, want %s", tt.second, got, tt.want)
			}
		})
	}
}

func TestS16_AnsweringRefillsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		c := connect(t, p, d.of(client.Config{}))
		for gen := 1; gen <= 4; gen++ {
			for range 100 {
				if want, got := fmt.Sprintf("generation %d", gen), tool(t.Context(), c); got != want {
					t.Fatalf("%s, want %s", got, want)
				}
			}
			pass(15 * time.Second) // longer than resets a backoff
			p.kill()
			pass(100 * time.Millisecond)
		}
		if diff := cmp.Diff(oneGenerationAfterTheOther, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS18_AReplacementThatCantStartSpendsBudgetLikeADeath(t *testing.T) {
	broken := func(end func() error) func(p *peer) func() transports.Transport {
		return func(*peer) func() transports.Transport {
			return func() transports.Transport {
				return memory.New(transports.Pipe, func(context.Context, *memory.Conn) error { return end() })
			}
		}
	}
	as := func(on func(l *life, m message) (bool, error)) func(p *peer) func() transports.Transport {
		return func(p *peer) func() transports.Transport {
			return func() transports.Transport {
				p.on = on
				return p.factory().New()
			}
		}
	}
	for _, tt := range []struct {
		what  string
		next  func(p *peer) func() transports.Transport // how replacements are built
		cause string
		start time.Duration // until it is known to have failed
	}{
		{"it is not built", func(*peer) func() transports.Transport {
			return func() transports.Transport { return nil }
		}, "the factory returned no transport", 0},
		{"building it panics", func(*peer) func() transports.Transport {
			return func() transports.Transport { panic("boo") }
		}, "the transport panicked: boo", 0},
		{"it does not start", broken(func() error { return errBadStart }), "it can't start", 0},
		{"it starts and exits", broken(func() error { return nil }), "the server ended without saying why", 0},
		{"it dies in its opening exchange", as(func(*life, message) (bool, error) { return true, errKilled }), "killed by the test", 0},
		{"it refuses its opening exchange", as(func(l *life, m message) (bool, error) {
			l.fail(m, -32603, "no")
			return true, nil
		}), "client: opening exchange: initialize: client: the server answered with an error: no (code -32603)", 0},
		{"it never answers", as(silent), "client: start-up: not over after 2m0s", 120 * time.Second},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, d := &peer{}, &diary{}
				budget, err := policy.Tumbling(2, time.Hour, policy.Constant(100*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				var built atomic.Int64
				first := p.factory().New
				f := p.factory()
				f.New = func() transports.Transport {
					if built.Add(1) == 1 {
						return first()
					}
					return tt.next(p)()
				}
				c := connectTo(t, f, d.of(client.Config{Budget: budget}))
				began := time.Now()
				p.kill()
				<-c.Done()
				synctest.Wait()
				want := []string{
					"1 ended: killed by the test; the next in 100ms",
					"2 ended: " + tt.cause + "; the next in 100ms",
					"3 ended: " + tt.cause + "; none follows",
				}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
				if got := built.Load(); got != 3 {
					t.Errorf("the factory was called %d times", got)
				}
				if took, want := time.Since(began), 2*(100*time.Millisecond+tt.start); took != want {
					t.Errorf("it took %s, want %s", took, want)
				}
			})
		})
	}
}
