package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

func TestS35_TheDeadlineIsTheOriginalOne(t *testing.T) {
	idle := client.TimeoutError{What: "request", After: 3 * time.Second, Idle: true}
	ceiling := client.TimeoutError{What: "request", After: 3 * time.Second}
	for _, tt := range []struct {
		name   string
		gens   int // incarnations that swallow it
		kills  []time.Duration
		delay  time.Duration // from a death to its replacement
		ctx    time.Duration
		r      client.Request
		want   string
		sent   int
		ending time.Duration
	}{
		{
			"it runs through a death", 2,
			[]time.Duration{2 * time.Second},
			100 * time.Millisecond, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"outcome unknown: " + idle.Error(), 2, 3 * time.Second,
		},
		{
			"it ends in the delay", 2,
			[]time.Duration{2 * time.Second},
			5 * time.Second, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"outcome unknown: " + idle.Error(), 1, 3 * time.Second,
		},
		{
			"the ceiling too", 3,
			[]time.Duration{time.Second, time.Second},
			400 * time.Millisecond, 0,
			client.Request{RequestTimeout: -1, MaxRequestTimeout: 3 * time.Second},
			"outcome unknown: " + ceiling.Error(), 3, 3 * time.Second,
		},
		{
			"and the caller's own", 2,
			[]time.Duration{2 * time.Second},
			5 * time.Second, 4 * time.Second,
			client.Request{},
			"outcome unknown: context deadline exceeded", 1, 4 * time.Second,
		},
		{
			"an answer just in time is one", 1,
			[]time.Duration{2 * time.Second},
			time.Second - 1, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"answered by 2", 2, 3*time.Second - 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("resources/read", tt.gens)
				c := connect(t, p, client.Config{RetryLost: true, Budget: constant(t, tt.delay)})
				ctx := t.Context()
				if tt.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.ctx)
					defer cancel()
				}
				begun := time.Now()
				tt.r.Method, tt.r.Params = "resources/read", mine
				var ended time.Duration
				said := start(func() string {
					defer func() { ended = time.Since(begun) }()
					return generation(ctx, c, tt.r)
				})
				for _, after := range tt.kills {
					pass(after)
					p.kill()
					pass(tt.delay)
				}
				if got := <-said; got != tt.want || ended != tt.ending {
					t.Errorf("after %s: %s; want after %s: %s", ended, got, tt.ending, tt.want)
				}
				pass(time.Minute)
				if n := len(calls(p, "resources/read")); n != tt.sent {
					t.Errorf("it was sent %d times, want %d", n, tt.sent)
				}
			})
		})
	}
}

func TestS35_WhatTimedOutInTheGapIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 1)
		c := connect(t, p, client.Config{RetryLost: true, Budget: constant(t, 5*time.Second), MaxHeld: 1})
		read := func() <-chan string {
			return start(func() string {
				return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine, RequestTimeout: time.Second})
			})
		}
		said := read()
		synctest.Wait()
		lost := calls(p, "resources/read")[0]
		p.kill()
		if got := <-said; !strings.HasPrefix(got, "outcome unknown: client: request: nothing heard") {
			t.Error(got)
		}
		// Its slot is free: MaxHeld is 1, and one more may wait.
		said = start(func() string {
			return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine, Wait: client.WaitReady})
		})
		pass(5 * time.Second)
		if got := <-said; got != "answered by 2" {
			t.Errorf("a call that waited in its place: %s", got)
		}
		p.last().result(lost, `{"contents":[]}`)
		synctest.Wait()
		if got := c.Stats().UnknownIDs; got != 1 {
			t.Errorf("%d late answers were dropped", got)
		}
		for _, m := range p.messages() {
			if m.Method == "notifications/cancelled" {
				t.Errorf("generation %d was told to cancel what it never had: %s", m.Gen, m.Params)
			}
		}
	})
}

func TestS36_AReplacementThatFailsToStartKeepsWhatIsRetained(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget int
		want   string
		sent   []int // to which generations
	}{
		{"the next one gets it", 4, "answered by 5", []int{1, 5}},
		{"none coming, it fails with that error", 3, "outcome unknown: exhausted after 3 restarts", []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("resources/read", 1)
				inner := p.on
				p.on = func(l *life, m message) (bool, error) {
					switch l.gen {
					case 2, 3:
						return true, errKilled
					case 4: // this one fails by an answer
						l.fail(m, -32021, "not today")
						return true, nil
					}
					return inner(l, m)
				}
				c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, tt.budget)})
				said := start(func() string {
					return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine})
				})
				synctest.Wait()
				p.kill()
				pass(time.Second)
				if got := <-said; got != tt.want {
					t.Errorf("it was %s, want %s", got, tt.want)
				}
				var sent []int
				for _, m := range calls(p, "resources/read") {
					sent = append(sent, m.Gen)
				}
				if diff := cmp.Diff(tt.sent, sent); diff != "" {
					t.Errorf("sent to: %s", diff)
				}
			})
		})
	}
}

