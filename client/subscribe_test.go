package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
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

func TestS41_AStreamIsOpenedAgainUnderItsIDWithItsFilterAndFreshMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		c := connect(t, p, client.Config{OnNotification: func(n client.Notification) { d.write("general: %s", n.Method) }})
		s := listen(t, c, everything, d)
		if _, err := s.Acknowledged(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.SetLogLevel(t.Context(), "error"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.last().tell(p.got("subscriptions/listen")[p.spawned()-1], "notifications/tools/list_changed")
			synctest.Wait()
			p.kill()
			pass(defaultDelay)
		}
		p.last().tell(p.got("subscriptions/listen")[2], "notifications/tools/list_changed")
		synctest.Wait()
		id := s.ID()
		want := []string{"1: " + id + " " + everythingJSON, "2: " + id + " " + everythingJSON, "3: " + id + " " + everythingJSON}
		if diff := cmp.Diff(want, asked(t, p)); diff != "" {
			t.Errorf("asked for: %s", diff)
		}
		if diff := cmp.Diff([]string{"1 tools/list_changed", "2 tools/list_changed", "3 tools/list_changed"}, d.read()); diff != "" {
			t.Errorf("told: %s", diff)
		}
		for i, m := range p.got("subscriptions/listen") {
			if fresh := strings.Contains(string(m.Params), `"io.modelcontextprotocol/logLevel":"error"`); fresh != (i > 0) {
				t.Errorf("the metadata to generation %d is %s", i+1, m.Params)
			}
		}
		if got, err := s.Acknowledged(t.Context()); err != nil || !cmp.Equal(got, everything) {
			t.Errorf("acknowledged are %v, %v", got, err)
		}
	})
}

func TestS42_AnOpeningThatFailsOnALiveServerIsTriedAgainWithBackoff(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			var hears atomic.Bool
			var asked []string
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method != "subscriptions/listen" && m.Method != "resources/subscribe" {
					return false, nil
				}
				asked = append(asked, fmt.Sprintf("%d after %s", l.gen, time.Since(begun)))
				return !hears.Load() && l.gen == 2, nil
			}}
			c := connect(t, p, client.Config{RequestTimeout: time.Second})
			s := listen(t, c, client.Filter{URIs: []string{"a"}}, &diary{})
			p.kill()
			pass(defaultDelay + 6*time.Second)
			hears.Store(true)
			pass(time.Minute)
			want := []string{"1 after 0s", "2 after 100ms", "2 after 1.35s", "2 after 2.85s", "2 after 4.85s", "2 after 7.85s"}
			if legacy { // the replay asks first, on its own
				want = []string{"1 after 0s", "2 after 100ms", "2 after 5.1s", "2 after 6.35s"}
			}
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("legacy %t: %s", legacy, diff)
			}
			if got := ended(t, s); got != "goes on" {
				t.Errorf("the subscription %s", got)
			}
			if got := p.spawned(); got != 2 {
				t.Errorf("%d servers were started", got)
			}
		})
	}
}

// The server is known to be dying, or dies, while it is asked.
func TestS42_ADeathDuringTheOpeningDoesNotEndAStream(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, uris := range []int{1, 2, 3} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
					if l.gen < 3 && (m.Method == "subscriptions/listen" || m.Method == "resources/subscribe" && string(m.Params) == `{"uri":"a"}`) {
						return true, errKilled
					}
					return false, nil
				}}
				c := connect(t, p, client.Config{})
				filter := client.Filter{URIs: []string{"a", "b", "c"}[:uris]}
				s := listen(t, c, filter, &diary{})
				if got := ended(t, s); got != "goes on" {
					t.Fatalf("at the first death it %s", got)
				}
				pass(time.Second)
				got, err := s.Acknowledged(t.Context())
				if diff := cmp.Diff(filter, got); err != nil || diff != "" {
					t.Errorf("legacy %t: it is %s: %v %s", legacy, ended(t, s), err, diff)
				}
			})
		}
	}
}

