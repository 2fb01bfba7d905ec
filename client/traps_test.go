package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

func TestT1_WhetherAReplacementComesIsDecidedBeforeTheListenerHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		var c *client.Client
		c = connect(t, p, client.Config{Budget: tumbling(t, 1), OnEnd: func(e client.Ended) {
			d.write("respawn %t: %s, reconnecting %t, a call is %s", e.Verdict.Respawn, c.State(), c.IsReconnecting(), tool(t.Context(), c))
		}})
		p.kill()
		pass(100 * time.Millisecond)
		p.kill()
		synctest.Wait()
		want := []string{
			"respawn true: dead-awaiting-respawn, reconnecting true, a call is not executed: nobody serves",
			"respawn false: exhausted, reconnecting false, a call is not executed: exhausted after 1 restarts",
		}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

// A lock held while a listener is told would stop it inside one of the methods it
// calls, and the bubble would report the deadlock.
func TestT6_AListenerMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" && bytes.Contains(m.Params, []byte("progressToken")) {
				l.progress(m, 1)
			}
			return slowStart(l, m)
		}}
		var connected atomic.Pointer[client.Client]
		every := func(who string) {
			c := connected.Load()
			if c == nil {
				return
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			c.WaitForStateChange(gone, c.State())
			_, _, _, _ = c.Stats(), c.Err(), c.Server(), c.IsReconnecting()
			_ = c.Notify(t.Context(), "notifications/x", nil)
			d.write("%s: %s", who, tool(t.Context(), c))
		}
		c := connect(t, p, client.Config{
			OnTransition:   func(tr fsm.Transition) { every(tr.To.String()) },
			OnEnd:          func(client.Ended) { every("OnEnd") },
			OnReconnect:    func(client.Reconnect) { every("OnReconnect") },
			OnListChanged:  func(k client.Kind) { every("OnListChanged") },
			OnNotification: func(client.Notification) { every("OnNotification") },
			OnLog:          func(*mcp.LoggingMessageParams) { every("OnLog") },
			Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				every("Elicit")
				return &mcp.ElicitResult{Action: "cancel"}, nil
			},
		})
		synctest.Wait()
		connected.Store(c)
		for _, say := range []string{
			`{"jsonrpc":"2.0","method":"notifications/x"}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}`,
		} {
			p.last().Write(0, say)
			synctest.Wait()
		}
		_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(client.Progress) { every("Progress") }})
		if err != nil {
			t.Error(err)
		}
		p.kill()
		pass(2 * time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		const down, closed = "not executed: nobody serves", "not executed: client: closed"
		want := []string{
			"OnNotification: generation 1", "OnLog: generation 1",
			"OnListChanged: generation 1", "OnNotification: generation 1", "Elicit: generation 1",
			"Progress: generation 1",
			"dead-awaiting-respawn: " + down, "OnEnd: " + down, "starting: " + down, "serving: generation 2",
			"OnListChanged: generation 2", "OnListChanged: generation 2", "OnListChanged: generation 2", "OnReconnect: generation 2",
			"closed: " + closed, "OnEnd: " + closed,
		}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestT15_NoLocalErrorLooksLikeThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true}
		c := connect(t, p, client.Config{Budget: tumbling(t, 1), WaitForReady: true})
		var errs []error
		call := func(ctx context.Context) {
			_, err := c.Do(ctx, client.Request{Method: "tools/call", RequestTimeout: time.Second})
			errs = append(errs, err)
		}
		p.becomes(on("tools/call", func(*life, message) error { return nil }))
		call(t.Context()) // times out
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		call(soon) // is given up
		p.becomes(on("tools/call", dies))
		call(t.Context()) // its server dies
		p.becomes(on("initialize", func(l *life, m message) error { l.fail(m, -32000, "no"); return nil }))
		call(t.Context()) // the replacement refuses the opening exchange
		<-c.Done()
		call(t.Context()) // nobody will come
		errs = append(errs, c.Err())
		for _, err := range errs {
			if peer := new(client.PeerError); err == nil || errors.As(err, &peer) {
				t.Errorf("it looks like the peer's own: %v", err)
			}
		}
		opening := new(client.OpeningError)
		if !errors.As(c.Err(), &opening) || fmt.Sprint(opening.Err) != "client: the server answered with an error: no (code -32000)" {
			t.Errorf("the cause of the end is lost: %v", c.Err())
		}
	})
}

func TestT15_WhatThePeerSaysIsAlwaysThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{})
		for code, text := range map[int]string{
			-32000: "client: closed", -32001: "request timed out", -32042: "client: no server is serving", 0: "", 1: "context canceled",
		} {
			p.becomes(on("tools/call", func(l *life, m message) error { l.fail(m, code, text); return nil }))
			err := c.Call(t.Context(), "tools/call", nil, nil)
			peer, lost := new(client.PeerError), new(client.LostError)
			if !errors.As(err, &peer) || errors.As(err, &lost) || errors.Is(err, client.ErrClosed) {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(&client.PeerError{Code: int64(code), Message: text}, peer); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// Reader, loop and server wait for each other in a circle if anything blocks the
// loop: the server emits while the loop sends again what was kept, and reads
// nothing before all of it was heard.
func TestT17_NothingBlocksTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		p := &peer{}
		var heard atomic.Int64
		answers := 0
		p.on = func(l *life, m message) (bool, error) {
			switch {
			case m.Method != "resources/read":
				return false, nil
			case l.gen == 1: // swallow all of them
				return true, nil
			}
			for range 20 { // much to hear before each answer, and a request that is answered past the queue
				l.Write(0, `{"jsonrpc":"2.0","method":"notifications/x"}`)
			}
			answers++
			l.result(m, `{}`)
			return true, nil
		}
		block := make(chan struct{})
		c := connect(t, p, client.Config{
			RetryLost: true, Budget: policy.Unlimited(),
			OnNotification: func(client.Notification) {
				if heard.Add(1) == 1 {
					<-block // a listener that takes its time holds up nobody but listeners
				}
			},
		})
		var said []<-chan string
		for range n {
			said = append(said, start(func() string { return words(c.Call(t.Context(), "resources/read", nil, nil)) }))
		}
		synctest.Wait()
		p.kill()
		for _, s := range said {
			if got := <-s; got != "ok" {
				t.Error(got)
			}
		}
		close(block)
		synctest.Wait()
		if answers != n || heard.Load() != 20*n {
			t.Errorf("%d answers and %d notifications", answers, heard.Load())
		}
	})
}
