package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

// watched asks after 30 s of silence, waits 10 s, and gives up after three misses.
var watched = client.Liveness{Idle: 30 * time.Second}

func isProbe(l *life, m message) bool {
	return m.Method == "ping" || m.Method == "server/discover" && len(l.peer.got("server/discover")) > 1
}

func TestB076_ALiveServerIsNotKilledByAProbe(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   client.Liveness
		probe func(l *life, m message)
	}{
		{"it answers", watched, nil},
		{"it refuses", watched, func(l *life, m message) { l.fail(m, -32601, "no ping here") }},
		{"it answers nonsense", watched, func(l *life, m message) { l.result(m, `null`) }},
		{"it says something else instead", watched, func(l *life, _ message) { l.say("notifications/message", `{"level":"info"}`) }},
		{"it logs instead", watched, func(l *life, _ message) { l.Emit(transports.Diagnostic{Line: "still here"}) }},
		{"it is late, but not thrice", watched, func(l *life, m message) {
			if len(l.peer.got(m.Method))%3 == 0 {
				l.answer(m)
			}
		}},
		{"it answers after the bound", watched, func(l *life, m message) { l.later(11*time.Second, func() { l.answer(m) }) }},
		{"nobody asked for probes", client.Liveness{}, func(*life, message) {}},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, probes := &peer{legacy: legacy}, 0
					p.on = func(l *life, m message) (bool, error) {
						if !isProbe(l, m) {
							return false, nil
						}
						probes++
						if tt.probe != nil {
							tt.probe(l, m)
						}
						return tt.probe != nil, nil
					}
					c := connect(t, p, client.Config{Liveness: tt.cfg})
					pass(30 * time.Minute)
					if p.spawned() != 1 || c.State() != fsm.Serving {
						t.Errorf("legacy %t: %d servers were started", legacy, p.spawned())
					}
					if (probes > 0) != (tt.cfg.Idle > 0) {
						t.Errorf("%d probes", probes)
					}
					if n := len(p.got("ping")); (n > 0) != (legacy && tt.cfg.Idle > 0) {
						t.Errorf("legacy %t: %d pings", legacy, n)
					}
				})
			})
		}
	}
}

func TestB076_AServerBusyWithACallIsNotAsked(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, probed := &peer{legacy: legacy}, []time.Duration(nil)
			begun := time.Now()
			p.on = func(l *life, m message) (bool, error) {
				switch {
				case m.Method == "tools/call": // it reads nothing else meanwhile
					time.Sleep(40 * time.Minute)
				case isProbe(l, m):
					probed = append(probed, time.Since(begun))
				}
				return false, nil
			}
			c := connect(t, p, client.Config{Liveness: watched, RequestTimeout: -1, MaxRequestTimeout: -1})
			pass(29 * time.Second)
			if got := tool(t.Context(), c); got != "generation 1" {
				t.Error(got)
			}
			pass(31 * time.Second)
			if len(probed) != 1 || probed[0] < 40*time.Minute {
				t.Errorf("it was probed at %v", probed)
			}
			if p.spawned() != 1 {
				t.Errorf("%d servers were started", p.spawned())
			}
		})
	}
}

// A probe that is under way when a call begins counts for nothing.
func TestB076_ACallThatStartsDuringAProbeExcusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			return isProbe(l, m) || m.Method == "tools/call", nil
		}}
		c := connect(t, p, client.Config{Liveness: client.Liveness{Idle: 30 * time.Second, Misses: 1}})
		pass(35 * time.Second) // the probe is out since 30 s
		said := start(func() string {
			return generation(t.Context(), c, client.Request{Method: "tools/call", RequestTimeout: time.Minute})
		})
		pass(59 * time.Second)
		if p.spawned() != 1 {
			t.Error("it was killed while it worked on a call")
		}
		pass(time.Second)
		if got := <-said; !strings.HasPrefix(got, "outcome unknown: client: request: nothing heard for 1m0s") {
			t.Error(got)
		}
		if c.State() != fsm.Serving {
			t.Error("a request's timeout was a death")
		}
	})
}

func TestLiveness_ASilentServerIsEndedAfterItsMisses(t *testing.T) {
	for _, tt := range []struct {
		cfg  client.Liveness
		want time.Duration
	}{
		{client.Liveness{Idle: 30 * time.Second}, 3 * 40 * time.Second},
		{client.Liveness{Idle: 30 * time.Second, Timeout: time.Second, Misses: 1}, 31 * time.Second},
		{client.Liveness{Idle: time.Second, Timeout: 5 * time.Second, Misses: 2}, 12 * time.Second},
	} {
		for _, legacy := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var cause error
				var after time.Duration
				p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) { return l.gen == 1 && isProbe(l, m), nil }}
				c := connect(t, p, client.Config{Liveness: tt.cfg, OnEnd: func(e client.Ended) {
					if cause == nil {
						cause, after = e.Cause, time.Since(begun)
					}
				}})
				pass(tt.want + time.Second)
				if !errors.Is(cause, client.ErrUnresponsive) || after != tt.want {
					t.Errorf("legacy %t: after %s it was %v; want after %s", legacy, after, cause, tt.want)
				}
				if got := tool(t.Context(), c); got != "generation 2" {
					t.Error(got)
				}
			})
		}
	}
}

