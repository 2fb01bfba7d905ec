package client_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

// unsteady is a clock whose wall may be set while its monotonic reading goes on
// (wall), and which may leap as a whole, as after a machine slept that counts its
// sleep (slept). Its timers are the bubble's.
type unsteady struct {
	clock.Clock
	began time.Time
	wall  atomic.Int64
	slept atomic.Int64
}

// outside has a monotonic reading, which no time of a bubble has.
var outside = time.Now()

func newUnsteady() *unsteady {
	return &unsteady{Clock: clock.New(), began: time.Now()}
}

func (u *unsteady) Now() time.Time {
	now := outside.Add(time.Since(u.began) + time.Duration(u.slept.Load()))
	const shift = 30 // package time: the low 30 bits of wall are nanoseconds
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(u.wall.Load()/int64(time.Second)) << shift
	return now
}

func TestT13_TheUnsteadyClockIsWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnsteady()
		before := u.Now()
		u.wall.Store(int64(8 * time.Hour))
		pass(time.Second)
		after := u.Now()
		if got := after.Sub(before); got != time.Second {
			t.Errorf("the monotonic reading moved by %s", got)
		}
		if got := after.Round(0).Sub(before.Round(0)); got != 8*time.Hour+time.Second {
			t.Errorf("the wall moved by %s", got)
		}
	})
}

func TestT13_AStepOfTheWallClockMovesNoTimer(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -8 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			u, d := newUnsteady(), &diary{}
			p := &peer{on: on("hang", func(*life, message) error { return nil })}
			c := connect(t, p, d.of(client.Config{Clock: u}))
			jump := func() { u.wall.Add(int64(step)) }

			began := time.Now()
			said := start(func() string { return words(c.Call(t.Context(), "hang", nil, nil)) })
			pass(30 * time.Second)
			jump()
			if got := <-said; got != "outcome unknown: client: request: nothing heard for 1m0s" || time.Since(began) != time.Minute {
				t.Errorf("%s, after %s", got, time.Since(began))
			}

			for range 2 {
				p.kill()
				pass(50 * time.Millisecond)
				jump()
				pass(50*time.Millisecond - 1)
				if got := c.State(); got != fsm.Dead {
					t.Errorf("1 ns before the delay is over it is %s", got)
				}
				pass(1)
				if got := c.State(); got != fsm.Serving {
					t.Errorf("after the delay it is %s", got)
				}
				jump()
			}
			want := []string{
				"1 ended: killed by the test; the next in 100ms", "2 serves",
				"2 ended: killed by the test; the next in 100ms", "3 serves",
			}
			if diff := cmp.Diff(want, d.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Steps of the wall clock open no window of the budget and close none.
func TestT13_AStepOfTheWallClockBurnsNoBudget(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -8 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			u, d := newUnsteady(), &diary{}
			p := &peer{}
			connect(t, p, d.of(client.Config{Clock: u}))
			for range 4 {
				p.kill()
				pass(100 * time.Millisecond)
				u.wall.Add(int64(step))
			}
			if diff := cmp.Diff(oneGenerationAfterTheOther, d.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestT13_AMachineThatSleptTakesNobodyForDead(t *testing.T) {
	for _, tt := range []struct {
		what   string
		answer time.Duration // after waking; negative: never
		want   string
		took   time.Duration // of waking hours
	}{
		{"the answer is there on waking", 0, "generation 1", 30 * time.Second},
		{"the answer comes while the deadline is late", 30*time.Second + 500*time.Millisecond, "generation 1", 60*time.Second + 500*time.Millisecond},
		{"no answer comes", -1, "outcome unknown: client: request: nothing heard for 1m0s", 61 * time.Second},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held []message
				u, d := newUnsteady(), &diary{}
				p := &peer{on: hold(1, &held)}
				c := connect(t, p, d.of(client.Config{Clock: u}))
				began := time.Now()
				said := start(func() string { return tool(t.Context(), c) })
				pass(30 * time.Second)
				u.slept.Add(int64(8 * time.Hour))
				if tt.answer >= 0 {
					pass(tt.answer)
					p.last().answer(held[0])
				}
				if got := <-said; got != tt.want || time.Since(began) != tt.took {
					t.Errorf("%s, after %s", got, time.Since(began))
				}
				pass(time.Hour)
				if got := c.State(); got != fsm.Serving || p.spawned() != 1 || d.read() != nil {
					t.Errorf("it is %s, of %d incarnations, and told %q", got, p.spawned(), d.read())
				}
			})
		})
	}
}

// A clock that leaps over many timers at once fires each of them once.
func TestT13_ALeapOverEveryTimerFiresNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock, d := clock.NewMock(), &diary{}
		p := &peer{on: on("hang", func(*life, message) error { return nil })}
		c := connect(t, p, d.of(client.Config{Clock: mock, WaitForReady: true, RequestTimeout: time.Minute}))
		var said []<-chan string
		for range 50 {
			said = append(said, start(func() string { return words(c.Call(t.Context(), "hang", nil, nil)) }))
		}
		synctest.Wait()
		p.kill()
		for _, s := range said {
			if got := <-s; got != "outcome unknown: killed by the test" {
				t.Error(got)
			}
		}
		parked := start(func() string { return words(c.Call(t.Context(), "tools/call", nil, nil)) })
		synctest.Wait()
		mock.Add(8 * time.Hour)
		synctest.Wait()
		select {
		case <-parked: // answered or timed out, whichever timer the leap fired first
		default:
			t.Error("a call waits longer than its timeout")
		}
		want := []string{"1 ended: killed by the test; the next in 100ms", "2 serves"}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
		if got := tool(t.Context(), c); got != "generation 2" {
			t.Error(got)
		}
	})
}
