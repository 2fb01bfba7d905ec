package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// slowed is a transport whose Send takes its time around handing a message over, and
// which notes what is asked of it.
type slowed struct {
	transports.Transport
	before, after func(transports.Outbound)     // nil: at once
	note          func(what string, ref uint64) // nil: nobody wants to know
}

func (s *slowed) Send(out transports.Outbound) error {
	if s.before != nil {
		s.before(out)
	}
	err := s.Transport.Send(out)
	if s.note != nil && out.Op == transports.OpResume {
		s.note("resume", out.Ref)
	}
	if s.after != nil {
		s.after(out)
	}
	return err
}

func (s *slowed) Cancel(ref uint64) bool {
	if s.note != nil {
		s.note("cancel", ref)
	}
	return s.Transport.Cancel(ref)
}

// slowly has each transport of a factory be like s.
func slowly(f transports.Factory, s slowed) transports.Factory {
	inner := f.New
	f.New = func() transports.Transport {
		t := s
		t.Transport = inner()
		return &t
	}
	return f
}

// stuck is a factory whose Send of a method takes until it is let go: before or after the
// frame is handed over.
func stuck(f transports.Factory, method string, before bool, letGo <-chan struct{}) transports.Factory {
	wait := func(out transports.Outbound) {
		if out.Method == method {
			<-letGo
		}
	}
	if before {
		return slowly(f, slowed{before: wait})
	}
	return slowly(f, slowed{after: wait})
}

// A server dies, and its ending is dealt with, while a caller is still inside Send.
func TestS30_ACallThatIsBeingSentWhenItsServerDiesIsLostLikeAnyOther(t *testing.T) {
	const method = "resources/read"
	for _, tt := range []struct {
		name   string
		before bool // the death comes before the frame is handed over
		cfg    client.Config
		want   string
	}{
		{"it was written", false, client.Config{}, "outcome unknown: killed by the test"},
		{"it was written, and may wait", false, client.Config{WaitForReady: true}, "outcome unknown: killed by the test"},
		{"it was written and is retried", false, client.Config{RetryLost: true}, "answered by 2"},
		{"it was not written", true, client.Config{}, "not executed: killed by the test"},
		{"it was not written and is no lost one", true, client.Config{RetryLost: true}, "not executed: killed by the test"},
		{"it was not written and may wait", true, client.Config{WaitForReady: true}, "answered by 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, late := range []bool{false, true} { // the replacement serves before Send returns
				synctest.Test(t, func(t *testing.T) {
					p := swallowing(method, 1)
					letGo := make(chan struct{})
					c := connectTo(t, stuck(p.factory(), method, tt.before, letGo), tt.cfg)
					said := start(func() string { return generation(t.Context(), c, client.Request{Method: method, Params: mine}) })
					synctest.Wait()
					p.kill()
					synctest.Wait()
					if late {
						pass(defaultDelay)
					}
					close(letGo)
					if got := <-said; got != tt.want {
						t.Errorf("%s, want %s", got, tt.want)
					}
				})
			}
		})
	}
}

// No incarnation follows while a caller is still inside Send.
func TestS30_ASendMayOutlastThePeer(t *testing.T) {
	const closed, exhausted = "client: closed", "exhausted after 0 restarts"
	for _, tt := range []struct {
		name   string
		before bool // the end comes before the frame is handed over
		cfg    client.Config
		end    func(p *peer, c *client.Client)
		want   string
	}{
		{"it was written, closed", false, client.Config{}, func(_ *peer, c *client.Client) { go c.Close(context.Background()) }, "outcome unknown: " + closed},
		{"it was not written, closed", true, client.Config{}, func(_ *peer, c *client.Client) { go c.Close(context.Background()) }, "not executed: " + closed},
		{
			"it was not written and may wait, closed", true,
			client.Config{WaitForReady: true},
			func(_ *peer, c *client.Client) { go c.Close(context.Background()) }, "not executed: " + closed,
		},
		{"it was written, exhausted", false, client.Config{Budget: policy.Never()}, func(p *peer, _ *client.Client) { p.kill() }, "outcome unknown: " + exhausted},
		{
			"it was not written and may wait, exhausted", true,
			client.Config{Budget: policy.Never(), WaitForReady: true},
			func(p *peer, _ *client.Client) { p.kill() }, "not executed: " + exhausted,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("tools/call", 1)
				letGo := make(chan struct{})
				c := connectTo(t, stuck(p.factory(), "tools/call", tt.before, letGo), tt.cfg)
				said := start(func() string { return tool(t.Context(), c) })
				synctest.Wait()
				tt.end(p, c)
				<-c.Done()
				close(letGo)
				if got := <-said; got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// refusing is a transport that takes no message of a method.
type refusing struct {
	transports.Transport
	method string
	with   error
}

func (t refusing) Send(out transports.Outbound) error {
	if out.Method == t.method {
		return t.with
	}
	return t.Transport.Send(out)
}

func TestS31_ASendThatFailsFreesItsSlotAndHarmsNoOther(t *testing.T) {
	tooOdd := errors.New("too odd")
	for _, tt := range []struct {
		name string
		with error
		wait bool
		want string
	}{
		{"the queue is full", transports.ErrFull, false, "not executed: transports: too much is queued"},
		{"the queue is full, and it may wait", transports.ErrFull, true, "not executed: transports: too much is queued"},
		{"it can't be sent as it is", tooOdd, false, "neither lost nor answered: client: tools/call: too odd"},
		{"its end is known", transports.ErrGone, false, "not executed: nobody serves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("resources/read", 1)
				f := p.factory()
				inner := f.New
				f.New = func() transports.Transport { return refusing{inner(), "tools/call", tt.with} }
				c := connectTo(t, f, client.Config{WaitForReady: tt.wait})
				other := start(func() string { return words(c.Call(t.Context(), "resources/read", nil, nil)) })
				synctest.Wait()
				if got := tool(t.Context(), c); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				p.last().result(p.got("resources/read")[0], `{}`)
				if got := <-other; got != "ok" {
					t.Errorf("the other call: %s", got)
				}
				began := time.Now()
				if err := c.Close(t.Context()); err != nil || !time.Now().Equal(began) {
					t.Errorf("Close waited %s for a call that was never sent: %v", time.Since(began), err)
				}
			})
		})
	}
}