func TestS43_EachEndOfTheClientIsTheEndOfItsStreams(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, c *client.Client, p *peer)
		want string
	}{
		{"exhaustion", func(_ *testing.T, _ *client.Client, p *peer) {
			p.kill()
			pass(defaultDelay)
			p.kill()
			synctest.Wait()
		}, "exhausted after 1 restarts"},
		{"Close", func(t *testing.T, c *client.Client, _ *peer) {
			begun := time.Now()
			if err := c.Close(t.Context()); err != nil || time.Since(begun) > 0 {
				t.Errorf("Close waited %s for streams: %v", time.Since(begun), err)
			}
		}, "closed"},
		{"Close while a replacement is promised", func(t *testing.T, c *client.Client, p *peer) {
			p.kill()
			synctest.Wait()
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, "closed"},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{legacy: legacy, on: func(_ *life, m message) (bool, error) {
						return m.Method == "subscriptions/listen" && strings.Contains(string(m.Params), "unanswered"), nil
					}}
					c := connect(t, p, client.Config{Budget: tumbling(t, 1)})
					open := listen(t, c, client.Filter{Tools: true}, &diary{})
					opening := listen(t, c, client.Filter{URIs: []string{"unanswered"}}, &diary{})
					tt.end(t, c, p)
					synctest.Wait()
					for name, s := range map[string]*client.Subscription{"open": open, "opening": opening} {
						if got := ended(t, s); got != tt.want {
							t.Errorf("legacy %t: the %s one %s, want %s", legacy, name, got, tt.want)
						}
					}
					if !legacy {
						if _, err := opening.Acknowledged(t.Context()); endWords(err) != tt.want {
							t.Errorf("Acknowledged: %v", err)
						}
					}
					if _, err := c.Listen(t.Context(), client.Filter{Tools: true}, func(client.Notification) {}); endWords(err) != tt.want {
						t.Errorf("a new one: %v", err)
					}
				})
			})
		}
	}
}

func TestS43_AStreamThatItsCallerClosedIsNotRestored(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, when := range []string{"open", "while nobody serves", "before the answer"} {
			t.Run(when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var waiting []message
					p := &peer{legacy: legacy, on: func(_ *life, m message) (bool, error) {
						if when == "before the answer" && (m.Method == "subscriptions/listen" || m.Method == "resources/subscribe") {
							waiting = append(waiting, m)
							return true, nil
						}
						return false, nil
					}}
					c, d := connect(t, p, client.Config{}), &diary{}
					s := listen(t, c, client.Filter{Tools: true, URIs: []string{"a"}}, d)
					switch when {
					case "open":
						s.Close()
					case "while nobody serves":
						p.kill()
						synctest.Wait()
						s.Close()
					case "before the answer":
						s.Close()
						synctest.Wait()
						for _, m := range waiting {
							p.last().answer(m)
						}
					}
					synctest.Wait()
					if got := ended(t, s); got != "ended" {
						t.Errorf("it %s", got)
					}
					if _, err := s.Acknowledged(t.Context()); (err == nil) != (when != "before the answer") {
						t.Errorf("Acknowledged: %v", err)
					}
					if when != "while nobody serves" { // the server is told
						told := len(p.got("notifications/cancelled"))
						if legacy {
							told = len(p.got("resources/unsubscribe"))
						}
						if told != 1 {
							t.Errorf("legacy %t: the server got %v", legacy, p.received())
						}
						p.kill()
					}
					pass(time.Second)
					p.last().say("notifications/resources/updated", `{"uri":"a"}`)
					synctest.Wait()
					for _, m := range append(p.got("subscriptions/listen"), p.got("resources/subscribe")...) {
						if m.Gen != 1 {
							t.Errorf("legacy %t: the replacement was asked for it again: %s %s", legacy, m.Method, m.Params)
						}
					}
					if got := d.read(); len(got) != 0 {
						t.Errorf("a closed stream heard %v", got)
					}
				})
			})
		}
	}
}

