package client_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

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

// Over HTTP the two requests are exchanges of their own, which a server takes in any
// order.
func TestS43_TheEndOfASubscriptionDoesNotTakeTheNextOneAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, capabilities: `{"resources":{"subscribe":true}}`}
		c := dial(t, w, client.Config{})
		var subscribed atomic.Bool
		w.becomes(anyOf(
			only("resources/subscribe", func(x *exchange) { subscribed.Store(true); x.result(`{}`) }),
			only("resources/unsubscribe", func(x *exchange) {
				time.AfterFunc(20*time.Millisecond, func() { subscribed.Store(false); x.result(`{}`) })
			}),
		))
		var last *client.Subscription
		for range 2 {
			if last != nil {
				last.Close()
			}
			var err error
			if last, err = c.Listen(t.Context(), client.Filter{URIs: []string{"a"}}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := last.Acknowledged(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if !subscribed.Load() {
			t.Error("the second is acknowledged, and the server does not know it")
		}
	})
}
