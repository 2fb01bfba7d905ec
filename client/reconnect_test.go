package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

func TestS27_IsReconnectingFromADeathUntilItsReplacementServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: slowStart}
		var c *client.Client
		d := &diary{}
		note := func(when string) {
			synctest.Wait()
			d.write("%s: %s, reconnecting %t", when, c.State(), c.IsReconnecting())
		}
		c = connect(t, p, client.Config{Budget: tumbling(t, 1)})
		note("connected")
		p.kill()
		note("dead")
		pass(100 * time.Millisecond)
		note("a replacement starts")
		pass(time.Second)
		note("it serves")
		p.kill()
		note("dead for good")
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		note("closed")
		want := []string{
			"connected: serving, reconnecting false",
			"dead: dead-awaiting-respawn, reconnecting true",
			"a replacement starts: starting, reconnecting true",
			"it serves: serving, reconnecting false",
			"dead for good: exhausted, reconnecting false",
			"closed: closed, reconnecting false",
		}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

// slowStart makes each replacement take a second to answer its opening exchange.
func slowStart(l *life, m message) (bool, error) {
	if l.gen > 1 && (m.Method == "server/discover" || m.Method == "initialize") {
		time.Sleep(time.Second)
	}
	return false, nil
}

func TestS28_OnReconnectFiresOnceForEachReplacementThatServes(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, d := &peer{legacy: legacy, on: slowStart}, &diary{}
			var c *client.Client
			var got []client.Reconnect
			c = connect(t, p, d.of(client.Config{
				RetryLost: true,
				OnReconnect: func(r client.Reconnect) {
					got = append(got, r)
					d.write("a call inside: %s, reconnecting %t", tool(t.Context(), c), c.IsReconnecting())
				},
			}))
			pass(time.Second)
			for range 2 {
				p.kill()
				pass(2 * time.Second)
			}
			want := []string{
				"1 ended: killed by the test; the next in 100ms", "2 serves", "a call inside: generation 2, reconnecting false",
				"2 ended: killed by the test; the next in 100ms", "3 serves", "a call inside: generation 3, reconnecting false",
			}
			if diff := cmp.Diff(want, d.read()); diff != "" {
				t.Error(diff)
			}
			away := 1100 * time.Millisecond // the delay, and the slow start
			reconnects := []client.Reconnect{
				{Generation: 2, Cause: errKilled, Downtime: away, Changed: []string{"serverInfo"}},
				{Generation: 3, Cause: errKilled, Downtime: away, Changed: []string{"serverInfo"}},
			}
			if diff := cmp.Diff(reconnects, got, sameError); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var errBadStart = errors.New("it can't start")

func TestS29_ADeathInsideAReplacementsStartIsOneDeath(t *testing.T) {
	for _, step := range []string{"server/discover", "initialize"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				p := &peer{legacy: step == "initialize", on: func(l *life, m message) (bool, error) {
					if l.gen == 2 && m.Method == step {
						return true, errBadStart
					}
					return false, nil
				}}
				c := connect(t, p, d.of(client.Config{
					OnTransition: func(tr fsm.Transition) { d.write("%s", tr.To) },
				}))
				p.kill()
				pass(100 * time.Millisecond)
				pass(100*time.Millisecond - 1)
				if p.spawned() != 2 {
					t.Errorf("%d incarnations before the second delay is over", p.spawned())
				}
				pass(1)
				if p.spawned() != 3 {
					t.Errorf("%d incarnations after the second delay", p.spawned())
				}
				if got := tool(t.Context(), c); got != "generation 3" {
					t.Error(got)
				}
				want := []string{
					"serving",
					"dead-awaiting-respawn", "1 ended: killed by the test; the next in 100ms",
					"starting",
					"dead-awaiting-respawn", "2 ended: it can't start; the next in 100ms",
					"starting", "serving", "3 serves",
				}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