func TestB079_NothingThatANotificationSaysIsAFault(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method != "tools/call" {
					return false, nil
				}
				l.answer(m)
				l.progress(m, 1) // after the answer
				for _, params := range []string{
					`{"progressToken":"tool-call-1","progress":1}`, `{"progressToken":999,"progress":1}`, `{"progress":1}`,
					`{"progressToken":null}`, `[]`, `null`, `7`, `{"progressToken":{}}`,
				} {
					l.say("notifications/progress", params)
				}
				l.say("notifications/unknown", `{"a":1}`)
				l.say("notifications/cancelled", `{"requestId":999}`)
				l.say("notifications/cancelled", `{}`)
				l.say("notifications/cancelled", fmt.Sprintf(`{"requestId":%s}`, m.ID))
				l.say("", `{}`)
				l.Write(0, `{"jsonrpc":"2.0","id":null,"method":"notifications/initialized"}`)
				l.Write(0, `{"jsonrpc":"2.0","id":31337,"result":{}}`)
				return true, nil
			}}
			c := connect(t, p, client.Config{})
			for range 10 {
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
			}
			synctest.Wait()
			if p.spawned() != 1 || c.Stats().UnknownIDs != 10 {
				t.Errorf("%d servers were started; counted: %+v", p.spawned(), c.Stats())
			}
		})
	}
}

func TestB080_AContextOfACallOrOfConnectEndsNoServer(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method == "tools/call" {
					l.later(time.Hour, func() { l.answer(m) })
				}
				return m.Method == "tools/call", nil
			}}
			connecting, cancelConnect := context.WithCancel(t.Context())
			c, err := client.Connect(connecting, p.factory(), &client.Config{Logger: quiet(), RequestTimeout: -1, MaxRequestTimeout: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			one, cancelOne := context.WithCancel(t.Context())
			first := start(func() string { return tool(one, c) })
			synctest.Wait()
			second := start(func() string { return tool(t.Context(), c) })
			synctest.Wait()
			cancelOne()
			cancelConnect()
			if got := <-first; got != "outcome unknown: context canceled" {
				t.Error(got)
			}
			if got := <-second; got != "generation 1" {
				t.Error(got)
			}
			id := p.got("tools/call")[0].ID
			var told []string
			for _, m := range p.got("notifications/cancelled") {
				told = append(told, string(m.Params))
			}
			if diff := cmp.Diff([]string{fmt.Sprintf(`{"requestId":%s,"reason":"the caller gave up"}`, id)}, told); diff != "" {
				t.Error(diff)
			}
			if p.last().ctx.Err() != nil || p.spawned() != 1 {
				t.Error("the server was told to end")
			}
		})
	}
}

// Fifty users share one client whose server restarts every 10 s.
func TestB105_ASharedClientHealsItself(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method == "tools/call" || m.Method == "resources/read" {
					l.later(50*time.Millisecond, func() { l.result(m, `{"content":[],"contents":[]}`) })
				}
				return m.Method == "tools/call" || m.Method == "resources/read", nil
			}}
			c := connect(t, p, client.Config{Budget: constant(t, 100*time.Millisecond), RetryLost: true, WaitForReady: true})
			var said []<-chan map[string]int
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 50 {
				method := []string{"tools/call", "resources/read"}[i%2]
				done := make(chan map[string]int, 1)
				said = append(said, done)
				go func() {
					ends := map[string]int{}
					for ctx.Err() == nil {
						ends[method+": "+words(c.Call(context.Background(), method, nil, nil))]++
						time.Sleep(time.Second)
					}
					done <- ends
				}()
			}
			for range 6 {
				pass(10*time.Second - time.Millisecond*75)
				p.kill()
			}
			total := map[string]int{}
			for _, s := range said {
				for end, n := range <-s {
					total[end] += n
				}
			}
			lost := total["tools/call: outcome unknown: killed by the test"]
			for end := range total {
				if end != "tools/call: ok" && end != "resources/read: ok" && end != "tools/call: outcome unknown: killed by the test" {
					t.Errorf("%d calls: %s", total[end], end)
				}
			}
			if lost > 6*25 || total["tools/call: ok"] < 1000 || total["resources/read: ok"] < 1000 {
				t.Errorf("of calls that were no read %d were lost: %v", lost, total)
			}
			opening := "server/discover"
			if legacy {
				opening = "initialize"
			}
			if n := len(p.got(opening)); n != 7 || p.spawned() != 7 {
				t.Errorf("%d openings for %d servers", n, p.spawned())
			}
		})
	}
}