// In the legacy era a server knows one subscription to a resource, whoever wants it.
func TestS43_AResourceIsGivenUpWithTheLastWhoWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true}
		c := connect(t, p, client.Config{})
		one := listen(t, c, client.Filter{URIs: []string{"a", "b"}}, &diary{})
		two := listen(t, c, client.Filter{URIs: []string{"b", "c"}}, &diary{})
		subscribe(t, c, "subscribe", "c") // its owner's own
		one.Close()
		synctest.Wait()
		two.Close()
		synctest.Wait()
		want := []string{
			"initialize", "notifications/initialized",
			`resources/subscribe {"uri":"a"}`, `resources/subscribe {"uri":"b"}`,
			`resources/subscribe {"uri":"c"}`, `resources/subscribe {"uri":"c"}`,
			`resources/unsubscribe {"uri":"a"}`, `resources/unsubscribe {"uri":"b"}`,
		}
		if diff := cmp.Diff(want, since(p, 1)[1:]); diff != "" {
			t.Error(diff)
		}
		p.kill()
		pass(defaultDelay)
		if diff := cmp.Diff([]string{"initialize", "notifications/initialized", `resources/subscribe {"uri":"c"}`}, since(p, 2)); diff != "" {
			t.Error(diff)
		}
	})
}

// A budget that starts a server only when somebody needs it.
func TestS42_AStreamIsSomebodyWhoNeedsAServer(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, d := &peer{}, &diary{}
			c := connect(t, p, client.Config{Budget: policy.Unlimited(), WaitForReady: true})
			if first {
				listen(t, c, client.Filter{Tools: true}, d)
			}
			p.kill()
			pass(time.Minute)
			if got := p.spawned(); (got == 2) != first {
				t.Errorf("after a minute %d servers were started", got)
			}
			if !first {
				listen(t, c, client.Filter{Tools: true}, d)
			}
			listens := p.got("subscriptions/listen")
			if len(listens) == 0 || listens[len(listens)-1].Gen != 2 {
				t.Fatalf("it was asked for by %v", listens)
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

func TestS44_ANotificationGoesToTheStreamItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{}, &diary{}
		c := connect(t, p, client.Config{OnNotification: func(n client.Notification) { d.write("general: %s", n.Method) }})
		named := func(name string) *client.Subscription {
			s, err := c.Listen(t.Context(), everything, func(n client.Notification) { d.write("%s: %s", name, n.Method) })
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return s
		}
		one, two := named("one"), named("two")
		for _, id := range []string{
			one.ID(), two.ID(), `"` + two.ID() + `"`, "99", `"x"`, "null", "1.5", "{}", "[1]",
		} {
			p.last().say("notifications/tools/list_changed", fmt.Sprintf(`{"_meta":{%q:%s}}`, subscriptionID, id))
			synctest.Wait()
			d.write("-")
		}
		p.last().say("notifications/tools/list_changed", `{}`)
		p.last().say("notifications/tools/list_changed", `null`)
		p.last().say("notifications/prompts/list_changed", `{"_meta":7}`)
		p.last().say("notifications/resources/updated", `{"uri":"a"}`)
		p.last().say("notifications/vendor", fmt.Sprintf(`{"_meta":{%q:%s}}`, subscriptionID, one.ID()))
		synctest.Wait()
		const tools = "notifications/tools/list_changed"
		want := []string{
			"one: " + tools, "-", "two: " + tools, "-", "two: " + tools, "-",
			"general: " + tools, "-", "general: " + tools, "-", "general: " + tools, "-",
			"general: " + tools, "-", "general: " + tools, "-", "general: " + tools, "-",
			"general: " + tools, "general: " + tools, "general: notifications/prompts/list_changed", "general: notifications/resources/updated",
			"one: notifications/vendor",
		}
		got := d.read()
		// The last ones come on goroutines of their own.
		if diff := cmp.Diff(want[:18], got[:min(18, len(got))]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS44_InTheLegacyEraEachHandleHearsWhatItAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{legacy: true, capabilities: `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`}, &diary{}
		c := connect(t, p, client.Config{OnNotification: func(n client.Notification) { d.write("general: %s", n.Method) }})
		for name, f := range map[string]client.Filter{
			"tools": {Tools: true}, "both": {Tools: true, Prompts: true}, "a": {URIs: []string{"a"}}, "all": everything,
		} {
			if _, err := c.Listen(t.Context(), f, func(n client.Notification) { d.write("%s: %s", name, n.Method) }); err != nil {
				t.Fatal(err)
			}
		}
		for gen := range 2 {
			synctest.Wait()
			d.lines = nil
			l := p.last()
			l.say("notifications/tools/list_changed", `{}`)
			l.say("notifications/prompts/list_changed", `{}`)
			l.say("notifications/resources/list_changed", `{}`)
			l.say("notifications/resources/updated", `{"uri":"a"}`)
			l.say("notifications/resources/updated", `{"uri":"b"}`)
			l.say("notifications/resources/updated", `{"uri":"c"}`)
			l.say("notifications/vendor", `{}`)
			synctest.Wait()
			want := []string{
				"general: notifications/tools/list_changed", "tools: notifications/tools/list_changed",
				"both: notifications/tools/list_changed", "all: notifications/tools/list_changed",
				"general: notifications/prompts/list_changed", "both: notifications/prompts/list_changed", "all: notifications/prompts/list_changed",
				"general: notifications/resources/list_changed", "all: notifications/resources/list_changed",
				"general: notifications/resources/updated", "a: notifications/resources/updated", "all: notifications/resources/updated",
				"general: notifications/resources/updated", "all: notifications/resources/updated",
				"general: notifications/resources/updated", "general: notifications/vendor",
			}
			if diff := cmp.Diff(sorted(want), sorted(d.read())); diff != "" {
				t.Errorf("generation %d: %s", gen+1, diff)
			}
			p.kill()
			pass(defaultDelay)
		}
	})
}

