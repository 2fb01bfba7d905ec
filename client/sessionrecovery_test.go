package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

func TestH5_TheOrderOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true, capabilities: `{"resources":{"subscribe":true}}`}
		c := dial(t, w, client.Config{})
		if err := c.SetLogLevel(t.Context(), "warning"); err != nil {
			t.Fatal(err)
		}
		subscribe(t, c, "subscribe", "a")
		listen(t, c, client.Filter{URIs: []string{"b"}}, &diary{})
		synctest.Wait()
		w.exchanges()
		w.forget()
		var told []float64
		params := json.RawMessage(`{"name":"pay","arguments":{"amount":9007199254740993}}`)
		w.becomes(func(x *exchange) bool {
			if x.Method == "tools/call" && x.session == "S2" {
				x.say("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1}`, tokenOf(x)))
			}
			return false
		})
		_, err := c.Do(t.Context(), client.Request{
			Method: "tools/call", Params: params, Header: http.Header{"X-Tenant": {"acme"}},
			Progress: func(p client.Progress) { told = append(told, p.Progress) },
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := []string{
			"tools/call(S1)",
			"initialize()", "notifications/initialized(S2)", "GET(S2)",
			"logging/setLevel(S2)", "resources/subscribe(S2)", "resources/subscribe(S2)",
			"tools/call(S2)",
		}
		all := w.exchanges()
		var got []string
		for _, x := range all {
			got = append(got, x.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		refused, again := all[0], all[7]
		if refused.ID == again.ID {
			t.Errorf("the request was sent again under the same id %s", again.ID)
		}
		for _, id := range []string{all[1].ID, all[4].ID, again.ID} {
			if n := slices.IndexFunc(w.seen, func(x *exchange) bool { return x.ID == id }); w.seen[n].Method == "tools/call" && w.seen[n] != again {
				t.Errorf("id %s was used before", id)
			}
		}
		if diff := cmp.Diff(refused.params(), again.params()); diff != "" {
			t.Errorf("params and token of the request: %s", diff)
		}
		if diff := cmp.Diff(refused.Header, again.Header); diff != "" {
			t.Errorf("headers of the request: %s", diff)
		}
		if got := again.Header.Get("X-Tenant") + " " + again.Header.Get("Mcp-Protocol-Version"); got != "acme 2025-11-25" {
			t.Errorf("headers of the request: %q", got)
		}
		if h := all[1].Header; len(h) != 0 {
			t.Errorf("initialize carries %v", h)
		}
		if get := all[3]; get.LastID != "" || get.Header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("the new GET: Last-Event-ID %q, %v", get.LastID, get.Header)
		}
		if diff := cmp.Diff([]float64{1}, told); diff != "" {
			t.Errorf("progress: %s", diff)
		}
	})
}

func tokenOf(x *exchange) string {
	var p struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal([]byte(x.params()), &p)
	return string(p.Meta.Token)
}

func TestH5_TheReplayAwaitsNoGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		silentGet := func(x *exchange) bool { return x.Op == transports.OpListen } // its headers never come
		w.becomes(silentGet)
		began := time.Now()
		c := dial(t, w, client.Config{})
		if d := time.Since(began); d != 500*time.Millisecond {
			t.Errorf("the first session awaited the headers of its GET for %s", d)
		}
		w.forget()
		began = time.Now()
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("a later one for %s", d)
		}
	})
}

// refuseTogether refuses n requests of a method at once, when all have arrived.
func refuseTogether(n int, method string) func(x *exchange) bool {
	var refused []*exchange
	return func(x *exchange) bool {
		if x.session != "S1" || x.Method != method {
			return false
		}
		if refused = append(refused, x); len(refused) == n {
			for _, x := range refused {
				x.reject(404, "")
			}
		}
		return true
	}
}