// A replacement that dies as soon as it serves, before it took the request: that
// ending says nothing about the request, which another has already had.
func TestS36_AReplacementThatDiesBeforeItTookARequestKeepsIt(t *testing.T) {
	for gens := 1; gens <= 3; gens++ {
		synctest.Test(t, func(t *testing.T) {
			p := swallowing("resources/read", 1)
			inner := p.on
			p.on = func(l *life, m message) (bool, error) {
				if l.gen > 1 && l.gen <= 1+gens {
					l.answer(m)
					return true, errKilled // in the very moment in which it serves
				}
				return inner(l, m)
			}
			c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, 10)})
			said := start(func() string {
				return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine})
			})
			synctest.Wait()
			p.kill()
			pass(time.Minute)
			if got, want := <-said, fmt.Sprintf("answered by %d", gens+2); got != want {
				t.Errorf("it was %s, want %s", got, want)
			}
		})
	}
}

// What is retained counts among what waits, and beyond the bound a lost request is
// refused as one that the server may have run.
func TestS36_WhatIsRetainedIsBounded(t *testing.T) {
	for _, cfg := range []client.Config{{MaxHeld: 2}, {MaxHeldBytes: 900}} {
		synctest.Test(t, func(t *testing.T) {
			p := swallowing("resources/read", 1)
			cfg.RetryLost, cfg.WaitForReady = true, true
			c := connect(t, p, cfg)
			params, err := json.Marshal(map[string]any{"mine": 1, "pad": strings.Repeat("x", 100)})
			if err != nil {
				t.Fatal(err)
			}
			var said []<-chan string
			for range 3 {
				said = append(said, start(func() string {
					return generation(t.Context(), c, client.Request{Method: "resources/read", Params: json.RawMessage(params)})
				}))
				synctest.Wait()
			}
			p.kill()
			synctest.Wait()
			if got := generation(t.Context(), c, client.Request{Method: "tools/call", Params: json.RawMessage(params)}); got != "not executed: nobody serves" {
				t.Errorf("one more that would wait: %s", got)
			}
			want := []string{"answered by 2", "answered by 2", "outcome unknown: nobody serves"}
			for i, s := range said {
				if got := <-s; got != want[i] {
					t.Errorf("read %d: %s, want %s", i+1, got, want[i])
				}
			}
		})
	}
}

func TestS37_ARequestFirstMadeWhileNobodyServesIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 0)
		c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, 1)})
		p.kill()
		synctest.Wait()
		read := client.Request{Method: "resources/read", Params: mine}
		if got := generation(t.Context(), c, read); got != "not executed: nobody serves" {
			t.Errorf("without WaitForReady: %s", got)
		}
		read.Wait = client.WaitReady
		said := start(func() string { return generation(t.Context(), c, read) })
		pass(100 * time.Millisecond)
		if got := <-said; got != "answered by 2" {
			t.Errorf("with it: %s", got)
		}
		p.kill()
		synctest.Wait()
		if got := generation(t.Context(), c, read); got != "not executed: exhausted after 1 restarts" {
			t.Errorf("after the end: %s", got)
		}
	})
}

func TestS39_AfterARetryTheProgressOfTheNewRunIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "resources/read" {
				return false, nil
			}
			for n := range 4 - l.gen { // the new run has less to say
				l.progress(m, n+1)
			}
			if l.gen == 2 {
				l.result(m, `{"contents":[]}`)
			}
			return true, nil
		}}
		c := connect(t, p, client.Config{RetryLost: true})
		var heard []float64
		said := start(func() string {
			return generation(t.Context(), c, client.Request{
				Method: "resources/read", Params: mine,
				Progress: func(p client.Progress) { heard = append(heard, p.Progress) },
			})
		})
		synctest.Wait()
		p.kill()
		if got := <-said; got != "answered by 2" {
			t.Error(got)
		}
		if diff := cmp.Diff([]float64{1, 2, 3, 1, 2}, heard); diff != "" {
			t.Error(diff)
		}
	})
}