func TestS45_ADeliveryBeyondTheCapEndsItsStreamAlone(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, n := range []int{1024, 1025, 1100} {
			synctest.Test(t, func(t *testing.T) {
				p, d := &peer{legacy: legacy}, &diary{}
				c := connect(t, p, client.Config{})
				told, release := 0, make(chan struct{})
				slow, err := c.Listen(t.Context(), client.Filter{URIs: []string{"a"}}, func(client.Notification) { told++; <-release })
				if err != nil {
					t.Fatal(err)
				}
				other := listen(t, c, everything, d)
				say := func() {
					if legacy {
						p.last().say("notifications/resources/updated", `{"uri":"a"}`)
					} else {
						p.last().tell(p.got("subscriptions/listen")[0], "notifications/resources/updated")
						p.last().tell(p.got("subscriptions/listen")[1], "notifications/resources/updated")
					}
				}
				say()
				synctest.Wait() // one is being told, the rest waits
				for i := range n {
					say()
					if i%500 == 0 {
						synctest.Wait() // the other keeps up
					}
				}
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Errorf("the connection is stalled: %s", got)
				}
				synctest.Wait()
				close(release)
				synctest.Wait()
				want, wantTold, wantEnd := "goes on", n+1, 0
				if n > 1024 {
					want, wantTold, wantEnd = "shed", 1, 1
				}
				if got := ended(t, slow); got != want || told != wantTold {
					t.Errorf("%d waiting: the slow one %s after %d callbacks; want %s after %d", n, got, told, want, wantTold)
				}
				if got := ended(t, other); got != "goes on" || len(d.read()) != n+1 {
					t.Errorf("the other %s after %d callbacks", got, len(d.read()))
				}
				told1 := len(p.got("notifications/cancelled"))
				if legacy { // the other one wants the resource, too
					told1 = wantEnd
				}
				if told1 != wantEnd {
					t.Errorf("the server was told %d times", told1)
				}
				p.kill()
				pass(defaultDelay)
				again := 0
				for _, m := range p.got("subscriptions/listen") {
					if m.Gen == 2 && string(m.ID) == slow.ID() {
						again++
					}
				}
				if !legacy && again != 1-wantEnd {
					t.Errorf("it was opened %d times on the replacement", again)
				}
			})
		}
	}
}

