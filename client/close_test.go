package client_test

import (
	"context"
	"errors"
	"sync"
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

func TestS11_CloseFromACloseListenerWithdrawsThePromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		var c *client.Client
		c = connect(t, p, d.of(client.Config{OnEnd: func(e client.Ended) {
			if e.Verdict.Respawn {
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}))
		p.kill()
		pass(time.Hour)
		want := []string{"1 ended: killed by the test; the next in 100ms", "2 is withdrawn: client: closed"}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
		if p.spawned() != 1 || c.State() != fsm.Closed {
			t.Errorf("%d incarnations, %s", p.spawned(), c.State())
		}
	})
}

func TestS22_CloseIsFinalWheneverItComes(t *testing.T) {
	const live, promised = "1 ended: client: closed", "2 is withdrawn: client: closed"
	died := "1 ended: killed by the test; the next in 100ms"
	for _, tt := range []struct {
		when  string
		until func(p *peer)
		want  []string
		spawn int
	}{
		{"while it serves", func(*peer) {}, []string{live}, 1},
		{"at the death", func(p *peer) { p.kill(); synctest.Wait() }, []string{died, promised}, 1},
		{"1 ns before the replacement", func(p *peer) { p.kill(); pass(100*time.Millisecond - 1) }, []string{died, promised}, 1},
		{"once the replacement serves", func(p *peer) { p.kill(); pass(100 * time.Millisecond) }, []string{died, "2 serves", "2 ended: client: closed"}, 2},
	} {
		t.Run(tt.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, d := &peer{}, &diary{}
				c := connect(t, p, d.of(client.Config{}))
				tt.until(p)
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if err := c.Close(t.Context()); err != nil {
							t.Error(err)
						}
						select {
						case <-c.Done():
						default:
							t.Error("Close returned before all was over")
						}
					})
				}
				all.Wait()
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if c.State() != fsm.Closed || !errors.Is(c.Err(), client.ErrClosed) {
					t.Errorf("closed, it is %s: %v", c.State(), c.Err())
				}
				if got, want := tool(t.Context(), c), "not executed: client: closed"; got != want {
					t.Errorf("a call after Close: %s, want %s", got, want)
				}
				pass(time.Hour)
				if diff := cmp.Diff(tt.want, d.read()); diff != "" {
					t.Error(diff)
				}
				if p.spawned() != tt.spawn {
					t.Errorf("%d incarnations", p.spawned())
				}
			})
		})
	}
}

func TestS22_CloseOfWhatIsOverNeedsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // both of what Close waits for have come: neither may be picked by chance
			p := &peer{}
			c := connect(t, p, client.Config{Logger: quiet(), Budget: policy.Never()})
			p.kill()
			<-c.Done()
			if err := c.Close(gone); err != nil || c.State() != fsm.Closed {
				t.Fatalf("%v, and it is %s", err, c.State())
			}
		}
	})
}

func TestS22_GivingUpConnectIsACloseBeforeTheFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{on: func(*life, message) (bool, error) { return true, nil }}, &diary{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cfg := d.of(client.Config{Logger: quiet()})
		_, err := client.Connect(ctx, p.factory(), &cfg)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"1 ended: client: closed"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS22_CloseFromEachCallbackIsSafe(t *testing.T) {
	for _, from := range []string{"OnEnd", "OnReconnect", "OnTransition", "OnNotification", "OnListChanged", "Progress"} {
		t.Run(from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "tools/call" {
						l.progress(m, 1)
					}
					return false, nil
				}}
				var connected atomic.Pointer[client.Client]
				var closed atomic.Int64
				end := func(where string) {
					if c := connected.Load(); where == from && c != nil {
						closed.Add(1)
						if err := c.Close(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
				c := connect(t, p, client.Config{
					OnEnd:          func(client.Ended) { end("OnEnd") },
					OnReconnect:    func(client.Reconnect) { end("OnReconnect") },
					OnTransition:   func(fsm.Transition) { end("OnTransition") },
					OnNotification: func(client.Notification) { end("OnNotification") },
					OnListChanged:  func(client.Kind) { end("OnListChanged") },
				})
				connected.Store(c)
				p.last().Write(0, `{"jsonrpc":"2.0","method":"notifications/x"}`)
				synctest.Wait()
				_, _ = c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(client.Progress) { end("Progress") }})
				if c.State() == fsm.Serving {
					p.kill()
				}
				pass(time.Minute)
				select {
				case <-c.Done():
				default:
					t.Error("it is not over")
				}
				if closed.Load() == 0 || c.State() != fsm.Closed {
					t.Errorf("closed %d times, it is %s", closed.Load(), c.State())
				}
			})
		})
	}
}

func TestS22_CloseAfterExhaustionOnlyNamesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		c := connect(t, p, d.of(client.Config{
			Budget:       policy.Never(),
			OnTransition: func(tr fsm.Transition) { d.write("%s", tr.To) },
		}))
		p.kill()
		<-c.Done()
		for range 2 {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		want := []string{"serving", "exhausted", "1 ended: killed by the test; none follows", "closed"}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
		if exhausted := new(client.ExhaustedError); !errors.As(c.Err(), &exhausted) {
			t.Errorf("it ended because of %v", c.Err())
		}
	})
}

func TestS23_OnlyAPendingPromiseIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		var got []client.Ended
		c := connect(t, p, client.Config{OnEnd: func(e client.Ended) { got = append(got, e) }})
		pass(2 * time.Second)
		p.kill()
		pass(50 * time.Millisecond)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		want := []client.Ended{
			{
				Gen: 1, Cause: errKilled, Uptime: 2 * time.Second, Restarts: 1,
				Verdict: policy.Verdict{Respawn: true, Delay: 100 * time.Millisecond, Why: "restart 1 of 3 within 1m0s"},
			},
			{Gen: 2, Cause: client.ErrClosed, Restarts: 1, Withdrawn: true},
		}
		if diff := cmp.Diff(want, got, sameError); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS24_CloseWhileAReplacementStarts(t *testing.T) {
	for _, tt := range []struct {
		how string
		on  func(l *life, m message) (bool, error)
	}{
		{"that never answers", func(*life, message) (bool, error) { return true, nil }},
		{"that answers a moment later", func(l *life, m message) (bool, error) {
			time.Sleep(time.Second)
			return false, nil
		}},
		{"that answers as it is told to stop", func(l *life, m message) (bool, error) {
			<-l.ctx.Done()
			l.answer(m)
			return true, context.Cause(l.ctx)
		}},
	} {
		t.Run(tt.how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				p := &peer{on: func(l *life, m message) (bool, error) {
					if l.gen == 2 {
						return tt.on(l, m)
					}
					return false, nil
				}}
				c := connect(t, p, d.of(client.Config{WaitForReady: true}))
				p.kill()
				pass(0)
				said := start(func() string { return tool(t.Context(), c) })
				pass(100 * time.Millisecond)
				if c.State() != fsm.Starting {
					t.Fatalf("the state is %s", c.State())
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if got, want := <-said, "not executed: client: closed"; got != want {
					t.Errorf("the call that waited: %s, want %s", got, want)
				}
				pass(time.Hour)
				want := []string{"1 ended: killed by the test; the next in 100ms", "2 ended: client: closed"}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"1 server/discover", "2 server/discover"}, p.received()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestS25_CloseLetsCallsInFlightFinish(t *testing.T) {
	for _, tt := range []struct {
		what  string
		after func(l *life, m message) error // what the server does a second later
		drain time.Duration
		said  string
		took  time.Duration
	}{
		{"answered in time", func(l *life, m message) error { l.answer(m); return nil }, 0, "generation 1", time.Second},
		{"not answered", func(*life, message) error { return nil }, 0, "outcome unknown: client: closed", 5 * time.Second},
		{"not answered, bound of 2 s", func(*life, message) error { return nil }, 2 * time.Second, "outcome unknown: client: closed", 2 * time.Second},
		{"no bound to wait in", func(*life, message) error { return nil }, -1, "outcome unknown: client: closed", 0},
		{"dead meanwhile", func(*life, message) error { return errKilled }, 0, "outcome unknown: client: closed", time.Second},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method != "tools/call" {
						return false, nil
					}
					select {
					case <-time.After(time.Second):
						return true, tt.after(l, m)
					case <-l.ctx.Done():
						return true, context.Cause(l.ctx)
					}
				}}
				c := connect(t, p, d.of(client.Config{DrainTimeout: tt.drain, WaitForReady: true}))
				said := start(func() string { return tool(t.Context(), c) })
				synctest.Wait()
				began := time.Now()
				closed := start(func() string { return words(c.Close(t.Context())) })
				synctest.Wait()
				if got, want := tool(t.Context(), c), "not executed: client: closed"; got != want {
					t.Errorf("a new call: %s, want %s", got, want)
				}
				if got := <-said; got != tt.said {
					t.Errorf("the call in flight: %s, want %s", got, tt.said)
				}
				if got := <-closed; got != "ok" {
					t.Errorf("Close: %s", got)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %s", took)
				}
				pass(time.Hour)
				cause := "client: closed"
				if tt.what == "dead meanwhile" {
					cause = "killed by the test"
				}
				if diff := cmp.Diff([]string{"1 ended: " + cause}, d.read()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestS26_AStopThatHangsIsReportedOnceAndCloseObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		f := p.factory()
		f.New = func() transports.Transport {
			return memory.New(transports.Pipe, func(ctx context.Context, c *memory.Conn) error {
				defer time.Sleep(10 * time.Second)
				return p.serve(ctx, c)
			})
		}
		c := connectTo(t, f, d.of(client.Config{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close with a second to wait: %v", err)
		}
		select {
		case <-c.Done():
			t.Error("Done is closed while the server still stops")
		default:
		}
		began := time.Now()
		if err := c.Close(t.Context()); err != nil || time.Since(began) != 9*time.Second {
			t.Errorf("Close took another %s: %v", time.Since(began), err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"1 ended: client: closed"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}