func TestH6_ManyRefusalsOneInitialize(t *testing.T) {
	for _, n := range []int{1, 3, 1000} {
		bubble(t, fmt.Sprint(n), func(t *testing.T) {
			w := &web{legacy: true}
			var met diary
			c := dial(t, w, met.of(client.Config{}))
			w.forget()
			w.becomes(refuseTogether(n, "tools/call"))
			if diff := cmp.Diff(same(n, "answered"), asks(t.Context(), c, n, "tools/call")()); diff != "" {
				t.Error(diff)
			}
			synctest.Wait()
			want := slices.Concat(same(n, "tools/call(S1)"), recovery(2), same(n, "tools/call(S2)"))
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"1 ended: HTTP", "2 serves"}, short(met.read())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// short cuts lines of a diary after the kind of a cause.
func short(lines []string) []string {
	for i, line := range lines {
		if at := slices.Index([]byte(line), ':'); at > 0 {
			lines[i] = line[:at] + ": HTTP"
		}
	}
	return lines
}

func TestH6_ALateRefusalOfTheOldSessionIsOnlySentAgain(t *testing.T) {
	for _, status := range []int{404, 400} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			var late *exchange
			w.becomes(func(x *exchange) bool {
				if x.session == "S1" && x.Method == "tools/call" {
					late = x
					return true
				}
				return false
			})
			fates := asks(t.Context(), c, 1, "tools/call")
			synctest.Wait()
			w.forget()
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Error(got)
			}
			pass(20 * time.Second)
			w.took()
			late.reject(status, orphan)
			if diff := cmp.Diff([]string{"answered"}, fates()); diff != "" {
				t.Error(diff)
			}
			synctest.Wait()
			if diff := cmp.Diff([]string{"tools/call(S2)"}, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH6_ARefusalDuringTheRecoveryWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		var initialize, late *exchange
		w.becomes(func(x *exchange) bool {
			switch {
			case x.Method == "initialize":
				initialize = x
			case x.Method == "tools/call" && x.session == "S1":
				late = x
			default:
				return false
			}
			return true
		})
		slow := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		w.forget()
		first := asks(t.Context(), c, 1, "resources/read")
		synctest.Wait()
		late.reject(404, "")
		pass(time.Second)
		if diff := cmp.Diff([]string{"tools/call(S1)", "resources/read(S1)", "initialize()"}, w.took()); diff != "" {
			t.Error(diff)
		}
		initialize.initialize()
		if diff := cmp.Diff([]string{"answered", "answered"}, append(slow(), first()...)); diff != "" {
			t.Error(diff)
		}
		if n := w.count("initialize"); n != 2 {
			t.Errorf("%d initializes", n)
		}
	})
}

func TestH7_ARefusedRequestOfAnyMethodIsSentAgainOnce(t *testing.T) {
	for _, method := range []string{
		"tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list",
		"resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete",
		"logging/setLevel", "ping", "acme/pay",
	} {
		bubble(t, method, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.forget()
			if got := ask(t.Context(), c, method); got != "answered" {
				t.Error(got)
			}
			synctest.Wait()
			if diff := cmp.Diff(slices.Concat([]string{method + "(S1)"}, recovery(2), []string{method + "(S2)"}), w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH7_ASecondRefusalSurfaces(t *testing.T) {
	for _, tt := range []struct {
		name, fate string
		refuse     func(x *exchange)
	}{
		{"without a body", "not executed: refused twice", func(x *exchange) { x.reject(404, "") }},
		{"by an error of the peer's", "the peer says -32001", func(x *exchange) { x.reject(404, x.error(-32001, "", "")) }},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(only("tools/call", tt.refuse))
			if got := ask(t.Context(), c, "tools/call"); got != tt.fate {
				t.Errorf("the call: %s, want %s", got, tt.fate)
			}
			pass(time.Hour)
			want := slices.Concat([]string{"tools/call(S1)"}, recovery(2), []string{"tools/call(S2)"})
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Errorf("no third, and no loop: %s", diff)
			}
			w.becomes(nil)
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Errorf("the next call: %s", got)
			}
			pass(time.Second)
			if diff := cmp.Diff(append(recovery(3), "tools/call(S3)"), w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH7_TheNextRecoveryIsUnderBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{Budget: unjittered()})
		w.becomes(only("tools/call", func(x *exchange) { x.reject(404, "") }))
		ask(t.Context(), c, "tools/call")
		began := time.Now()
		err := c.Call(t.Context(), "tools/list", nil, nil)
		down := new(client.NotServingError)
		if !errors.As(err, &down) || down.RetryAt.Sub(began) != 100*time.Millisecond {
			t.Fatalf("a call at once: %v, retry at %v", err, down.RetryAt)
		}
		pass(time.Until(down.RetryAt))
		if got := ask(t.Context(), c, "tools/list"); got != "answered" {
			t.Errorf("a call at that time: %s", got)
		}
		if got := ask(t.Context(), c, "tools/call"); got != "not executed: refused twice" {
			t.Errorf("the third refusal of a session: %s", got)
		}
	})
}

// unjittered is policy.Unlimited, whatever the engine's chance.
func unjittered() policy.Budget { return noChance{policy.Unlimited()} }

type noChance struct{ policy.Budget }

func (b noChance) Spend(l policy.Ledger, d policy.Death, _ float64) (policy.Ledger, policy.Verdict) {
	return b.Budget.Spend(l, d, 0)
}

// slowRecovery is an on that holds back the initialize of a recovery until it is told.
func slowRecovery(w *web) (release func(do func(x *exchange))) {
	var held *exchange
	w.becomes(times(1, only("initialize", func(x *exchange) { held = x })))
	return func(do func(x *exchange)) { do(held) }
}

func TestH8_RequestsWaitForTheRecoveryWithinTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		release := slowRecovery(w)
		w.forget()
		first := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		later := asks(t.Context(), c, 3, "tools/list")
		hurried := make(chan string)
		go func() {
			_, err := c.Do(t.Context(), client.Request{Method: "prompts/list", RequestTimeout: time.Second, MaxRequestTimeout: time.Second})
			hurried <- fateOf(err)
		}()
		synctest.Wait()
		if c.State() != fsm.Starting || !c.IsReconnecting() {
			t.Errorf("the state is %s", c.State())
		}
		began := time.Now()
		if got := <-hurried; got != "not executed: timeout" || time.Since(began) != time.Second {
			t.Errorf("the one in a hurry: %s after %s", got, time.Since(began))
		}
		release((*exchange).initialize)
		if diff := cmp.Diff(same(4, "answered"), append(first(), later()...)); diff != "" {
			t.Error(diff)
		}
		synctest.Wait()
		want := slices.Concat([]string{"tools/call(S1)"}, recovery(2), []string{"tools/call(S2)"}, same(3, "tools/list(S2)"))
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Errorf("nothing overtakes the handshake, and nobody who gave up is sent: %s", diff)
		}
	})
}

