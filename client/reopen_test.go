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
	"github.com/respawn-mcp/respawn/policy"
)

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

// A server that was away answers late, as one that is told of a cancellation may:
// that is no answer to the request that took the place of the first.
func TestS42_ALateAnswerToAnOpeningThatWasGivenUpEndsNoOther(t *testing.T) {
	for _, answer := range []func(l *life, m message){
		func(l *life, m message) { l.result(m, `{}`) },
		func(l *life, m message) { l.fail(m, 0, "context canceled") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked []message
			p := &peer{on: on("subscriptions/listen", func(l *life, m message) error {
				if asked = append(asked, m); len(asked) == 2 {
					l.ack(m, `{"toolsListChanged":true}`)
				}
				return nil
			})}
			d := &diary{}
			c := connect(t, p, client.Config{RequestTimeout: time.Second})
			s := listen(t, c, client.Filter{Tools: true}, d)
			pass(time.Minute)
			if len(asked) != 2 || string(asked[0].ID) == string(asked[1].ID) {
				t.Fatalf("asked by %v", asked)
			}
			answer(p.last(), asked[0])
			synctest.Wait()
			if got := ended(t, s); got != "goes on" {
				t.Errorf("the subscription %s", got)
			}
			p.last().Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, asked[1].ID))
			synctest.Wait()
			if got := d.read(); len(got) != 1 {
				t.Errorf("it heard %v", got)
			}
		})
	}
}

// A request of which the server had nothing was not asked: the next one is the first,
// and has the handle's id.
func TestS41_AnOpeningThatWasNeverWrittenLeavesTheHandleItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		p := &peer{on: func(l *life, m message) (handled bool, die error) {
			switch m.Method {
			case "acme/nap": // meanwhile the server reads nothing
				time.Sleep(1500 * time.Millisecond)
			case "subscriptions/listen":
				asked = append(asked, string(m.ID))
				l.ack(m, `{"toolsListChanged":true}`)
				return true, nil
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{RequestTimeout: time.Second})
		nap := start(func() string { return words(c.Call(t.Context(), "acme/nap", nil, nil)) })
		synctest.Wait()
		s := listen(t, c, client.Filter{Tools: true}, &diary{})
		pass(5 * time.Second)
		<-nap
		if diff := cmp.Diff([]string{s.ID()}, asked); diff != "" {
			t.Errorf("the ids that arrived (-want +got):\n%s", diff)
		}
	})
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
		for _, w := range []struct {
			gen int
			id  string
		}{{1, id}, {2, id}, {2, "4"}, {3, id}} { // on a live server the first may still be answered
			want = append(want, fmt.Sprintf("%d: %s %s", w.gen, w.id, everythingJSON))
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
