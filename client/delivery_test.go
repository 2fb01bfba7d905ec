package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

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