// The caller that met the first refusal does not own the recovery.
func TestT3_TheFirstToBeRefusedMayGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		release := slowRecovery(w)
		w.forget()
		ctx, giveUp := context.WithCancel(t.Context())
		leader := asks(ctx, c, 1, "tools/call")
		synctest.Wait()
		others := asks(t.Context(), c, 5, "tools/list")
		synctest.Wait()
		giveUp()
		if diff := cmp.Diff([]string{"not executed: context canceled"}, leader()); diff != "" {
			t.Error(diff)
		}
		release((*exchange).initialize)
		if diff := cmp.Diff(same(5, "answered"), others()); diff != "" {
			t.Error(diff)
		}
		pass(time.Minute)
		want := slices.Concat([]string{"tools/call(S1)"}, recovery(2), same(5, "tools/list(S2)"))
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Errorf("the leader is neither sent again nor cancelled: %s", diff)
		}
	})
}

func TestH9_AFailedRecoveryEndsThoseWhoWaitForIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func(x *exchange)
		as   func(err error) bool
		sent []string // besides the initialize
	}{
		{"503", func(x *exchange) { x.reject(503, "<html>") }, is[client.HTTPError], nil},
		{"refused by JSON-RPC", func(x *exchange) { x.fail(-32603, "broken", "") }, is[client.OpeningError], []string{"server/discover()"}},
		{"no connection", (*exchange).unsent, func(err error) bool { return errors.Is(err, errNoConnection) }, nil},
		{"cut", func(x *exchange) { x.cut("") }, is[client.StreamError], nil},
		{"another version", func(x *exchange) { x.result(`{"protocolVersion":"1999-01-01","capabilities":{}}`) }, is[client.VersionError], nil},
		{"silence", func(*exchange) {}, is[client.TimeoutError], nil},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			stale := 0
			c := dial(t, w, client.Config{
				Budget: unjittered(), StartTimeout: 10 * time.Second,
				OnListChanged: func(client.Kind) { stale++ },
			})
			together, fail := refuseTogether(2, "tools/call"), times(1, only("initialize", tt.fail))
			w.becomes(func(x *exchange) bool { return together(x) || fail(x) })
			w.forget()
			errs := make(chan error)
			call := func() { errs <- c.Call(t.Context(), "tools/call", nil, nil) }
			go call()
			go call()
			for range 2 {
				err := <-errs
				session := new(client.SessionError)
				if got := fateOf(err); got != "not executed: no new session" {
					t.Errorf("a waiter: %s", got)
				} else if !errors.As(err, &session) || !tt.as(session.Err) || !is[client.HTTPError](session.Refusal) {
					t.Errorf("it says %v", err)
				}
			}
			synctest.Wait()
			if stale != 0 {
				t.Errorf("%d listings were invalidated by nobody", stale)
			}
			want := slices.Concat(same(2, "tools/call(S1)"), []string{"initialize()"}, tt.sent)
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
			pass(100 * time.Millisecond)
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Errorf("the next request tries again: %s", got)
			}
			pass(time.Second)
			took := w.took()
			if took[0] == "server/discover()" { // after silence nobody knows the era
				took = took[1:]
			}
			if diff := cmp.Diff(append(recovery(2), "tools/list(S2)"), took); diff != "" {
				t.Errorf("the old session is not tried: %s", diff)
			}
			if stale != 3 {
				t.Errorf("%d kinds of listings were invalidated by the new session", stale)
			}
		})
	}
}

