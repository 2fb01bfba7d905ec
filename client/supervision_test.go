package client_test

import (
	"context"
	"errors"
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

// oneGenerationAfterTheOther is what a diary reads when a server under the default
// budget dies four times within a minute.
var oneGenerationAfterTheOther = []string{
	"1 ended: killed by the test; the next in 100ms", "2 serves",
	"2 ended: killed by the test; the next in 100ms", "3 serves",
	"3 ended: killed by the test; the next in 100ms", "4 serves",
	"4 ended: killed by the test; none follows",
}

func TestS2_ATransportIsBuiltAtEachSpawnAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		var built atomic.Int64
		f := p.factory()
		inner := f.New
		f.New = func() transports.Transport { built.Add(1); return inner() }
		if built.Load() != 0 {
			t.Error("a transport was built before Connect")
		}
		c := connectTo(t, f, client.Config{})
		var got []int64
		for range 3 {
			got = append(got, built.Load())
			for range 3 {
				if want, said := fmt.Sprintf("generation %d", p.spawned()), tool(t.Context(), c); said != want {
					t.Errorf("a call said %q, want %q", said, want)
				}
			}
			p.kill()
			pass(100*time.Millisecond - 1)
			got = append(got, built.Load())
			pass(1)
		}
		if diff := cmp.Diff([]int64{1, 1, 2, 2, 3, 3}, got); diff != "" {
			t.Errorf("built while serving and at the end of each delay: %s", diff)
		}
	})
}

func TestS5_AListenerHearsOfEveryLaterIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		connect(t, p, d.of(client.Config{
			OnNotification: func(n client.Notification) { d.write("%d says %s %s", n.Generation, n.Method, n.Params) },
			OnTransition:   func(tr fsm.Transition) { d.write("%s: %s, generation %d", tr.Event, tr.To, tr.Gen) },
		}))
		say := func() {
			p.last().Write(0, `{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1}}`)
			synctest.Wait()
		}
		for range 2 {
			say()
			p.kill()
			pass(100 * time.Millisecond)
		}
		say()
		want := []string{
			"up: serving, generation 1",
			`1 says notifications/x {"n":1}`,
			"lost: dead-awaiting-respawn, generation 2",
			"1 ended: killed by the test; the next in 100ms",
			"due: starting, generation 2", "up: serving, generation 2", "2 serves",
			`2 says notifications/x {"n":1}`,
			"lost: dead-awaiting-respawn, generation 3",
			"2 ended: killed by the test; the next in 100ms",
			"due: starting, generation 3", "up: serving, generation 3", "3 serves",
			`3 says notifications/x {"n":1}`,
		}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS6_EachIncarnationIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		var got []client.Ended
		c := connect(t, p, client.Config{
			Budget: tumbling(t, 2),
			OnEnd:  func(e client.Ended) { got = append(got, e) },
		})
		for range 2 {
			pass(7 * time.Second)
			p.kill()
			pass(100 * time.Millisecond)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		granted := func(n int) policy.Verdict {
			return policy.Verdict{
				Respawn: true, Delay: 100 * time.Millisecond,
				Why: fmt.Sprintf("restart %d of 2 within 1m0s", n),
			}
		}
		want := []client.Ended{
			{Gen: 1, Cause: errKilled, Uptime: 7 * time.Second, Verdict: granted(1), Restarts: 1},
			{Gen: 2, Cause: errKilled, Uptime: 7 * time.Second, Verdict: granted(2), Restarts: 2},
			{Gen: 3, Cause: client.ErrClosed, Restarts: 2},
		}
		if diff := cmp.Diff(want, got, sameError); diff != "" {
			t.Error(diff)
		}
	})
}

