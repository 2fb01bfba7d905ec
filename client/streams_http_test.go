package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

const listenMethod = "subscriptions/listen"

func TestS41_OverHTTPEachOpeningIsARequestOfItsOwnBehindTheSameHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		var heard []string
		s, err := c.Listen(t.Context(), everything, func(n client.Notification) {
			heard = append(heard, n.Method+" "+string(n.Params))
		})
		if err != nil {
			t.Fatal(err)
		}
		id := s.ID()
		synctest.Wait()
		first := w.find(listenMethod)
		first.tell("notifications/tools/list_changed")
		first.cut("")
		pass(time.Second)
		second := w.find(listenMethod)
		if second.ID == first.ID || s.ID() != id {
			t.Errorf("the wire ids %s and %s, the handle %s and %s", first.ID, second.ID, id, s.ID())
		}
		if diff := cmp.Diff(first.params(), second.params()); diff != "" {
			t.Errorf("the filter and metadata: %s", diff)
		}
		second.tell("notifications/prompts/list_changed")
		synctest.Wait()
		tag := fmt.Sprintf(` {"_meta":{%q:%s}}`, subscriptionID, id)
		want := []string{"notifications/tools/list_changed" + tag, "notifications/prompts/list_changed" + tag}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("the handle's own id is in all that comes, and no second acknowledgement: %s", diff)
		}
	})
}

func TestS46_BothGracefulEndingsAreFinalOverHTTPToo(t *testing.T) {
	for name, end := range map[string]func(x *exchange){
		"a result":              func(x *exchange) { x.result(`{"resultType":"complete"}`) },
		"a result, then a cut":  func(x *exchange) { x.result(`{}`); x.cut("") },
		"cancelled":             func(x *exchange) { x.say("notifications/cancelled", `{"requestId":`+x.ID+`}`) },
		"cancelled, then a cut": func(x *exchange) { x.say("notifications/cancelled", `{"requestId":`+x.ID+`}`); x.cut("") },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			var heard diary
			s := listen(t, c, everything, &heard)
			end(w.find(listenMethod))
			if got := ended(t, s); got != "ended" {
				t.Error(got)
			}
			pass(time.Hour)
			if diff := cmp.Diff([]string{"subscriptions/listen()"}, w.took()); diff != "" {
				t.Error(diff)
			}
			if got := heard.read(); len(got) != 0 {
				t.Errorf("the callback heard %v", got)
			}
		})
	}
}

func TestS46_AnAbruptEndOpensAgainWithAFloorAndNoStorm(t *testing.T) {
	for name, tt := range map[string]struct {
		on    func(x *exchange)
		lives time.Duration
	}{
		"acknowledged and closed at once": {func(x *exchange) { x.acknowledge(); x.cut("") }, 0},
		"closed before that":              {func(x *exchange) { x.cut("") }, 0},
		"that asks for no delay": {func(x *exchange) {
			x.acknowledge()
			x.Emit(transports.Broken{Ref: x.Ref, Retry: time.Millisecond, Cause: errCut})
		}, 0},
		"news and closed":   {func(x *exchange) { x.acknowledge(); x.tell("notifications/tools/list_changed"); x.cut("") }, 0},
		"no connection":     {(*exchange).unsent, 0},
		"503":               {func(x *exchange) { x.reject(503, "") }, 0},
		"503 for no one":    {func(x *exchange) { x.reject(503, orphan) }, 0},
		"429 with an error": {func(x *exchange) { x.reject(429, x.error(-32000, "slow down", "")) }, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			var at []time.Duration
			began := time.Now()
			w := &web{}
			c := dial(t, w, client.Config{})
			w.becomes(only(listenMethod, func(x *exchange) {
				at = append(at, time.Since(began))
				tt.on(x)
			}))
			s := listen(t, c, client.Filter{Tools: true}, &diary{})
			pass(10 * time.Minute)
			early, grows := 0, true
			for i, d := range at {
				if d <= 2*time.Second {
					early++
				}
				if i > 1 && at[i]-at[i-1] < at[i-1]-at[i-2] {
					grows = false
				}
			}
			if early > 6 || !grows || len(at) > 30 {
				t.Errorf("it was opened at %v", at)
			}
			if got := ended(t, s); got != "goes on" {
				t.Error(got)
			}
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
		})
	}
}

func TestS46_AStreamThatLivedOpensAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		listen(t, c, client.Filter{Tools: true}, &diary{})
		for range 20 { // a proxy that cuts what is idle for a minute
			pass(time.Minute)
			w.find(listenMethod).cut("")
			pass(250 * time.Millisecond)
		}
		if n := w.count(listenMethod); n != 21 {
			t.Errorf("%d openings", n)
		}
	})
}

