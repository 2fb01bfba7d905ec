package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// A message may be on its way to the server, on whatever goroutine, when that ends for good.
func TestRelay_Rule3_WhatIsBeingSentAtTheEndIsAnsweredBeforeTheRelayIsDone(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *server, *host){
		"closed": func(t *testing.T, _ *server, h *host) {
			if err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
		},
		"given up": func(_ *testing.T, s *server, h *host) { s.kill() },
	} {
		t.Run("by the host, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{on: legacy}
				h := inFrontOf(t, slowed(s.factory(), func(_ int, s *slow) { s.before = lateAt("tools/call", time.Second) }), relay.Config{Budget: policy.Never()})
				h.say(initialize, initialized)
				go h.FromHost([]byte(call(1, "tools/call")))
				sleep(100 * time.Millisecond)
				end(t, s, h)
				<-h.Done()
				if n := h.answersTo("1"); n != 1 {
					t.Errorf("the call has %d answers", n)
				}
			})
		})
		t.Run("by a second try, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var well atomic.Bool
				s, again := unreachable(&well, both), make(chan struct{})
				h := inFrontOf(t, slowed(s.factory(), func(_ int, s *slow) {
					s.before = func(out transports.Outbound) time.Duration {
						if out.Method != "initialize" || !well.Load() {
							return 0
						}
						close(again)
						return time.Second
					}
				}), relay.Config{Budget: policy.Never()})
				h.say(initialize)
				well.Store(true)
				h.say(modernProbe)
				<-again
				end(t, s, h)
				<-h.Done()
				if n := h.answersTo(`"i"`); n != 1 {
					t.Errorf("the initialize has %d answers", n)
				}
			})
		})
	}
}