// An answer that is too large, or can't be read, is an answer all the same.
func TestS31_WhoHasAnsweredIsNotToldToCancel(t *testing.T) {
	answers := map[string]func(l *life, m message){
		"too large":  func(l *life, m message) { l.Emit(transports.Noise{Bytes: 1 << 30, ID: string(m.ID)}) },
		"unreadable": func(l *life, m message) { l.Write(0, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":NaN}}`) },
	}
	for name, answer := range answers {
		for _, lag := range []time.Duration{0, time.Millisecond} {
			bubble(t, name+", and Send takes "+lag.String(), func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "tools/call" {
						answer(l, m)
					}
					return m.Method == "tools/call", nil
				}}
				c := connectTo(t, slowly(p.factory(), slowed{after: func(out transports.Outbound) {
					if out.Method == "tools/call" {
						time.Sleep(lag)
					}
				}}), client.Config{})
				if err := c.Call(t.Context(), "tools/call", nil, nil); err == nil {
					t.Error("the call has a result")
				}
				pass(time.Second)
				if got := p.got("notifications/cancelled"); len(got) > 0 {
					t.Errorf("the peer is told to cancel: %s", got[0].Params)
				}
			})
		}
	}
}

func TestS30_WhatIsQueuedAtACloseDidNotRun(t *testing.T) {
	for range 100 { // it was a race
		synctest.Test(t, func(t *testing.T) {
			p := &peer{on: func(l *life, m message) (bool, error) {
				if m.Method != "tools/call" {
					return false, nil
				}
				<-l.ctx.Done() // it reads no other
				return true, context.Cause(l.ctx)
			}}
			c := connect(t, p, client.Config{DrainTimeout: -1})
			first := start(func() string { return tool(t.Context(), c) })
			synctest.Wait()
			var queued []<-chan string
			for range 20 {
				queued = append(queued, start(func() string { return tool(t.Context(), c) }))
			}
			synctest.Wait()
			_ = c.Close(context.Background())
			<-first
			for _, q := range queued {
				if got := <-q; got != "not executed: client: closed" {
					t.Fatalf("a call that waited to be written: %s", got)
				}
			}
		})
	}
}

// Whoever ends a call while its resume is being sent has nothing to cancel yet.
func TestH8_AResumeOfACallThatIsOverIsCancelled(t *testing.T) {
	for _, how := range []string{"its caller gives up", "its answer comes"} {
		bubble(t, how, func(t *testing.T) {
			w := &web{legacy: true}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var slow atomic.Bool
			var last atomic.Value
			c := connectTo(t, slowly(w.factory(), slowed{
				before: func(out transports.Outbound) {
					if out.Op == transports.OpResume && slow.Load() {
						time.Sleep(10 * time.Millisecond)
					}
				},
				note: func(what string, _ uint64) { last.Store(what) },
			}), client.Config{})
			synctest.Wait()
			var resumed atomic.Pointer[exchange]
			w.becomes(anyOf(cuts("e1", 0), resumes(func(_ int, x *exchange) {
				if resumed.CompareAndSwap(nil, x) {
					x.Emit(transports.Opened{Ref: x.Ref})
				}
			})))
			slow.Store(how == "its caller gives up")
			fates := asks(ctx, c, 1, "tools/call")
			if slow.Load() {
				time.Sleep(255 * time.Millisecond) // the first resume is being sent
				cancel()
			} else {
				time.Sleep(time.Second)
				slow.Store(true)
				time.Sleep(4255 * time.Millisecond) // the next look at the silent stream is
				x := resumed.Load()
				x.Write(x.Ref, `{"jsonrpc":"2.0","id":`+x.ID+`,"result":{}}`)
			}
			fates()
			pass(time.Minute)
			if got := last.Load(); got != "cancel" {
				t.Errorf("the last that the transport hears is a %v", got)
			}
		})
	}
}
