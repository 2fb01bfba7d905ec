package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

func TestB001_AForgottenSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		w.forget()
		for range 3 {
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Error(got)
			}
		}
		pass(time.Hour)
		want := slices.Concat([]string{"tools/call(S1)", "tools/list(S1)"}, recovery(2), same(3, "tools/list(S2)"))
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Errorf("S1 never appears again: %s", diff)
		}
	})
}

func TestB004_ARefusalIsNoAmbiguousTimeout(t *testing.T) {
	for _, refusals := range []int{1, 2} {
		bubble(t, fmt.Sprint(refusals), func(t *testing.T) {
			paid := 0
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(anyOf(
				times(refusals, only("tools/call", func(x *exchange) { w.forget(); x.reject(404, "") })),
				only("tools/call", func(x *exchange) { paid++; x.answer() })))
			began := time.Now()
			want := map[int]string{1: "answered", 2: "not executed: refused twice"}[refusals]
			if got := ask(t.Context(), c, "tools/call"); got != want || paid != 2-refusals || time.Since(began) != 0 {
				t.Errorf("%s, paid %d times, after %s", got, paid, time.Since(began))
			}
		})
	}
}

func TestB008_A401HealsWhereThePingSaysSo(t *testing.T) {
	for _, heals := range []bool{true, false} {
		bubble(t, fmt.Sprintf("a fresh session heals %t", heals), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(func(x *exchange) bool {
				if x.session == "" || x.session != "S1" && heals {
					return false
				}
				x.reject(401, "Unauthorized: Session not found")
				return true
			})
			want, wire := "answered", slices.Concat([]string{"tools/list(S1)", "ping(S1)"}, recovery(2), []string{"tools/list(S2)"})
			if !heals { // whoever asks is not let in: no session is to blame
				want, wire = "not executed: no new session", []string{"tools/list(S1)", "ping(S1)", "initialize()"}
				w.becomes(func(x *exchange) bool {
					if x.Method == "initialize" || x.Method == "server/discover" {
						x.reject(401, "Unauthorized")
						return true
					}
					if x.session == "" {
						return false
					}
					x.reject(401, "Unauthorized")
					return true
				})
			}
			if got := ask(t.Context(), c, "tools/list"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			pass(time.Hour)
			if diff := cmp.Diff(wire, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestB012_WhichStatusesMeanALostSession(t *testing.T) {
	for status, heals := range map[int]bool{404: true, 410: true, 409: true, 400: true, 401: true, 500: false, 502: false, 503: false} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(func(x *exchange) bool {
				if x.session != "S1" {
					return false
				}
				x.reject(status, "")
				return true
			})
			want, inits := fmt.Sprintf("outcome unknown: HTTP %d", status), 1
			if heals {
				want, inits = "answered", 2
			}
			if got := ask(t.Context(), c, "tools/list"); got != want || w.count("initialize") != inits {
				t.Errorf("%s after %d initializes", got, w.count("initialize"))
			}
		})
	}
}

func TestB019_AResetIsNoLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{RetryLost: true})
		var late *exchange
		n := 0
		w.becomes(only("resources/read", func(x *exchange) {
			switch n++; n {
			case 1:
				late = x
			case 2:
				x.cut("")
				late.cut("")
			default:
				x.answer()
			}
		}))
		if diff := cmp.Diff(same(2, "answered"), asks(t.Context(), c, 2, "resources/read")()); diff != "" {
			t.Error(diff)
		}
		late.cut("") // once more, when nobody waits
		if got := ask(t.Context(), c, "tools/list"); got != "answered" {
			t.Error(got)
		}
		if diff := cmp.Diff(append(same(4, "resources/read(S1)"), "tools/list(S1)"), w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB021_NoRequestOvertakesInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		slow := &slowNotifications{Factory: w.factory(), delay: 300 * time.Millisecond}
		c := connectTo(t, slow.factory(), client.Config{})
		w.took()
		w.forget()
		together := refuseTogether(8, "tools/call")
		w.becomes(together)
		began := time.Now()
		if diff := cmp.Diff(same(8, "answered"), asks(t.Context(), c, 8, "tools/call")()); diff != "" {
			t.Error(diff)
		}
		if d := time.Since(began); d != slow.delay {
			t.Errorf("they waited %s", d)
		}
		synctest.Wait()
		if diff := cmp.Diff(slices.Concat(same(8, "tools/call(S1)"), recovery(2), same(8, "tools/call(S2)")), w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

// slowNotifications is a factory whose servers take a while to accept a notification.
type slowNotifications struct {
	transports.Factory
	delay time.Duration
}

func (s *slowNotifications) factory() transports.Factory {
	f := s.Factory
	f.New = func() transports.Transport { return &lateSent{s.New(), s.delay} }
	return f
}

type lateSent struct {
	transports.Transport
	delay time.Duration
}

func (l *lateSent) Serve(ctx context.Context, emit func(transports.Event)) error {
	var late sync.WaitGroup
	defer late.Wait()
	return l.Transport.Serve(ctx, func(ev transports.Event) {
		if _, sent := ev.(transports.Sent); !sent {
			emit(ev)
			return
		}
		late.Go(func() {
			timer := time.NewTimer(l.delay)
			defer timer.Stop()
			select {
			case <-timer.C:
				emit(ev)
			case <-ctx.Done():
			}
		})
	})
}

func TestB024_TheRecoverysOwnTrafficReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		var heard, told diary
		c := dial(t, w, client.Config{
			OnNotification: func(n client.Notification) { heard.write("%d %s", n.Generation, n.Method) },
			OnReconnect:    func(r client.Reconnect) { told.write("%d", r.Generation) },
		})
		release := slowRecovery(w)
		w.forget()
		fates := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		release(func(x *exchange) {
			x.say("notifications/message", `{"level":"info","data":"starting"}`)
			pass(time.Second)
			x.initialize()
		})
		fates()
		synctest.Wait()
		if diff := cmp.Diff([]string{"2 notifications/message"}, heard.read()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2"}, told.read()); diff != "" {
			t.Error(diff)
		}
		ids := map[string]bool{}
		for _, x := range w.exchanges() {
			if x.ID != "" && ids[x.ID] {
				t.Errorf("id %s was used twice", x.ID)
			}
			ids[x.ID] = true
		}
	})
}

