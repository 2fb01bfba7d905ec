package client_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

// laptop is a clock of a machine that sleeps: its time jumps, and the timers that
// were due meanwhile fire afterwards.
type laptop struct {
	clock.Clock
	slept atomic.Int64
}

func newLaptop() *laptop { return &laptop{Clock: clock.New()} }

func (l *laptop) Now() time.Time { return l.Clock.Now().Add(time.Duration(l.slept.Load())) }

// sleep is one that nobody notices while it lasts: the bubble's time, and with it
// each timer, is where it was, but a timer that is due within d of it is late by
// then.
func (l *laptop) sleep(d time.Duration) { l.slept.Add(int64(d)) }

// A call that was under way when the machine went to sleep gets the answer that
// has come meanwhile, or a moment to do so.
func TestT13_ACallThatHadNoChanceIsNotTimedOutFirst(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer time.Duration // after the wake-up
		want   string
		after  time.Duration
	}{
		{"the answer waits already", 0, "answered by 1", 0},
		{"it comes a moment after the timer", 30*time.Second + 900*time.Millisecond, "answered by 1", 30*time.Second + 900*time.Millisecond},
		{"it does not come", time.Hour, "outcome unknown: client: request: nothing heard for 1m0s", 31 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var call message
				p := &peer{on: func(l *life, m message) (bool, error) {
					call = m
					return m.Method == "tools/call", nil
				}}
				l := newLaptop()
				c := connect(t, p, client.Config{Clock: l})
				said := start(func() string { return generation(t.Context(), c, client.Request{Method: "tools/call"}) })
				pass(30 * time.Second)
				l.sleep(8 * time.Hour)
				woke := time.Now()
				p.last().later(tt.answer, func() { p.last().answer(call) })
				if got := <-said; got != tt.want || time.Since(woke) != tt.after {
					t.Errorf("after %s: %s; want after %s: %s", time.Since(woke), got, tt.after, tt.want)
				}
				if p.spawned() != 1 || c.State() != fsm.Serving {
					t.Error("the server was killed for the sleep")
				}
			})
		})
	}
}

// Budgets count time that passed, so a sleep can only refill them.
func TestT13_ASleepBurnsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, l := &peer{}, &diary{}, newLaptop()
		c := connect(t, p, d.of(client.Config{Clock: l, Liveness: watched}))
		for range 20 {
			pass(5 * time.Second)
			p.kill() // the machine falls asleep with a replacement promised
			pass(50 * time.Millisecond)
			l.sleep(time.Hour)
			pass(50 * time.Millisecond)
			if got := tool(t.Context(), c); got != fmt.Sprintf("generation %d", p.spawned()) {
				t.Fatal(got, d.read())
			}
		}
		if p.spawned() != 21 {
			t.Errorf("%d servers were started for 20 deaths", p.spawned())
		}
	})
}

// A start that the sleep cut in two is not over because of it.
func TestT13_AStartThatTheMachineSleptThroughGetsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d, l := &peer{}, &diary{}, newLaptop()
		p.on = func(l *life, m message) (bool, error) {
			if l.gen > 1 && m.Method == "server/discover" {
				l.later(100*time.Second, func() { l.answer(m) })
				return true, nil
			}
			return false, nil
		}
		c := connect(t, p, d.of(client.Config{Clock: l, WaitForReady: true, StartTimeout: 90 * time.Second, RequestTimeout: -1, MaxRequestTimeout: -1}))
		p.kill()
		pass(defaultDelay + 30*time.Second)
		l.sleep(8 * time.Hour)
		if got := tool(t.Context(), c); got != "generation 2" {
			t.Error(got)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"1 ended: killed by the test; the next in 100ms", "2 serves"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

// The timers of a thousand things that were due during the sleep neither end the
// server nor ask it a thousand things at once.
func TestT13_AfterASleepTimersDoNotFireAsAStorm(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, d, l := &peer{legacy: legacy}, &diary{}, newLaptop()
			c := connect(t, p, d.of(client.Config{Clock: l, Liveness: watched}))
			s := listen(t, c, everything, d)
			before := len(p.messages())
			for range 50 {
				pass(10 * time.Second)
				l.sleep(8 * time.Hour)
			}
			pass(time.Second)
			var other []string
			probes := 0
			for _, m := range p.messages()[before:] {
				if m.Method == "ping" || m.Method == "server/discover" {
					probes++
				} else {
					other = append(other, m.Method)
				}
			}
			if len(other) > 0 || probes > 50 {
				t.Errorf("after 50 sleeps the server got %d probes and %v", probes, other)
			}
			if got := ended(t, s); got != "goes on" || p.spawned() != 1 || len(d.read()) != 0 {
				t.Errorf("the subscription %s; %d servers; %v", got, p.spawned(), strings.Join(d.read(), "; "))
			}
		})
	}
}