func TestS46_BothGracefulEndingsAreFinalAndAskNoAnswer(t *testing.T) {
	for _, how := range []string{"result", "cancelled"} {
		for _, acked := range []bool{true, false} {
			t.Run(fmt.Sprint(how, acked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{on: func(_ *life, m message) (bool, error) { return m.Method == "subscriptions/listen" && !acked, nil }}
					c, d := connect(t, p, client.Config{}), &diary{}
					s := listen(t, c, client.Filter{Tools: true}, d)
					request := p.got("subscriptions/listen")[0]
					if acked {
						p.last().tell(request, "notifications/tools/list_changed")
					}
					if how == "result" {
						p.last().result(request, `{"resultType":"complete"}`)
					} else {
						p.last().say("notifications/cancelled", fmt.Sprintf(`{"requestId":%s}`, request.ID))
					}
					if got := ended(t, s); got != "ended" {
						t.Errorf("it %s", got)
					}
					if _, err := s.Acknowledged(t.Context()); (err == nil) != acked {
						t.Errorf("Acknowledged: %v", err)
					}
					if n := len(p.got("notifications/cancelled")); n != 0 {
						t.Error("the server was told to cancel what it had ended")
					}
					p.last().tell(request, "notifications/tools/list_changed")
					p.kill()
					pass(time.Minute)
					if n := len(p.got("subscriptions/listen")); n != 1 {
						t.Errorf("it was opened %d times", n)
					}
					if want := len(d.read()); want > 1 {
						t.Errorf("it heard %v", d.read())
					}
				})
			})
		}
	}
}

func TestT9_CallbacksMayCloseAnyStreamAtAnyTime(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, end := range []string{"notification", "death", "exhaustion", "close"} {
			t.Run(end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 20
					p := &peer{legacy: legacy}
					var streams [n]*client.Subscription
					closeAll := func() {
						for i := range streams {
							if i%3 != 0 {
								streams[n-1-i].Close()
							}
						}
					}
					c := connect(t, p, client.Config{
						Budget: tumbling(t, 2),
						OnEnd:  func(client.Ended) { closeAll() },
					})
					for i := range streams {
						s, err := c.Listen(t.Context(), everything, func(client.Notification) { closeAll() })
						if err != nil {
							t.Fatal(err)
						}
						streams[i] = s
					}
					synctest.Wait()
					rest := "goes on"
					switch end {
					case "notification":
						p.last().say("notifications/tools/list_changed", `{}`)
						for _, m := range p.got("subscriptions/listen") {
							p.last().tell(m, "notifications/tools/list_changed")
						}
					case "death":
						p.kill()
						pass(defaultDelay)
					case "exhaustion":
						for range 3 {
							p.kill()
							pass(defaultDelay)
						}
						rest = "exhausted after 2 restarts"
					case "close":
						if err := c.Close(t.Context()); err != nil {
							t.Error(err)
						}
						rest = "closed"
					}
					synctest.Wait()
					for i, s := range streams {
						want := "ended"
						if (n-1-i)%3 == 0 || end == "close" {
							want = rest
						}
						if got := ended(t, s); got != want {
							t.Errorf("stream %d %s, want %s", i, got, want)
						}
					}
				})
			})
		}
	}
}