func TestS46_TheServersWishForTheDelayIsAFloor(t *testing.T) {
	for name, end := range map[string]func(x *exchange){
		"retry":       func(x *exchange) { x.Emit(transports.Broken{Ref: x.Ref, Retry: 7 * time.Second, Cause: errCut}) },
		"Retry-After": func(x *exchange) { x.reject(503, "", "Retry-After", "7") },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only(listenMethod, end)))
			listen(t, c, client.Filter{Tools: true}, &diary{})
			pass(7*time.Second - 1)
			if n := w.count(listenMethod); n != 1 {
				t.Errorf("%d openings before", n)
			}
			pass(1)
			if n := w.count(listenMethod); n != 2 {
				t.Errorf("%d openings", n)
			}
		})
	}
}

func TestS40_ARefusedStreamEndsByWhatTheServerSays(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(x *exchange)
		end    string
	}{
		"an error":                    {func(x *exchange) { x.fail(-32602, "no", "") }, "the peer says -32602"},
		"an error by 400":             {func(x *exchange) { x.reject(400, x.error(-32602, "no", "")) }, "the peer says -32602"},
		"method not found by 404":     {func(x *exchange) { x.reject(404, x.error(-32601, "no", "")) }, "the peer says -32601"},
		"405 without a word":          {func(x *exchange) { x.reject(405, "") }, "HTTP 405"},
		"another media type":          {func(x *exchange) { x.reject(200, "<html>") }, "HTTP 200"},
		"an error that names nothing": {func(x *exchange) { x.reject(400, orphan) }, "the peer says -32000"},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			w.becomes(only(listenMethod, tt.refuse))
			s := listen(t, c, client.Filter{Tools: true}, &diary{})
			if got := httpEnd(t, s); got != tt.end {
				t.Errorf("%s, want %s", got, tt.end)
			}
			pass(time.Hour)
			if n := w.count(listenMethod); n != 1 {
				t.Errorf("%d openings", n)
			}
		})
	}
}

// httpEnd is ended, with the status of a refusal.
func httpEnd(t *testing.T, s *client.Subscription) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	synctest.Wait()
	err := s.Wait(ctx)
	if rest := new(client.HTTPError); errors.As(err, &rest) {
		return fmt.Sprintf("HTTP %d", rest.Status)
	}
	return endWords(err)
}