func TestB030_AReadIsIssuedAgainAToolIsNot(t *testing.T) {
	for method, posts := range map[string]int{"resources/read": 2, "tools/call": 1} {
		bubble(t, method, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only(method, func(x *exchange) {
				x.say("notifications/progress", `{"progressToken":"x","progress":1}`)
				x.cut("")
			})))
			want := map[int]string{1: "outcome unknown: stream broken", 2: "answered"}[posts]
			if got := ask(t.Context(), c, method); got != want || w.count(method) != posts {
				t.Errorf("%s after %d POSTs", got, w.count(method))
			}
		})
	}
}

func TestB035_ASilentStreamEndsByTheIdleTimeoutAChatteringOneByTheTotal(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for chatters, want := range map[bool]time.Duration{false: 2 * time.Second, true: 10 * time.Second} {
			bubble(t, fmt.Sprintf("legacy %t chatters %t", legacy, chatters), func(t *testing.T) {
				w := &web{legacy: legacy}
				c := dial(t, w, client.Config{RequestTimeout: 2 * time.Second, MaxRequestTimeout: 10 * time.Second})
				w.becomes(only("tools/call", func(x *exchange) {
					if chatters {
						go func() {
							for range 20 {
								time.Sleep(time.Second)
								x.Emit(transports.Alive{Ref: x.Ref})
							}
						}()
					}
				}))
				began := time.Now()
				if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: timeout" || time.Since(began) != want {
					t.Errorf("%s after %s", got, time.Since(began))
				}
				pass(time.Minute)
				wire := []string{"tools/call()"}
				if legacy {
					wire = []string{"tools/call(S1)", "notifications/cancelled(S1)"}
				}
				if diff := cmp.Diff(wire, w.took()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
	bubble(t, "an initialize", func(t *testing.T) {
		w := &web{legacy: true, on: only("initialize", func(*exchange) {})}
		_, err := client.Connect(t.Context(), w.factory(), &client.Config{Logger: quiet(), StartTimeout: 2 * time.Second})
		if !is[client.TimeoutError](err) {
			t.Errorf("Connect: %v", err)
		}
		if diff := cmp.Diff([]string{"server/discover()", "initialize()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB049_OverHTTPATimeoutCancelsAndIsNeverRetried(t *testing.T) {
	for _, method := range []string{"tools/call", "resources/read"} {
		for _, legacy := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s legacy %t", method, legacy), func(t *testing.T) {
				w := &web{legacy: legacy}
				noted := &cancels{}
				f := w.factory()
				fresh := f.New
				f.New = func() transports.Transport { return noted.of(fresh()) }
				c := connectTo(t, f, client.Config{RequestTimeout: time.Second, RetryLost: true})
				var slow *exchange
				w.becomes(only(method, func(x *exchange) { slow = x }))
				synctest.Wait()
				w.exchanges()
				if got := ask(t.Context(), c, method); got != "outcome unknown: timeout" {
					t.Error(got)
				}
				slow.result(`{"late":true}`)
				pass(time.Minute)
				all := w.exchanges()
				if !slices.Equal(noted.refs, []uint64{slow.Ref}) {
					t.Errorf("attempts %v were cancelled", noted.refs)
				}
				switch {
				case !legacy && len(all) != 1: // closing the stream is the cancellation
					t.Errorf("%v", all)
				case legacy && (len(all) != 2 || !strings.Contains(all[1].params(), `"requestId":`+all[0].ID)):
					t.Errorf("%v", all)
				}
			})
		}
	}
}

func TestB105_APooledClientHealsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var users sync.WaitGroup
		var mu sync.Mutex
		fates := map[string]int{}
		for i := range 50 {
			users.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					got := ask(t.Context(), c, "tools/call")
					mu.Lock()
					fates[got]++
					mu.Unlock()
					time.Sleep(time.Duration(100+i) * time.Millisecond)
				}
			})
		}
		restarts := 0
		for ctx.Err() == nil {
			time.Sleep(10*time.Second + time.Millisecond)
			if ctx.Err() == nil {
				w.forget()
				restarts++
			}
		}
		users.Wait()
		if len(fates) != 1 || fates["answered"] == 0 {
			t.Errorf("the calls ended so: %v", fates)
		}
		if n := w.count("initialize"); n != 1+restarts {
			t.Errorf("%d initializes for %d restarts", n, restarts)
		}
	})
}