func TestB088_TheFilterAskedForIsNotTheOneThatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var at []time.Duration
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method == "subscriptions/listen" {
				switch at = append(at, time.Since(begun)); len(at) {
				case 2: // the first re-listen is never acknowledged
					return true, nil
				case 3:
					l.ack(m, `{"toolsListChanged":true,"resourceSubscriptions":["a"]}`)
					return true, nil
				}
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{RequestTimeout: time.Second})
		s := listen(t, c, everything, &diary{})
		granted := func() (f client.Filter) {
			f, err := s.Acknowledged(t.Context())
			if err != nil {
				t.Error(err)
			}
			return f
		}
		if diff := cmp.Diff(everything, granted()); diff != "" {
			t.Errorf("the first grants: %s", diff)
		}
		p.kill()
		pass(2 * time.Second)
		if diff := cmp.Diff([]time.Duration{0, defaultDelay, defaultDelay + 1250*time.Millisecond}, at); diff != "" {
			t.Errorf("asked: %s", diff)
		}
		if diff := cmp.Diff(client.Filter{Tools: true, URIs: []string{"a"}}, granted()); diff != "" {
			t.Errorf("the second grants: %s", diff)
		}
		p.kill()
		pass(2 * time.Second)
		id := s.ID()
		var want []string
		for _, gen := range []int{1, 2, 2, 3} {
			want = append(want, fmt.Sprintf("%d: %s %s", gen, id, everythingJSON))
		}
		if diff := cmp.Diff(want, asked(t, p)); diff != "" {
			t.Errorf("asked for: %s", diff)
		}
	})
}

func TestB089_OnlyAnAbruptEndOpensAStreamAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(l *life, m message) error
		heard []string
		want  string
		opens int
	}{
		{"a result", func(l *life, m message) error {
			l.ack(m, `{}`)
			l.result(m, `{}`)
			return nil
		}, nil, "ended", 1},
		{"cancelled, then the end", func(l *life, m message) error {
			l.ack(m, `{}`)
			l.say("notifications/cancelled", fmt.Sprintf(`{"requestId":%s}`, m.ID))
			return errKilled
		}, nil, "ended", 1},
		{"the end alone", func(l *life, m message) error {
			l.ack(m, `{}`)
			return errKilled
		}, nil, "goes on", 2},
		{"an error", func(l *life, m message) error {
			l.fail(m, -32602, "no")
			return nil
		}, nil, "the peer says -32602", 1},
		{"a notification before the acknowledgement", func(l *life, m message) error {
			l.tell(m, "notifications/tools/list_changed")
			l.ack(m, `{"toolsListChanged":true}`)
			l.tell(m, "notifications/prompts/list_changed")
			return nil
		}, []string{"1 prompts/list_changed"}, "goes on", 1},
		{"an acknowledgement of somebody else's", func(l *life, m message) error {
			l.say("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{%q:999},"notifications":{}}`, subscriptionID))
			l.tell(m, "notifications/tools/list_changed")
			return nil
		}, nil, "goes on", 1},
		{"two acknowledgements", func(l *life, m message) error {
			l.ack(m, `{"toolsListChanged":true}`)
			l.ack(m, `{}`)
			l.tell(m, "notifications/tools/list_changed")
			return nil
		}, []string{"1 tools/list_changed"}, "goes on", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "subscriptions/listen" && l.gen == 1 {
						return true, tt.do(l, m)
					}
					return false, nil
				}}
				c, d := connect(t, p, client.Config{}), &diary{}
				s := listen(t, c, client.Filter{Tools: true, Prompts: true}, d)
				id := s.ID()
				pass(time.Second)
				if got := ended(t, s); got != tt.want {
					t.Errorf("it %s, want %s", got, tt.want)
				}
				if n := len(p.got("subscriptions/listen")); n != tt.opens || s.ID() != id {
					t.Errorf("it was opened %d times, want %d; its id was %s and is %s", n, tt.opens, id, s.ID())
				}
				if diff := cmp.Diff(tt.heard, d.read()); diff != "" {
					t.Errorf("heard: %s", diff)
				}
			})
		})
	}
}