// Once a stream has been acknowledged, only a word of the server ends it.
func TestS42_AStreamThatHadWorkedOutlivesWhatIsNoWordOfTheServer(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 405, 409, 502} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			var heard diary
			s := listen(t, c, client.Filter{Tools: true}, &heard)
			w.becomes(times(3, only(listenMethod, func(x *exchange) { x.reject(status, "<html>") })))
			w.find(listenMethod).cut("")
			pass(10 * time.Second)
			w.find(listenMethod).tell("notifications/tools/list_changed")
			if got := ended(t, s); got != "goes on" {
				t.Error(got)
			}
			if diff := cmp.Diff([]string{"1 tools/list_changed"}, heard.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestS44_OverHTTPToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		var general, one, two diary
		c := dial(t, w, client.Config{OnNotification: func(n client.Notification) { general.write("%s", strings.TrimPrefix(n.Method, "notifications/")) }})
		listen(t, c, client.Filter{Tools: true}, &one)
		first := w.find(listenMethod)
		listen(t, c, client.Filter{Prompts: true}, &two)
		second := w.find(listenMethod)
		first.tell("notifications/tools/list_changed")
		second.tell("notifications/prompts/list_changed")
		first.say("notifications/resources/list_changed", `{}`)                                                        // untagged
		first.say("notifications/resources/updated", fmt.Sprintf(`{"uri":"x","_meta":{%q:"nobody"}}`, subscriptionID)) // unknown
		first.say("notifications/tools/list_changed", fmt.Sprintf(`{"_meta":{%q:%s}}`, subscriptionID, second.ID))     // the other's
		first.say("notifications/prompts/list_changed", fmt.Sprintf(`{"_meta":{%q:"%s"}}`, subscriptionID, first.ID))  // spelled otherwise
		first.say("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{%q:"nobody"}}`, subscriptionID))
		synctest.Wait()
		for name, tt := range map[string]struct {
			d    *diary
			want []string
		}{
			"the first":           {&one, []string{"1 tools/list_changed", "1 prompts/list_changed"}},
			"the second":          {&two, []string{"1 prompts/list_changed", "1 tools/list_changed"}},
			"the general handler": {&general, []string{"resources/list_changed", "resources/updated", "subscriptions/acknowledged"}},
		} {
			if diff := cmp.Diff(tt.want, tt.d.read()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestS44_WhatComesOnAStreamMakesListingsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		var stale diary
		c := dial(t, w, client.Config{OnListChanged: func(k client.Kind) { stale.write("%s", k) }})
		listen(t, c, everything, &diary{})
		x := w.find(listenMethod)
		x.tell("notifications/tools/list_changed")
		x.tell("notifications/prompts/list_changed")
		synctest.Wait()
		if diff := cmp.Diff([]string{"tools", "prompts"}, stale.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB089_OverHTTPOnlyAnAbruptEndOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		var heard diary
		w.becomes(times(1, only(listenMethod, func(x *exchange) {
			x.tell("notifications/tools/list_changed") // before the acknowledgement
			x.acknowledge()
			x.tell("notifications/prompts/list_changed")
		})))
		s := listen(t, c, everything, &heard)
		w.find(listenMethod).cut("")
		pass(time.Second)
		if n := w.count(listenMethod); n != 2 || ended(t, s) != "goes on" {
			t.Errorf("%d openings", n)
		}
		if diff := cmp.Diff([]string{"1 prompts/list_changed"}, heard.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB088_OverHTTPTheFilterAskedForIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		s := listen(t, c, client.Filter{Tools: true, URIs: []string{"a", "b"}}, &diary{})
		n := 0
		w.becomes(only(listenMethod, func(x *exchange) {
			switch n++; n {
			case 1:
				x.reject(503, "")
			default:
				x.say("notifications/subscriptions/acknowledged",
					fmt.Sprintf(`{"_meta":{%q:%s},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}}`, subscriptionID, x.ID))
			}
		}))
		first := w.find(listenMethod)
		first.cut("")
		pass(time.Second)
		if got, err := s.Acknowledged(t.Context()); err != nil || len(got.URIs) != 1 {
			t.Errorf("what the server agreed to last: %+v, %v", got, err)
		}
		w.find(listenMethod).cut("")
		pass(time.Second)
		if diff := cmp.Diff(first.params(), w.find(listenMethod).params()); diff != "" || n != 3 {
			t.Errorf("%d openings: %s", n, diff)
		}
	})
}

func TestS43_OverHTTPEachEndOfTheClientIsTheEndOfItsStreams(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, forgotten := range []bool{false, true} {
			bubble(t, fmt.Sprintf("legacy %t forgotten %t", legacy, forgotten), func(t *testing.T) {
				w := &web{legacy: legacy, open: true, capabilities: `{"resources":{"subscribe":true}}`}
				c := dial(t, w, client.Config{})
				s := listen(t, c, everything, &diary{})
				if forgotten {
					w.becomes(only("initialize", func(*exchange) {}))
					w.forget()
					go func() { _ = c.Call(context.Background(), "ping", nil, nil) }()
					synctest.Wait()
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if got := ended(t, s); got != "closed" {
					t.Error(got)
				}
				w.took()
				pass(time.Hour)
				if took := w.took(); len(took) != 0 {
					t.Errorf("after Close: %v", took)
				}
			})
		}
	}
}

func TestS43_AStreamThatItsCallerClosesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		noted := &cancels{}
		f := w.factory()
		fresh := f.New
		f.New = func() transports.Transport { return noted.of(fresh()) }
		c := connectTo(t, f, client.Config{})
		s := listen(t, c, everything, &diary{})
		w.took()
		s.Close()
		if got := ended(t, s); got != "ended" {
			t.Error(got)
		}
		pass(time.Hour)
		if took := w.took(); len(took) != 0 {
			t.Errorf("closing the stream is what tells the server (2026-07-28, Cancellation): %v", took)
		}
		if x := w.find(listenMethod); len(noted.refs) != 1 || noted.refs[0] != x.Ref {
			t.Errorf("attempts %v were cancelled, not %d", noted.refs, x.Ref)
		}
	})
}