// The memory transport says in one process what a child process says by its exit
// code: here, that it ended, and no more.
func TestS7_AnyEndThatNobodyAskedForIsADeath(t *testing.T) {
	exit := errors.New("exit status 3")
	for _, tt := range []struct {
		how  string
		end  func(l *life, m message) (bool, error)
		want string
	}{
		{"an error", func(*life, message) (bool, error) { return true, exit }, "exit status 3"},
		{"exit code 0", func(*life, message) (bool, error) { return true, errExit0 }, "the server ended without saying why"},
		{"a panic", func(*life, message) (bool, error) { panic("boo") }, "the transport panicked: boo"},
		{"its context's error, though nobody cancelled it", func(*life, message) (bool, error) {
			return true, context.Canceled
		}, "context canceled"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "tools/call" && l.gen == 1 {
						return tt.end(l, m)
					}
					return false, nil
				}}
				c := connect(t, p, d.of(client.Config{}))
				if got, want := tool(t.Context(), c), "outcome unknown: "+tt.want; got != want {
					t.Errorf("the call in flight: %s, want %s", got, want)
				}
				pass(100 * time.Millisecond)
				if got := tool(t.Context(), c); got != "generation 2" {
					t.Errorf("the next call: %s", got)
				}
				want := []string{"1 ended: " + tt.want + "; the next in 100ms", "2 serves"}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The bubble fails if a goroutine of a replaced incarnation is left, or of any.
func TestS8_AReplacedIncarnationIsGoneBeforeTheNextStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive, most := 0, 0
		p := &peer{}
		f := p.factory()
		inner := p.serve
		f.New = func() transports.Transport {
			return memory.New(transports.Pipe, func(ctx context.Context, c *memory.Conn) error {
				alive++
				most = max(most, alive)
				defer func() { alive-- }()
				err := inner(ctx, c)
				time.Sleep(time.Second) // it dies slowly
				return err
			})
		}
		c := connectTo(t, f, client.Config{Budget: policy.Unlimited(), WaitForReady: true})
		for gen := 2; gen <= 6; gen++ {
			p.kill()
			synctest.Wait()
			if want, got := fmt.Sprintf("generation %d", gen), tool(t.Context(), c); got != want {
				t.Errorf("a call after %d deaths: %s, want %s", gen-1, got, want)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if alive != 0 || most != 1 {
			t.Errorf("%d incarnations are alive after Close, and %d were at once", alive, most)
		}
	})
}

func TestS9_WhatADeadIncarnationSaysReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		var held message
		p.on = func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" && l.gen == 2 {
				held = m
				return true, nil
			}
			return false, nil
		}
		c := connect(t, p, d.of(client.Config{
			OnNotification: func(n client.Notification) { d.write("%d says %s", n.Generation, n.Method) },
		}))
		old := p.last()
		p.kill()
		pass(100 * time.Millisecond)
		said := start(func() string { return tool(t.Context(), c) })
		synctest.Wait()
		// It answers the very id that is in flight on its replacement.
		old.result(held, `{"content":[{"type":"text","text":"from the grave"}]}`)
		old.fail(held, -32000, "from the grave")
		old.Write(0, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		old.Emit(transports.Unsent{Ref: held.Ref, Cause: errKilled})
		old.Emit(transports.Sent{Ref: held.Ref})
		old.Emit(transports.Ready{})
		synctest.Wait()
		if c.State() != fsm.Serving {
			t.Errorf("the state is %s", c.State())
		}
		p.last().answer(held)
		if got := <-said; got != "generation 2" {
			t.Errorf("the call was answered %q", got)
		}
		if diff := cmp.Diff([]string{"1 ended: killed by the test; the next in 100ms", "2 serves"}, d.read()); diff != "" {
			t.Error(diff)
		}
		if got := c.Stats(); got != (client.Stats{StaleEvents: 6}) {
			t.Errorf("counted: %+v", got)
		}
	})
}

func TestS10_AListenerThatPanicsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" {
				l.progress(m, 1)
			}
			return false, nil
		}}, &diary{}
		c := connect(t, p, d.of(client.Config{
			OnEnd:          func(client.Ended) { panic("OnEnd") },
			OnReconnect:    func(client.Reconnect) { panic("OnReconnect") },
			OnTransition:   func(fsm.Transition) { panic("OnTransition") },
			OnNotification: func(client.Notification) { panic("OnNotification") },
		}))
		_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(client.Progress) { panic("Progress") }})
		if err != nil {
			t.Error(err)
		}
		for range 4 {
			p.last().Write(0, `{"jsonrpc":"2.0","method":"notifications/x"}`)
			p.kill()
			pass(100 * time.Millisecond)
		}
		if diff := cmp.Diff(oneGenerationAfterTheOther, d.read()); diff != "" {
			t.Error(diff)
		}
		// 4 ends, 3 reconnects, 4 notifications, 1 progress; 4 ups, 4 deaths, 3 dues.
		if got := c.Stats().CallbackPanics; got != 23 {
			t.Errorf("%d panics were counted", got)
		}
	})
}

func TestS12_TheLogOfARespawnNamesCauseAttemptAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		log, logger := logbook()
		connect(t, p, client.Config{Budget: tumbling(t, 1), Logger: logger})
		pass(3 * time.Second)
		p.kill()
		pass(100 * time.Millisecond)
		p.kill()
		synctest.Wait()
		want := `level=WARN msg="the server went away and is started again" peer=scripted gen=1 cause="killed by the test" uptime=3s attempt=1 budget="restart 1 of 1 within 1m0s" delay=100ms
level=INFO msg="the server serves again" peer=scripted gen=2 downtime=100ms retried=0 changed=[serverInfo]
level=ERROR msg="the server went away and is not started again" peer=scripted gen=2 cause="killed by the test" uptime=0s restarts=1 budget="2nd death within 1m0s, 1 restart used"
`
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Error(diff)
		}
	})
}
