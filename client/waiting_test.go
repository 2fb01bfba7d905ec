package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

func TestS4_ACallWhileNobodyServesIsRefusedOrParked(t *testing.T) {
	exhausted := "not executed: exhausted after 1 restarts"
	for _, tt := range []struct {
		when    string
		until   func(t *testing.T, p *peer, c *client.Client)
		state   fsm.State
		refused string
		parked  string
	}{
		{"between a death and its replacement", func(t *testing.T, p *peer, c *client.Client) {
			p.kill()
		}, fsm.Dead, "not executed: nobody serves", "generation 2"},
		{"while a replacement starts", func(t *testing.T, p *peer, c *client.Client) {
			p.kill()
			pass(100 * time.Millisecond)
		}, fsm.Starting, "not executed: nobody serves", "generation 2"},
		{"after exhaustion", func(t *testing.T, p *peer, c *client.Client) {
			p.kill()
			pass(2 * time.Second)
			p.kill()
		}, fsm.Exhausted, exhausted, exhausted},
		{"after close", func(t *testing.T, p *peer, c *client.Client) {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, fsm.Closed, "not executed: client: closed", "not executed: client: closed"},
	} {
		for _, wait := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, wait for ready %t", tt.when, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{on: slowStart}
					c := connect(t, p, client.Config{WaitForReady: wait, Budget: tumbling(t, 1)})
					tt.until(t, p, c)
					synctest.Wait()
					if c.State() != tt.state {
						t.Fatalf("the state is %s", c.State())
					}
					want := tt.refused
					if wait {
						want = tt.parked
					}
					began, before := time.Now(), len(p.received())
					said := start(func() string { return tool(t.Context(), c) })
					synctest.Wait()
					if got := p.received()[before:]; len(got) > 0 {
						t.Errorf("a peer that does not serve got %q", got)
					}
					if got := <-said; got != want {
						t.Errorf("%s, want %s", got, want)
					}
					if !wait && !time.Now().Equal(began) {
						t.Errorf("it was refused only after %s", time.Since(began))
					}
				})
			})
		}
	}
}

func TestS4_OneRequestMayDecideForItself(t *testing.T) {
	for _, tt := range []struct {
		wait client.Wait
		all  bool
		want string
	}{
		{client.WaitReady, false, "ok"},
		{client.WaitNever, true, "not executed: nobody serves"},
		{client.WaitDefault, true, "ok"},
		{client.WaitDefault, false, "not executed: nobody serves"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{}
			c := connect(t, p, client.Config{WaitForReady: tt.all})
			p.kill()
			synctest.Wait()
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Wait: tt.wait})
			if got := words(err); got != tt.want {
				t.Errorf("wait %d where the default is %t: %s, want %s", tt.wait, tt.all, got, tt.want)
			}
		})
	}
}

func TestS4_ARefusalSaysWhenToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: slowStart}
		c := connect(t, p, client.Config{})
		refusal := func() (n client.NotServingError) {
			down := new(client.NotServingError)
			if err := c.Ping(t.Context()); !errors.As(err, &down) {
				t.Errorf("Ping: %v", err)
			}
			return *down
		}
		p.kill()
		synctest.Wait()
		if diff := cmp.Diff(client.NotServingError{RetryAt: time.Now().Add(100 * time.Millisecond)}, refusal()); diff != "" {
			t.Errorf("in the delay: %s", diff)
		}
		pass(100 * time.Millisecond)
		pass(time.Millisecond)
		if diff := cmp.Diff(client.NotServingError{}, refusal()); diff != "" {
			t.Errorf("nobody knows how long a start takes: %s", diff)
		}
	})
}

// A caller whose call was lost may be back before the engine has dealt with the
// rest of that death.
func TestS4_ACallMadeAtOnceAfterALostOneIsRefusedLikeAnyOther(t *testing.T) {
	for _, tt := range []struct {
		what   string
		budget policy.Budget
		want   string
	}{
		{"a replacement by itself", policy.Contract(), "not executed: nobody serves"},
		{"a replacement on use, at once", policy.Unlimited(), "generation 2"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			for range 100 {
				synctest.Test(t, func(t *testing.T) {
					var held []message
					p := &peer{on: hold(1, &held)}
					c := connect(t, p, client.Config{Budget: tt.budget})
					var again []<-chan string
					for range 8 {
						again = append(again, start(func() string { tool(t.Context(), c); return tool(t.Context(), c) }))
					}
					synctest.Wait()
					p.kill()
					for _, said := range again {
						if got := <-said; got != tt.want {
							t.Errorf("the second call: %s, want %s", got, tt.want)
						}
					}
				})
			}
		})
	}
}

func TestS4_TheNumberOfParkedCallsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{WaitForReady: true, MaxHeld: 3})
		p.kill()
		synctest.Wait()
		var said []<-chan string
		for range 5 {
			said = append(said, start(func() string { return tool(t.Context(), c) }))
			synctest.Wait()
		}
		var got []string
		for _, s := range said {
			got = append(got, <-s)
		}
		want := []string{"generation 2", "generation 2", "generation 2", "not executed: nobody serves", "not executed: nobody serves"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS19_ExhaustionFailsEverythingThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logbook()
		deaf := make(chan struct{})
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" { // read, and then nothing more is
				close(deaf)
				<-l.ctx.Done()
				return true, context.Cause(l.ctx)
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{Budget: tumbling(t, 1), WaitForReady: true, Logger: logger})
		p.kill()
		pass(100 * time.Millisecond)
		written := start(func() string { return tool(t.Context(), c) })
		<-deaf
		unsent := start(func() string { return tool(t.Context(), c) })
		synctest.Wait()
		p.kill()
		const exhausted = "exhausted after 1 restarts"
		if got := <-written; got != "outcome unknown: "+exhausted {
			t.Errorf("the call that was written: %s", got)
		}
		if got := <-unsent; got != "not executed: "+exhausted {
			t.Errorf("the call that was not: %s", got)
		}
		<-c.Done()
		if got := tool(t.Context(), c); got != "not executed: "+exhausted {
			t.Errorf("a call that comes later: %s", got)
		}
		want := &client.ExhaustedError{Restarts: 1, Last: errKilled}
		if diff := cmp.Diff(error(want), c.Err(), sameError); diff != "" {
			t.Error(diff)
		}
		if got := p.spawned(); got != 2 {
			t.Errorf("%d incarnations", got)
		}
		last := `level=ERROR msg="the server went away and is not started again" peer=scripted gen=2 cause="killed by the test" uptime=0s restarts=1 budget="2nd death within 1m0s, 1 restart used"` + "\n"
		if got := log.String(); got[len(got)-len(last):] != last {
			t.Errorf("the log ends with %s", got)
		}
	})
}

func TestS19_AParkedCallFailsWithTheLastReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if l.gen > 1 {
				return true, errBadStart
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{Budget: tumbling(t, 2), WaitForReady: true})
		p.kill()
		synctest.Wait()
		if got, want := tool(t.Context(), c), "not executed: exhausted after 2 restarts"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := p.spawned(); got != 3 {
			t.Errorf("%d incarnations", got)
		}
	})
}
