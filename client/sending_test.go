package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// slowSend is a transport whose Send of a method takes until it is let go: before
// or after the frame is handed over.
type slowSend struct {
	transports.Transport
	method string
	before bool
	letGo  chan struct{}
}

func (t *slowSend) Send(out transports.Outbound) error {
	if out.Method == t.method && t.before {
		<-t.letGo
	}
	err := t.Transport.Send(out)
	if out.Method == t.method && !t.before {
		<-t.letGo
	}
	return err
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
					f := p.factory()
					inner, letGo := f.New, make(chan struct{})
					f.New = func() transports.Transport {
						return &slowSend{Transport: inner(), method: method, before: tt.before, letGo: letGo}
					}
					c := connectTo(t, f, tt.cfg)
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
				f := p.factory()
				inner, letGo := f.New, make(chan struct{})
				f.New = func() transports.Transport {
					return &slowSend{Transport: inner(), method: "tools/call", before: tt.before, letGo: letGo}
				}
				c := connectTo(t, f, tt.cfg)
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
