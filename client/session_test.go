package client_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

// recovery is what comes over the wire when session n takes the place of a forgotten one.
func recovery(n int) []string {
	return []string{"initialize()", fmt.Sprintf("notifications/initialized(S%d)", n), fmt.Sprintf("GET(S%d)", n)}
}

func TestH1_ASessionIsGoneWhateverTheBodySays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   func(x *exchange) string
	}{
		{"404 without a body", 404, func(*exchange) string { return "" }},
		{"404 in HTML", 404, func(*exchange) string { return "<html>no such page</html>" }},
		{"404 with an error for nobody", 404, func(*exchange) string { return orphan }},
		{"404 with an error for this request", 404, func(x *exchange) string { return x.error(-32001, "Session not found", "") }},
		{"404 with method not found for another", 404, func(*exchange) string {
			return `{"jsonrpc":"2.0","id":"other","error":{"code":-32601,"message":"x"}}`
		}},
		{"410", 410, func(*exchange) string { return "" }},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only("tools/call", func(x *exchange) { x.reject(tt.status, tt.body(x)) })))
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Errorf("the call: %s", got)
			}
			synctest.Wait()
			want := slices.Concat([]string{"tools/call(S1)"}, recovery(2), []string{"tools/call(S2)"})
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH1_MethodNotFoundForThisRequestIsOnlyASuspicion(t *testing.T) {
	for _, tt := range []struct {
		name  string
		knows bool // the server knows the session
		fate  string
		want  []string
	}{
		{"known", true, "the peer says -32601", []string{"acme/x(S1)", "ping(S1)"}},
		{"forgotten", false, "answered", slices.Concat([]string{"acme/x(S1)", "ping(S1)"}, recovery(2), []string{"acme/x(S2)"})},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only("acme/x", func(x *exchange) { x.reject(404, x.error(-32601, "no such method", "")) })))
			if !tt.knows {
				w.forget()
			}
			if got := ask(t.Context(), c, "acme/x"); got != tt.fate {
				t.Errorf("the call: %s, want %s", got, tt.fate)
			}
			synctest.Wait()
			if diff := cmp.Diff(tt.want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH2_ASuspicionIsSettledByOnePing(t *testing.T) {
	suspicions := map[string]func(x *exchange){
		"400":                     func(x *exchange) { x.reject(400, orphan) },
		"401":                     func(x *exchange) { x.reject(401, "Session not found") },
		"409":                     func(x *exchange) { x.reject(409, "") },
		"422 for no request":      func(x *exchange) { x.reject(422, orphan) },
		"200 for another request": func(x *exchange) { x.reject(200, `{"jsonrpc":"2.0","id":"?","error":{"code":1,"message":""}}`) },
	}
	for _, tt := range []struct {
		name string
		ping func(x *exchange)
		gone bool
	}{
		{"answered", (*exchange).answer, false},
		{"no such method", func(x *exchange) { x.fail(-32601, "", "") }, false},
		{"no such method by 404", func(x *exchange) { x.reject(404, x.error(-32601, "", "")) }, false},
		{"404", func(x *exchange) { x.reject(404, "") }, true},
		{"410", func(x *exchange) { x.reject(410, "") }, true},
		{"400", func(x *exchange) { x.reject(400, orphan) }, true},
		{"401", func(x *exchange) { x.reject(401, "") }, true},
		{"409", func(x *exchange) { x.reject(409, "") }, true},
		{"403", func(x *exchange) { x.reject(403, "") }, false},
		{"500", func(x *exchange) { x.reject(500, "") }, false},
		{"no connection", (*exchange).unsent, false},
		{"cut", func(x *exchange) { x.cut("") }, false},
		{"silence", func(*exchange) {}, false},
	} {
		for suspicion, refuse := range suspicions {
			bubble(t, suspicion+", ping "+tt.name, func(t *testing.T) {
				w := &web{legacy: true}
				c := dial(t, w, client.Config{})
				var suspects []*exchange
				w.becomes(func(x *exchange) bool {
					switch {
					case x.session != "S1":
						return false
					case x.Method == "ping":
						tt.ping(x)
					case x.Method == "tools/call":
						if suspects = append(suspects, x); len(suspects) == 3 {
							for _, x := range suspects {
								refuse(x)
							}
						}
					}
					return true
				})
				fates := asks(t.Context(), c, 3, "tools/call")()
				synctest.Wait()
				want := append(same(3, "tools/call(S1)"), "ping(S1)")
				if tt.name == "silence" { // a timeout is told (2025-11-25, cancellation)
					want = append(want, "notifications/cancelled(S1)")
				}
				if tt.gone {
					want = slices.Concat(want, recovery(2), same(3, "tools/call(S2)"))
					if diff := cmp.Diff(same(3, "answered"), fates); diff != "" {
						t.Error(diff)
					}
				} else if slices.Contains(fates, "answered") {
					t.Errorf("the session lives, so the refusals stand: %v", fates)
				}
				if diff := cmp.Diff(want, w.took()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Without credentials every request is refused, a ping too: that says nothing of a session.
func TestH3_AnAuthorizerThatFailsTakesNoSessionAlong(t *testing.T) {
	unauthorized := func(x *exchange) {
		x.Emit(transports.Rejected{Ref: x.Ref, Status: 401, Session: x.session, Cause: errNoCredentials})
	}
	for name, tt := range map[string]struct {
		on   func(x *exchange)
		fate string
		want []string
	}{
		"a request": {unauthorized, "not executed: HTTP 401", []string{"tools/call(S1)"}},
		"the ping":  {func(x *exchange) { x.reject(400, "") }, "outcome unknown: HTTP 400", []string{"tools/call(S1)", "ping(S1)"}},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(anyOf(only("tools/call", tt.on), only("ping", unauthorized)))
			if got := ask(t.Context(), c, "tools/call"); got != tt.fate {
				t.Errorf("the call: %s, want %s", got, tt.fate)
			}
			w.becomes(nil)
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Errorf("the next call: %s", got)
			}
			if diff := cmp.Diff(append(tt.want, "tools/call(S1)"), w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const errNoCredentials = constError("no credentials")

func TestH2_ALaterSuspicionIsSettledByAPingOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.becomes(only("acme/x", func(x *exchange) { x.reject(400, orphan) }))
		for range 2 {
			if got := ask(t.Context(), c, "acme/x"); got != "the peer says -32000" {
				t.Errorf("the call: %s", got)
			}
		}
		if diff := cmp.Diff([]string{"acme/x(S1)", "ping(S1)", "acme/x(S1)", "ping(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH2_AVerdictMeanwhileSettlesWhatThePingHasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.becomes(func(x *exchange) bool {
			switch {
			case x.session != "S1" || x.Op != transports.OpMessage:
				return false
			case x.Method == "tools/call":
				x.reject(400, orphan)
			case x.Method == "resources/read":
				x.reject(404, "")
			}
			return true // the ping gets no answer
		})
		suspect := asks(t.Context(), c, 1, "tools/call")
		synctest.Wait()
		began := time.Now()
		if got := ask(t.Context(), c, "resources/read"); got != "answered" {
			t.Errorf("the request that was refused for certain: %s", got)
		}
		if diff := cmp.Diff([]string{"answered"}, suspect()); diff != "" {
			t.Error(diff)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the suspicion waited %s more for a ping", d)
		}
	})
}

func TestH2_ASuspectThatIsGivenUpIsNeitherSentAgainNorCancelled(t *testing.T) {
	for _, knows := range []bool{true, false} {
		bubble(t, fmt.Sprintf("the session is known %t", knows), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			var ping *exchange
			w.becomes(func(x *exchange) bool {
				switch x.Method {
				case "tools/call":
					x.reject(400, orphan)
				case "ping":
					ping = x
				default:
					return false
				}
				return true
			})
			ctx, cancel := context.WithCancel(t.Context())
			fates := asks(ctx, c, 1, "tools/call")
			synctest.Wait()
			cancel()
			if diff := cmp.Diff([]string{"outcome unknown: context canceled"}, fates()); diff != "" {
				t.Error(diff)
			}
			if knows {
				ping.result(`{}`)
			} else {
				ping.reject(404, "")
			}
			pass(time.Minute)
			if diff := cmp.Diff([]string{"tools/call(S1)", "ping(S1)"}, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH3_WhatIsNoSignOfALostSession(t *testing.T) {
	call := func(do func(x *exchange)) func(*exchange) bool { return only("tools/call", do) }
	for _, tt := range []struct {
		name string
		bare bool
		on   func(x *exchange) bool
		fate string
	}{
		{"403", false, call(func(x *exchange) { x.reject(403, "") }), "not executed: HTTP 403"},
		{"405", false, call(func(x *exchange) { x.reject(405, "") }), "not executed: HTTP 405"},
		{"429", false, call(func(x *exchange) { x.reject(429, "") }), "not executed: HTTP 429"},
		{"500", false, call(func(x *exchange) { x.reject(500, "") }), "outcome unknown: HTTP 500"},
		{"502", false, call(func(x *exchange) { x.reject(502, "<html>") }), "outcome unknown: HTTP 502"},
		{"503 for no request", false, call(func(x *exchange) { x.reject(503, orphan) }), "the peer says -32000"},
		{"no session was issued", true, call(func(x *exchange) { x.reject(404, "") }), "outcome unknown: HTTP 404"},
		{"a cut", false, call(func(x *exchange) { x.cut("") }), "outcome unknown: stream broken"},
		{"no connection", false, call((*exchange).unsent), "not executed: no connection"},
		{"a timeout", false, call(func(*exchange) {}), "outcome unknown: timeout"},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true, bare: tt.bare}
			c := dial(t, w, client.Config{})
			w.becomes(tt.on)
			if got := ask(t.Context(), c, "tools/call"); got != tt.fate {
				t.Errorf("the call: %s, want %s", got, tt.fate)
			}
			pass(time.Minute)
			w.becomes(nil)
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Errorf("the next call: %s", got)
			}
			if n, pings := w.count("initialize"), w.count("ping"); n != 1 || pings != 0 {
				t.Errorf("%d initialize and %d pings in all", n, pings)
			}
		})
	}
}

func TestH3_AReplyAndAResumeAreNoWitnesses(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(t *testing.T, w *web, c *client.Client)
		want []string
	}{
		{"a reply", func(_ *testing.T, w *web, _ *client.Client) {
			w.stream().Write(0, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		}, []string{"reply(S1)"}},
		{"a resume", func(t *testing.T, w *web, c *client.Client) {
			w.becomes(only("tools/call", func(x *exchange) { x.cut("7") }))
			if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
				t.Errorf("the call: %s", got)
			}
			w.becomes(nil)
		}, []string{"tools/call(S1)", "GET 7(S1)"}},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true, open: true}
			c := dial(t, w, client.Config{})
			w.forget()
			tt.say(t, w, c)
			pass(10 * time.Second)
			if diff := cmp.Diff(tt.want, w.took()); diff != "" {
				t.Error(diff)
			}
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Errorf("the next request finds out: %s", got)
			}
			pass(time.Second)
			if diff := cmp.Diff(slices.Concat([]string{"tools/list(S1)"}, recovery(2), []string{"tools/list(S2)"}), w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestH4_AGetThatNeverWorkedIsNoSign(t *testing.T) {
	for _, status := range []int{200, 202, 204, 400, 401, 403, 404, 405, 406, 409, 429, 501} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			w := &web{legacy: true}
			w.becomes(func(x *exchange) bool {
				if x.Op != transports.OpListen {
					return false
				}
				x.reject(status, "")
				return true
			})
			c := dial(t, w, client.Config{})
			for range 3 {
				if got := ask(t.Context(), c, "tools/list"); got != "answered" {
					t.Errorf("a call: %s", got)
				}
				pass(time.Minute)
			}
			if diff := cmp.Diff(same(3, "tools/list(S1)"), w.took()); diff != "" {
				t.Errorf("after the connect: %s", diff)
			}
			if n := w.count("GET"); n != 1 {
				t.Errorf("%d GETs", n)
			}
		})
	}
}

func TestH4_AGetThatHadWorkedMakesItsSessionSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		w.stream().cut("")
		pass(250 * time.Millisecond)
		if diff := cmp.Diff([]string{"GET(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
		w.forget()
		w.stream().cut("")
		pass(time.Minute)
		if diff := cmp.Diff([]string{"GET(S1)", "ping(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Errorf("the next call: %s", got)
		}
		if diff := cmp.Diff(append(recovery(2), "tools/call(S2)"), w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH4_ASessionThatAnswersItsPingKeepsTryingItsGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		dial(t, w, client.Config{})
		w.becomes(func(x *exchange) bool {
			if x.Op != transports.OpListen {
				return false
			}
			x.reject(404, "")
			return true
		})
		w.stream().cut("")
		pass(time.Second)
		w.becomes(nil)
		pass(time.Minute)
		if diff := cmp.Diff([]string{"GET(S1)", "ping(S1)", "GET(S1)", "ping(S1)", "GET(S1)"}, w.took()); diff != "" { // after 250 ms, 750 ms and 1.75 s
			t.Error(diff)
		}
	})
}
