package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

// everything asks for all that there is, of two resources.
var everything = client.Filter{Tools: true, Prompts: true, Resources: true, URIs: []string{"a", "b"}}

// listen subscribes and writes each notification down.
func listen(t *testing.T, c *client.Client, f client.Filter, d *diary) *client.Subscription {
	t.Helper()
	s, err := c.Listen(t.Context(), f, func(n client.Notification) {
		d.write("%d %s", n.Generation, strings.TrimPrefix(n.Method, "notifications/"))
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return s
}

// ended says in words how a subscription ended, or that it has not.
func ended(t *testing.T, s *client.Subscription) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Wait()
	switch err := s.Wait(ctx); {
	case errors.Is(err, context.Canceled):
		return "goes on"
	default:
		return endWords(err)
	}
}

func endWords(err error) string {
	exhausted, peer := new(client.ExhaustedError), new(client.PeerError)
	switch {
	case err == nil:
		return "ended"
	case errors.Is(err, client.ErrClosed):
		return "closed"
	case errors.Is(err, client.ErrShed):
		return "shed"
	case errors.As(err, &exhausted):
		return fmt.Sprintf("exhausted after %d restarts", exhausted.Restarts)
	case errors.As(err, &peer):
		return fmt.Sprintf("the peer says %d", peer.Code)
	}
	return err.Error()
}

// asked lists which generation was asked to listen, under which id, for what.
func asked(t *testing.T, p *peer) (of []string) {
	t.Helper()
	for _, m := range p.got("subscriptions/listen") {
		var params struct{ Notifications json.RawMessage }
		if err := json.Unmarshal(m.Params, &params); err != nil {
			t.Error(err)
		}
		of = append(of, fmt.Sprintf("%d: %s %s", m.Gen, m.ID, params.Notifications))
	}
	return of
}

const everythingJSON = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a","b"]}`

func TestS40_AHandleNeverChangesItsID(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, capabilities: `{"tools":{"listChanged":true}}`}
			c := connect(t, p, client.Config{})
			s, other := listen(t, c, client.Filter{Tools: true}, &diary{}), listen(t, c, everything, &diary{})
			id := s.ID()
			if id == "" || id == other.ID() {
				t.Errorf("the ids of two handles are %q and %q", id, other.ID())
			}
			for range 3 {
				p.kill()
				pass(defaultDelay)
				if got := s.ID(); got != id {
					t.Errorf("the id was %s and is %s", id, got)
				}
			}
			if got := ended(t, s); got != "goes on" {
				t.Errorf("the subscription %s", got)
			}
		})
	}
}

func TestS40_ARefusalIsThePeersErrorAndIsNotReplayed(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method == "subscriptions/listen" || m.Method == "resources/subscribe" {
					l.fail(m, -32602, "no such resource")
					return true, nil
				}
				return false, nil
			}}
			c := connect(t, p, client.Config{})
			s := listen(t, c, client.Filter{URIs: []string{"a"}}, &diary{})
			if got := ended(t, s); got != "the peer says -32602" {
				t.Errorf("Wait: %s", got)
			}
			if _, err := s.Acknowledged(t.Context()); endWords(err) != "the peer says -32602" {
				t.Errorf("Acknowledged: %v", err)
			}
			p.kill()
			pass(time.Minute)
			if n := len(p.got("subscriptions/listen")) + len(p.got("resources/subscribe")); n != 1 {
				t.Errorf("it was asked for %d times", n)
			}
		})
	}
}

func TestListen_NeedsNoCallbackAndKeepsItsOwnFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{})
		uris := []string{"a"}
		s, err := c.Listen(t.Context(), client.Filter{URIs: uris}, nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.last().tell(p.got("subscriptions/listen")[0], "notifications/resources/updated")
		uris[0] = "x"
		granted, err := s.Acknowledged(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted.URIs[0] = "y"
		p.kill()
		pass(defaultDelay)
		if diff := cmp.Diff([]string{`1: 2 {"resourceSubscriptions":["a"]}`, `2: 2 {"resourceSubscriptions":["a"]}`}, asked(t, p)); diff != "" {
			t.Error(diff)
		}
		if n := c.Stats().CallbackPanics; n != 0 {
			t.Errorf("%d panics", n)
		}
	})
}