// is reports whether err has an error of a documented type inside.
func is[T any, P interface {
	*T
	error
}](err error) bool {
	var p P
	return errors.As(err, &p)
}

func TestH9_WhoMayWaitStaysForTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{Budget: unjittered()})
		w.forget()
		w.becomes(times(4, only("initialize", func(x *exchange) { x.reject(503, "") })))
		patient := make(chan string)
		began := time.Now()
		go func() {
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Wait: client.WaitReady})
			patient <- fateOf(err)
		}()
		if diff := cmp.Diff([]string{"not executed: no new session"}, asks(t.Context(), c, 1, "tools/call")()); diff != "" {
			t.Error(diff)
		}
		if got := <-patient; got != "answered" {
			t.Error(got)
		}
		// The first try at once, then after 100, 200, 400 and 800 ms.
		if d := time.Since(began); d != 1500*time.Millisecond {
			t.Errorf("it took %s", d)
		}
		if n := w.count("initialize"); n != 6 {
			t.Errorf("%d initializes in all", n)
		}
	})
}

func TestH9_TheServersRetryAfterIsAFloor(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7":                             7 * time.Second,
		"Sat, 01 Jan 2000 00:00:09 GMT": 9 * time.Second, // a bubble begins on that day
		"soon":                          0,
		"99999999999999999999":          0,
		"864000":                        10 * time.Minute,
	} {
		bubble(t, header, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{WaitForReady: true, Budget: unjittered(), RequestTimeout: time.Hour})
			w.forget()
			w.becomes(times(1, only("initialize", func(x *exchange) { x.reject(503, "", "Retry-After", header) })))
			began := time.Now()
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
			if d := time.Since(began); d != max(want, 100*time.Millisecond) {
				t.Errorf("the next try came after %s", d)
			}
		})
	}
}