// The old session's last words, and the end of its transport, come after policy
// called it gone.
func TestT16_WhatTheOldSessionStillSaysIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		var heard, lives diary
		cfg := lives.of(client.Config{OnNotification: func(n client.Notification) { heard.write("%d %s", n.Generation, n.Method) }})
		c := dial(t, w, cfg)
		old := w.stream()
		var slow *exchange
		w.becomes(times(1, only("tools/call", func(x *exchange) { slow = x })))
		fates := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		w.forget()
		ask(t.Context(), c, "ping")
		old.say("acme/late", `{}`)
		slow.say("acme/late", `{}`)
		old.Write(0, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		pass(29 * time.Second)
		slow.reject(404, "")
		if diff := cmp.Diff([]string{"answered"}, fates()); diff != "" {
			t.Error(diff)
		}
		pass(time.Minute) // its Serve has returned
		if c.State() != fsm.Serving || len(heard.read()) != 0 {
			t.Errorf("the state is %s; heard %v", c.State(), heard.read())
		}
		if diff := cmp.Diff([]string{"1 ended: HTTP", "2 serves"}, short(lives.read())); diff != "" {
			t.Error(diff)
		}
		want := slices.Concat([]string{"tools/call(S1)", "ping(S1)"}, recovery(2), []string{"ping(S2)", "tools/call(S2)"})
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Errorf("nothing goes to the old session, not even a reply: %s", diff)
		}
	})
}

// A late 404 of an old session, of each age, does nothing to its successors.
func TestT2_ALateRefusalTearsDownNoSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		var lives diary
		c := dial(t, w, lives.of(client.Config{}))
		var slow []*exchange
		w.becomes(only("acme/slow", func(x *exchange) {
			if len(slow) < 3 {
				slow = append(slow, x)
				return
			}
			x.answer()
		}))
		var late []func() []string
		for range 3 {
			late = append(late, asks(t.Context(), c, 1, "acme/slow"))
			synctest.Wait()
			w.forget()
			ask(t.Context(), c, "ping")
			pass(9 * time.Second)
		}
		for i, x := range slow {
			x.reject(404, "")
			if diff := cmp.Diff([]string{"answered"}, late[i]()); diff != "" {
				t.Error(diff)
			}
		}
		pass(time.Hour)
		if n := w.count("initialize"); n != 4 {
			t.Errorf("%d initializes", n)
		}
		if got := lives.read(); len(got) != 6 {
			t.Errorf("%v", got)
		}
	})
}

func TestS4_OverHTTPCallsParkWhileARecoveryRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{Budget: unjittered()})
		w.becomes(only("initialize", func(x *exchange) { x.reject(503, "") }))
		w.forget()
		if got := ask(t.Context(), c, "tools/call"); got != "not executed: no new session" {
			t.Error(got)
		}
		if got := ask(t.Context(), c, "tools/call"); got != "not executed: nobody serves" || c.State() != fsm.Dead {
			t.Errorf("before the earliest time for another try: %s", got)
		}
		pass(100 * time.Millisecond)
		release := slowRecovery(w)
		fates := asks(t.Context(), c, 2, "tools/call")
		pass(time.Second)
		w.took()
		parked := asks(t.Context(), c, 2, "tools/list")
		pass(time.Second)
		if took := w.took(); len(took) != 0 {
			t.Errorf("it reached a server that only starts: %v", took)
		}
		release((*exchange).initialize)
		if diff := cmp.Diff(same(4, "answered"), append(fates(), parked()...)); diff != "" {
			t.Error(diff)
		}
	})
}