func TestS45_ADeliveryBeyondTheCapEndsItsStreamOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		release := make(chan struct{})
		s, err := c.Listen(t.Context(), everything, func(client.Notification) { <-release })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 1026 { // one runs, 1,024 wait
			w.find(listenMethod).tell("notifications/tools/list_changed")
		}
		close(release)
		if got := ended(t, s); got != "shed" {
			t.Error(got)
		}
		pass(time.Hour)
		if diff := cmp.Diff([]string{"subscriptions/listen()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

// In the legacy era a stream is a resources/subscribe, which meets a forgotten
// session like any other request.
func TestS42_ALegacyStreamOutlivesItsSession(t *testing.T) {
	for name, forgotten := range map[string]func(x *exchange){
		"404": func(x *exchange) { x.reject(404, "") },
		"400": func(x *exchange) { x.reject(400, orphan) },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{legacy: true, open: true, capabilities: `{"resources":{"subscribe":true}}`}
			c := dial(t, w, client.Config{})
			w.becomes(func(x *exchange) bool {
				if x.Op != transports.OpMessage || x.session != "S1" {
					return false
				}
				forgotten(x)
				return true
			})
			w.forget()
			var heard diary
			s := listen(t, c, client.Filter{URIs: []string{"a"}}, &heard)
			pass(time.Second)
			w.stream().say("notifications/resources/updated", `{"uri":"a"}`)
			if got := ended(t, s); got != "goes on" {
				t.Error(got)
			}
			if diff := cmp.Diff([]string{"2 resources/updated"}, heard.read()); diff != "" {
				t.Error(diff)
			}
			want := []string{"resources/subscribe(S1)", "initialize()", "notifications/initialized(S2)", "GET(S2)", "resources/subscribe(S2)"}
			if name == "400" {
				want = append([]string{want[0], "ping(S1)"}, want[1:]...)
			}
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whoever listens waits for the server: a session that only listens comes back
// without any call.
func TestS42_AnOpenStreamIsAUseOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true, capabilities: `{"resources":{"subscribe":true}}`}
		var heard, lives diary
		c := dial(t, w, lives.of(client.Config{}))
		listen(t, c, client.Filter{URIs: []string{"a"}}, &heard)
		w.forget()
		w.stream().cut("")
		pass(time.Second)
		w.stream().say("notifications/resources/updated", `{"uri":"a"}`)
		synctest.Wait()
		if diff := cmp.Diff([]string{"2 resources/updated"}, heard.read()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"1 ended: HTTP", "2 serves"}, short(lives.read())); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS42_AListenDuringARecoveryWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true, capabilities: `{"resources":{"subscribe":true}}`}
		c := dial(t, w, client.Config{})
		release := slowRecovery(w)
		w.forget()
		fates := asks(t.Context(), c, 1, "ping")
		synctest.Wait()
		var heard diary
		s := listen(t, c, client.Filter{URIs: []string{"a"}}, &heard)
		release((*exchange).initialize)
		fates()
		if _, err := s.Acknowledged(t.Context()); err != nil {
			t.Error(err)
		}
		if n := w.count("resources/subscribe"); n != 1 {
			t.Errorf("%d subscribes", n)
		}
	})
	synctest.Test(t, func(t *testing.T) { // and where the server is away until somebody needs it, it is a use
		w := &web{legacy: true, open: true, capabilities: `{"resources":{"subscribe":true}}`}
		c := dial(t, w, client.Config{})
		w.becomes(only("tools/call", func(x *exchange) { x.reject(404, "") }))
		ask(t.Context(), c, "tools/call") // refused twice: nobody waits any more
		pass(time.Minute)
		s := listen(t, c, client.Filter{URIs: []string{"a"}}, &diary{})
		if _, err := s.Acknowledged(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestS47_AfterARecoveryOverHTTPTheServerIsTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, capabilities: `{"tools":{}}`}
		var reconnects []client.Reconnect
		var stale diary
		c := dial(t, w, client.Config{
			OnReconnect:   func(r client.Reconnect) { reconnects = append(reconnects, r) },
			OnListChanged: func(k client.Kind) { stale.write("%s", k) },
		})
		w.become(func(w *web) { w.capabilities, w.knows = `{"prompts":{}}`, nil })
		ask(t.Context(), c, "ping")
		synctest.Wait()
		if s := c.Server(); s.Capabilities.Prompts == nil || s.Capabilities.Tools != nil {
			t.Errorf("the server is %+v", s)
		}
		if len(reconnects) != 1 || reconnects[0].Generation != 2 || fmt.Sprint(reconnects[0].Changed) != "[capabilities]" || !is[client.HTTPError](reconnects[0].Cause) {
			t.Errorf("the reconnects: %+v", reconnects)
		}
		if diff := cmp.Diff([]string{"tools", "prompts", "resources"}, stale.read()); diff != "" {
			t.Errorf("each kind once: %s", diff)
		}
	})
}