// The wish of a server that forgot the session is about the refused request: the new
// session is not put off for it (2025-11-25, Session Management, 4).
func TestH9_ARefusalOfTheOldSessionIsNoReasonToWait(t *testing.T) {
	for _, status := range []int{404, 410, 400} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{Budget: unjittered()})
			w.forget()
			w.becomes(func(x *exchange) bool {
				if x.session != "S1" || x.Op != transports.OpMessage {
					return false
				}
				x.reject(status, "", "Retry-After", "7")
				return true
			})
			began := time.Now()
			if got := ask(t.Context(), c, "tools/call"); got != "answered" || time.Since(began) != 0 {
				t.Errorf("%s after %s", got, time.Since(began))
			}
		})
	}
}

func TestH10_ARefusedInitializeIsAFailureAndNoRecursion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.forget()
		w.becomes(only("initialize", func(x *exchange) { x.reject(404, "") }))
		if got := ask(t.Context(), c, "tools/call"); got != "not executed: no new session" {
			t.Error(got)
		}
		pass(time.Hour)
		want := []string{"tools/call(S1)", "initialize()", "server/discover()"} // the other era, once
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH10_ANewSessionMayHaveNoIDOrTheSameOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		var met diary
		c := dial(t, w, met.of(client.Config{}))
		w.becomes(times(1, only("tools/call", func(x *exchange) {
			w.become(func(w *web) { w.knows, w.next = nil, 0 }) // the next session is S1 again
			x.reject(404, "")
		})))
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		pass(time.Minute)
		if diff := cmp.Diff(slices.Concat([]string{"tools/call(S1)"}, recovery(1), []string{"tools/call(S1)"}), w.took()); diff != "" {
			t.Error(diff)
		}
		w.become(func(w *web) { w.knows = nil })
		w.becomes(times(1, only("initialize", func(x *exchange) {
			w.become(func(w *web) { w.bare = true })
			x.initialize()
		})))
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		synctest.Wait()
		want := []string{"tools/call(S1)", "initialize()", "notifications/initialized()", "GET()", "tools/call()"}
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"1 ended: HTTP", "2 serves", "2 ended: HTTP", "3 serves"}, short(met.read())); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH12_WhatIsInFlightOnTheOldSessionIsNotReplayed(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		cfg          client.Config
		do           func(x *exchange)
		fate         string
		after        time.Duration
		again        bool
	}{
		{"its answer still comes", "tools/call", client.Config{}, func(x *exchange) { x.result(`{}`) }, "answered", 0, false},
		{"its error still comes, with 400", "tools/call", client.Config{}, func(x *exchange) { x.reject(400, x.error(-32050, "declined", "")) }, "the peer says -32050", 0, false},
		{"its error still comes, with 401", "tools/call", client.Config{}, func(x *exchange) { x.reject(401, x.error(-32050, "declined", "")) }, "the peer says -32050", 0, false},
		{"its error still comes, with 409", "tools/call", client.Config{}, func(x *exchange) { x.reject(409, x.error(-32050, "declined", "")) }, "the peer says -32050", 0, false},
		{"its error comes and is cut", "tools/call", client.Config{}, func(x *exchange) { x.reject(400, x.error(-32050, "declined", "")[:40]) }, "outcome unknown: HTTP 400", 0, false},
		{"the error of a read comes, with 400", "resources/read", client.Config{RetryLost: true}, func(x *exchange) { x.reject(400, x.error(-32050, "declined", "")) }, "the peer says -32050", 0, false},
		{"its stream breaks", "tools/call", client.Config{}, func(x *exchange) { x.cut("7") }, "outcome unknown: stream broken", 0, false},
		{"nothing comes", "tools/call", client.Config{}, func(*exchange) {}, "outcome unknown: " + transports.ErrRetired.Error(), 30 * time.Second, false},
		{"nothing comes of a read", "resources/read", client.Config{}, func(*exchange) {}, "outcome unknown: " + transports.ErrRetired.Error(), 30 * time.Second, false},
		{"nothing comes of a read and reads are retried", "resources/read", client.Config{RetryLost: true}, func(*exchange) {}, "answered", 30 * time.Second, true},
		{"a read breaks and reads are retried", "resources/read", client.Config{RetryLost: true}, func(x *exchange) { x.cut("7") }, "answered", 0, true},
		{"nothing comes of a tool and reads are retried", "tools/call", client.Config{RetryLost: true}, func(*exchange) {}, "outcome unknown: " + transports.ErrRetired.Error(), 30 * time.Second, false},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, tt.cfg)
			var slow *exchange
			w.becomes(times(1, only(tt.method, func(x *exchange) { slow = x })))
			fates := asks(t.Context(), c, 1, tt.method)
			synctest.Wait()
			w.forget()
			if got := ask(t.Context(), c, "ping"); got != "answered" {
				t.Error(got)
			}
			w.took()
			began := time.Now()
			tt.do(slow)
			if diff := cmp.Diff([]string{tt.fate}, fates()); diff != "" {
				t.Error(diff)
			}
			if d := time.Since(began); d != tt.after {
				t.Errorf("it took %s", d)
			}
			synctest.Wait()
			var want []string
			if tt.again {
				want = []string{tt.method + "(S2)"}
			}
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A call that was answered by a refusal may bring the recovery, but is not made
// again by it.
func TestH12_WhoSuspectsByItsOwnAnswerIsNotSentAgain(t *testing.T) {
	for _, status := range []int{400, 401, 409} {
		for _, knows := range []bool{true, false} {
			bubble(t, fmt.Sprintf("%d, the session is known %t", status, knows), func(t *testing.T) {
				w := &web{legacy: true}
				c := dial(t, w, client.Config{})
				w.becomes(times(1, only("tools/call", func(x *exchange) {
					if !knows {
						w.forget() // while it runs
					}
					x.reject(status, x.error(-32050, "declined", ""))
				})))
				if got := ask(t.Context(), c, "tools/call"); got != "the peer says -32050" {
					t.Error(got)
				}
				want := []string{"tools/call(S1)", "ping(S1)", "tools/call(S1)"}
				if !knows {
					want = slices.Concat(want[:2], recovery(2), []string{"tools/call(S2)"})
				}
				if got := ask(t.Context(), c, "tools/call"); got != "answered" {
					t.Error(got)
				}
				synctest.Wait()
				if diff := cmp.Diff(want, w.took()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// The answer is at hand while the session is in doubt, so it is the caller's whatever ends the wait.
func TestH12_AnAnswerThatIsASuspicionSurvivesTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		budget policy.Budget
		ping   func(c *client.Client, x *exchange)
	}{
		"the budget is spent": {policy.Never(), func(_ *client.Client, x *exchange) { x.reject(404, "") }},
		"closed":              {policy.Unlimited(), func(c *client.Client, _ *exchange) { go func() { _ = c.Close(context.Background()) }() }},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{Budget: tt.budget, DrainTimeout: -1})
			w.becomes(anyOf(
				only("tools/call", func(x *exchange) { x.reject(400, x.error(-32050, "declined", "")) }),
				only("ping", func(x *exchange) { tt.ping(c, x) })))
			if got := ask(t.Context(), c, "tools/call"); got != "the peer says -32050" {
				t.Error(got)
			}
		})
	}
}

func TestH12_ProgressOfARequestOnTheOldSessionStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		var slow *exchange
		w.becomes(only("tools/call", func(x *exchange) { slow = x }))
		said := make(chan string, 2)
		go func() {
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(p client.Progress) { said <- p.Message }})
			said <- fateOf(err)
		}()
		synctest.Wait()
		w.forget()
		ask(t.Context(), c, "ping")
		slow.say("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":"half"}`, tokenOf(slow)))
		slow.say("notifications/message", `{"level":"info","data":"of a dead session"}`)
		slow.result(`{}`)
		if got := <-said + " " + <-said; got != "half answered" {
			t.Error(got)
		}
		if n := c.Stats().StaleEvents; n != 1 {
			t.Errorf("%d stale events", n)
		}
	})
}

func TestH13_ACursorOfTheDeadSessionIsNotSentAgain(t *testing.T) {
	pages := func(x *exchange) bool {
		if x.Method != "tools/list" || !x.web.knowsIt(x.session) {
			return false
		}
		switch x.params() {
		case `{}`:
			x.result(fmt.Sprintf(`{"tools":[{"name":"%s/1","inputSchema":{}}],"nextCursor":"2 of %s"}`, x.session, x.session))
		default:
			x.result(fmt.Sprintf(`{"tools":[{"name":"%s/2","inputSchema":{}}]}`, x.session))
		}
		return true
	}
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, on: pages}
		c := dial(t, w, client.Config{})
		got := iterate(t, c, func(n int) {
			if n == 1 {
				w.forget()
			}
		})
		if diff := cmp.Diff([]string{"S1/1", "cursor lost"}, got); diff != "" {
			t.Errorf("something was given out: %s", diff)
		}
		pass(time.Second)
		if got := fateOf(c.Call(t.Context(), "tools/list", map[string]string{"cursor": "2 of S1"}, nil)); got != "answered" {
			t.Errorf("a cursor is the caller's own affair on a session that lives: %s", got)
		}
		w.forget()
		if got := fateOf(c.Call(t.Context(), "tools/list", map[string]string{"cursor": "2 of S2"}, nil)); got != "not executed: cursor lost" {
			t.Errorf("the generic call: %s", got)
		}
		pass(time.Second)
		if n, inits := w.count("tools/list"), w.count("initialize"); n != 4 || inits != 2 {
			t.Errorf("%d listings and %d initializes", n, inits)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		w.becomes(func(x *exchange) bool {
			if x.Method != "tools/list" || !w.knowsIt(x.session) {
				return false
			}
			if x.params() == `{}` && x.session == "S1" {
				x.result(`{"tools":[],"nextCursor":"2"}`)
				w.forget()
				return true
			}
			return pages(x)
		})
		c := dial(t, w, client.Config{})
		if diff := cmp.Diff([]string{"S2/1", "S2/2", "end"}, iterate(t, c, nil)); diff != "" {
			t.Errorf("nothing was given out: %s", diff)
		}
	})
}

func TestH14_CloseDuringARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{WaitForReady: true})
		together, release := refuseTogether(3, "tools/call"), slowRecovery(w)
		slow := w.on
		w.becomes(func(x *exchange) bool { return together(x) || slow(x) })
		w.forget()
		fates := asks(t.Context(), c, 3, "tools/call")
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(same(3, "not executed: closed"), fates()); diff != "" {
			t.Error(diff)
		}
		release((*exchange).initialize) // its session is nobody's any more
		pass(time.Hour)
		if diff := cmp.Diff(append(same(3, "tools/call(S1)"), "initialize()"), w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

// The transport is left to see an initialize out, so that it can end the session.
func TestH14_AnInitializeInFlightIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		kept := &cancels{}
		f := w.factory()
		fresh := f.New
		f.New = func() transports.Transport { return kept.of(fresh()) }
		c := connectTo(t, f, client.Config{})
		var initialize uint64
		w.becomes(only("initialize", func(x *exchange) { initialize = x.Ref }))
		w.forget()
		fates := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		_ = c.Close(t.Context())
		if diff := cmp.Diff([]string{"not executed: closed"}, fates()); diff != "" {
			t.Error(diff)
		}
		if initialize == 0 || slices.Contains(kept.refs, initialize) {
			t.Errorf("of initialize %d, attempts %v were cancelled", initialize, kept.refs)
		}
	})
}

// cancels notes which attempts a transport was told to give up.
type cancels struct{ refs []uint64 }

func (c *cancels) of(t transports.Transport) transports.Transport { return &noting{t, c} }

type noting struct {
	transports.Transport
	to *cancels
}

func (n *noting) Cancel(ref uint64) bool {
	n.to.refs = append(n.to.refs, ref)
	return n.Transport.Cancel(ref)
}

func TestH14_CloseWaitsForRetiredSessionsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		var ends diary
		f := w.factory()
		fresh := f.New
		f.New = func() transports.Transport { return &ending{fresh(), &ends} }
		c := connectTo(t, f, client.Config{})
		w.becomes(only("tools/call", func(*exchange) {}))
		slow := asks(t.Context(), c, 2, "tools/call")
		synctest.Wait()
		w.forget()
		ask(t.Context(), c, "ping")
		began := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(same(2, "outcome unknown: closed"), slow()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{client.ErrClosed.Error(), transports.ErrRetired.Error()}, publicly(ends.read())); diff != "" {
			t.Error(diff)
		}
		if d := time.Since(began); d != client.DefaultDrainTimeout {
			t.Errorf("calls on the old session had %s", d)
		}
	})
}

// publicly spells the owner's close as the package does.
func publicly(ends []string) []string {
	for i, end := range ends {
		if end == "closed by its owner" {
			ends[i] = client.ErrClosed.Error()
		}
	}
	return sorted(ends)
}

// ending notes what a transport ended with.
type ending struct {
	transports.Transport
	ends *diary
}

func (e *ending) Serve(ctx context.Context, emit func(transports.Event)) error {
	err := e.Transport.Serve(ctx, emit)
	e.ends.write("%v", err)
	return err
}

// A retired session goes when the last who waits for it has gone.
func TestH14_ARetiredSessionEndsWithItsLastExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		var ends diary
		f := w.factory()
		fresh := f.New
		f.New = func() transports.Transport { return &ending{fresh(), &ends} }
		c := connectTo(t, f, client.Config{})
		var slow *exchange
		w.becomes(func(x *exchange) bool {
			if x.session == "S1" && x.Method == "tools/call" {
				slow = x
				return true
			}
			return false
		})
		fates := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		w.forget()
		ask(t.Context(), c, "ping")
		pass(time.Second)
		if early := ends.read(); len(early) != 0 {
			t.Errorf("it ended early: %v", early)
		}
		slow.reject(404, "")
		fates()
		synctest.Wait()
		if diff := cmp.Diff([]string{transports.ErrRetired.Error()}, ends.read()); diff != "" {
			t.Errorf("its last request went to the next session: %s", diff)
		}
	})
}

func TestH15_TwoClientsThatEvictEachOtherMakeNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		w.becomes(func(x *exchange) bool {
			if x.Method == "initialize" {
				w.forget() // there is room for one session
			}
			return false
		})
		var reported [2]int
		var clients [2]*client.Client
		for i := range clients {
			clients[i] = dial(t, w, client.Config{OnEnd: func(client.Ended) { reported[i]++ }})
		}
		began, calls := time.Now(), 0
		for time.Since(began) < time.Minute {
			for _, c := range clients {
				ask(t.Context(), c, "tools/list")
				calls++
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		inits := w.count("initialize")
		if inits > 30 {
			t.Errorf("%d initializes in a minute of %d calls", inits, calls)
		}
		if reported[0]+reported[1] < inits-2 {
			t.Errorf("%v endings were reported of %d sessions", reported, inits)
		}
	})
}

func TestH16_NoRestartIsEverNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		for n := range 50 {
			time.Sleep(10 * time.Second)
			w.forget()
			if diff := cmp.Diff(same(5, "answered"), asks(t.Context(), c, 5, "tools/call")()); diff != "" {
				t.Fatalf("restart %d: %s", n, diff)
			}
		}
		synctest.Wait()
		if inits, gets := w.count("initialize"), w.count("GET"); inits != 51 || gets != 51 {
			t.Errorf("%d initializes and %d GETs", inits, gets)
		}
	})
}

func TestS49_WhatARetiredSessionAcceptsIsKnownToTheNext(t *testing.T) {
	for _, method := range []string{"resources/subscribe", "logging/setLevel"} {
		bubble(t, method, func(t *testing.T) {
			w := &web{legacy: true, capabilities: `{"resources":{"subscribe":true},"logging":{}}`}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only(method, func(x *exchange) {
				time.AfterFunc(time.Second, func() { x.result(`{}`) })
			})))
			done := make(chan error)
			go func() {
				done <- c.Call(t.Context(), method, map[string]string{"uri": "a", "level": "error"}, nil)
			}()
			synctest.Wait()
			w.forget()
			_ = c.Call(t.Context(), "tools/list", nil, nil) // another call's 404
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if got := w.took(); !slices.Contains(got, method+"(S2)") {
				t.Errorf("the new session was told %v", got)
			}
		})
	}
}
