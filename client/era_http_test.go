package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

// connects to a server whose answer to server/discover is special, and tells the era or how Connect
// failed, and what was on the wire.
func connects(t *testing.T, w *web) (era string, took []string) {
	t.Helper()
	c, err := client.Connect(t.Context(), w.factory(), &client.Config{Logger: quiet()})
	if err != nil {
		version, rest := new(client.VersionError), new(client.HTTPError)
		switch {
		case errors.As(err, &version):
			era = fmt.Sprintf("no common version with %v", version.Theirs)
		case errors.As(err, &rest):
			era = fmt.Sprintf("HTTP %d", rest.Status)
		case errors.Is(err, errNoConnection):
			era = "no connection"
		default:
			era = err.Error()
		}
		return era, w.took()
	}
	s := c.Server()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return s.Era + " " + s.Version, w.took()
}

func TestB083_OverHTTPTheEraIsFoundByTheRulesOfTheSpecification(t *testing.T) {
	handshake := []string{"server/discover()", "initialize()", "notifications/initialized(S1)", "GET(S1)"}
	probe := []string{"server/discover()"}
	legacyByStatus := map[int]bool{400: true, 404: true, 405: true, 406: true, 410: true, 415: true, 422: true}
	for _, status := range []int{400, 401, 403, 404, 405, 406, 410, 415, 422, 429, 500, 501, 502, 503} {
		for name, body := range map[string]string{"": "", " HTML": "<html>", " with an error": orphan} {
			bubble(t, fmt.Sprint(status, name), func(t *testing.T) {
				w := &web{legacy: true, on: only("server/discover", func(x *exchange) { x.reject(status, body) })}
				era, took := connects(t, w)
				wantEra, want := fmt.Sprintf("HTTP %d", status), probe
				if legacyByStatus[status] {
					wantEra, want = "legacy 2025-11-25", handshake
				} else if body == orphan {
					wantEra = "client: connect web: client: opening exchange: server/discover: client: the server answered with an error: Bad Request: no valid session (code -32000)"
				}
				if era != wantEra {
					t.Errorf("the server is %s, want %s", era, wantEra)
				}
				if diff := cmp.Diff(want, took); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
	for name, tt := range map[string]struct {
		legacy bool
		on     func(x *exchange)
		era    string
		want   []string
	}{
		"200 method not found":      {true, func(x *exchange) { x.fail(-32601, "", "") }, "legacy 2025-11-25", handshake},
		"200 invalid params":        {true, func(x *exchange) { x.fail(-32602, "", "") }, "legacy 2025-11-25", handshake},
		"200 another error":         {true, func(x *exchange) { x.fail(-32000, "", "") }, "legacy 2025-11-25", handshake},
		"200 in HTML":               {true, func(x *exchange) { x.reject(200, "<html>") }, "HTTP 200", probe},
		"no connection":             {true, (*exchange).unsent, "no connection", probe},
		"a result that is none":     {true, func(x *exchange) { x.result(`{}`) }, "legacy 2025-11-25", handshake},
		"legacy versions alone":     {true, func(x *exchange) { x.result(`{"supportedVersions":["2025-06-18"],"capabilities":{}}`) }, "legacy 2025-11-25", handshake},
		"versions of nobody":        {false, func(x *exchange) { x.result(`{"supportedVersions":["1999-01-01"],"capabilities":{}}`) }, "no common version with [1999-01-01]", probe},
		"-32022 with none of ours":  {false, func(x *exchange) { x.reject(400, x.error(-32022, "", `{"supported":["2031-01-01"]}`)) }, "no common version with [2031-01-01]", probe},
		"-32022 with a legacy one":  {true, func(x *exchange) { x.reject(400, x.error(-32022, "", `{"supported":["2025-11-25"]}`)) }, "legacy 2025-11-25", handshake},
		"-32021 capability missing": {false, func(x *exchange) { x.reject(400, x.error(-32021, "sampling", "")) }, "client: connect web: client: opening exchange: server/discover: client: the server answered with an error: sampling (code -32021)", probe},
		"-32020 header mismatch":    {false, func(x *exchange) { x.reject(400, x.error(-32020, "header", "")) }, "client: connect web: client: opening exchange: server/discover: client: the server answered with an error: header (code -32020)", probe},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{legacy: tt.legacy, on: only("server/discover", tt.on)}
			era, took := connects(t, w)
			if era != tt.era {
				t.Errorf("the server is %s, want %s", era, tt.era)
			}
			if diff := cmp.Diff(tt.want, took); diff != "" {
				t.Error(diff)
			}
		})
	}
	bubble(t, "-32022 once and then modern", func(t *testing.T) {
		w := &web{on: times(1, only("server/discover", func(x *exchange) {
			x.reject(400, x.error(-32022, "", `{"supported":["2026-07-28"]}`))
		}))}
		era, took := connects(t, w)
		if era != "modern 2026-07-28" {
			t.Error(era)
		}
		if diff := cmp.Diff(same(2, "server/discover()"), took); diff != "" {
			t.Error(diff)
		}
	})
}

// A modern frame and an initialize never carry a session, even if a server hands
// one out: the transport sees to that by what the engine puts into the header.
func TestB016_EveryModernRequestNamesItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := connectTo(t, w.factory(), client.Config{})
		listen(t, c, everything, &diary{})
		ask(t.Context(), c, "tools/call")
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		for _, x := range w.exchanges() {
			if v := x.Header.Get("Mcp-Protocol-Version"); v != "2026-07-28" {
				t.Errorf("%s names version %q", x, v)
			}
		}
	})
}

func TestB095_OverHTTPAServerThatChangedItsEraIsFoundInOneAttempt(t *testing.T) {
	change := func(w *web) { w.become(func(w *web) { w.legacy, w.knows = !w.legacy, nil }) }
	t.Run("legacy_to_modern", func(t *testing.T) {
		for name, refusal := range map[string]func(x *exchange){
			"404":                 func(x *exchange) { x.reject(404, "") },
			"400 header mismatch": func(x *exchange) { x.reject(400, x.error(-32020, "Mcp-Method is missing", "")) },
			"400 version":         func(x *exchange) { x.reject(400, x.error(-32022, "", `{"supported":["2026-07-28"]}`)) },
			"400 for no one":      func(x *exchange) { x.reject(400, orphan) },
		} {
			bubble(t, name, func(t *testing.T) {
				w := &web{legacy: true, open: true}
				var lives diary
				c := dial(t, w, lives.of(client.Config{}))
				change(w)
				w.becomes(func(x *exchange) bool {
					if x.session == "" || x.Op != transports.OpMessage {
						return false
					}
					refusal(x) // a modern server ignores the session and misses its headers
					return true
				})
				if got := ask(t.Context(), c, "tools/call"); got != "answered" {
					t.Error(got)
				}
				if s := c.Server(); s.Era != "modern" {
					t.Errorf("the server is %s", s.Era)
				}
				pass(time.Minute)
				took := w.took()
				if n := slices.Index(took, "ping(S1)"); n >= 0 {
					took = slices.Delete(took, n, n+1)
				}
				want := []string{"tools/call(S1)", "initialize()", "server/discover()", "tools/call()"}
				if diff := cmp.Diff(want, took); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"1 ended: HTTP", "2 serves"}, short(lives.read())); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
	t.Run("modern_to_legacy", func(t *testing.T) {
		for name, refusal := range map[string]func(x *exchange){
			"400":             func(x *exchange) { x.reject(400, "Bad Request: no session") },
			"404":             func(x *exchange) { x.reject(404, "") },
			"405":             func(x *exchange) { x.reject(405, "<html>") },
			"400 for id null": func(x *exchange) { x.reject(400, orphan) },
			"400 without an id": func(x *exchange) {
				x.reject(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Server not initialized"}}`)
			},
			"404 for an id of the server's": func(x *exchange) {
				x.reject(404, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`)
			},
		} {
			bubble(t, name, func(t *testing.T) {
				w := &web{}
				c := dial(t, w, client.Config{})
				change(w)
				w.becomes(only("tools/call", func(x *exchange) {
					if x.session == "" {
						refusal(x)
						return
					}
					x.answer()
				}))
				if diff := cmp.Diff(same(3, "answered"), asks(t.Context(), c, 3, "tools/call")()); diff != "" {
					t.Error(diff)
				}
				if s := c.Server(); s.Era != "legacy" {
					t.Errorf("the server is %s", s.Era)
				}
				pass(time.Minute)
				if discovers, inits := w.count("server/discover"), w.count("initialize"); discovers != 3 || inits != 1 {
					t.Errorf("%d discovers (the first, the one that settles it, the new era's) and %d initializes", discovers, inits)
				}
			})
		}
	})
	bubble(t, "a disjoint version list", func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		change(w)
		w.becomes(anyOf(
			only("server/discover", func(x *exchange) { x.result(`{"supportedVersions":["2031-01-01"],"capabilities":{}}`) }),
			only("initialize", func(x *exchange) { x.reject(400, x.error(-32022, "", `{"supported":["2031-01-01"]}`)) }),
			func(x *exchange) bool { x.reject(404, ""); return true }))
		err := c.Call(t.Context(), "tools/call", nil, nil)
		version := new(client.VersionError)
		if !errors.As(err, &version) || fmt.Sprint(version.Theirs) != "[2031-01-01]" || fateOf(err) != "not executed: no new session" {
			t.Errorf("the call: %v", err)
		}
		pass(time.Hour)
		if diff := cmp.Diff([]string{"tools/call(S1)", "initialize()", "server/discover()"}, w.took()); diff != "" {
			t.Errorf("no loop: %s", diff)
		}
	})
}

// An error that names its request may show the era, too, but the tool may have run.
func TestB095_WhoDoubtsTheEraByItsOwnAnswerIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{})
		w.become(func(w *web) { w.legacy = true })
		w.becomes(times(1, only("tools/call", func(x *exchange) { x.reject(400, x.error(-32600, "Missing session ID", "")) })))
		if got := ask(t.Context(), c, "tools/call"); got != "the peer says -32600" {
			t.Error(got)
		}
		if got := ask(t.Context(), c, "tools/call"); got != "answered" || c.Server().Era != "legacy" {
			t.Errorf("the next call: %s, and the server is %s", got, c.Server().Era)
		}
		pass(time.Minute)
		want := slices.Concat([]string{"tools/call()", "server/discover()", "server/discover()"}, recovery(1), []string{"tools/call(S1)"})
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

// What a modern server answers is no sign that it is none, and trouble on the way
// is none either.
func TestB095_AModernServerIsDoubtedOnlyForAReason(t *testing.T) {
	for name, tt := range map[string]struct {
		answer   func(x *exchange)
		discover func(x *exchange)
		fate     string
		want     []string
	}{
		"404 method not found":      {func(x *exchange) { x.reject(404, x.error(-32601, "", "")) }, nil, "the peer says -32601", []string{"acme/x()"}},
		"400 with an error":         {func(x *exchange) { x.reject(400, x.error(-32602, "", "")) }, nil, "the peer says -32602", []string{"acme/x()"}},
		"401":                       {func(x *exchange) { x.reject(401, "") }, nil, "not executed: HTTP 401", []string{"acme/x()"}},
		"503":                       {func(x *exchange) { x.reject(503, "") }, nil, "outcome unknown: HTTP 503", []string{"acme/x()"}},
		"400 with its own error":    {func(x *exchange) { x.reject(400, x.error(-32050, "", "")) }, nil, "the peer says -32050", []string{"acme/x()", "server/discover()"}},
		"400 for no one":            {func(x *exchange) { x.reject(400, orphan) }, nil, "the peer says -32000", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and modern":   {func(x *exchange) { x.reject(404, "<html>") }, nil, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and 503":      {func(x *exchange) { x.reject(404, "<html>") }, func(x *exchange) { x.reject(503, "") }, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and 401":      {func(x *exchange) { x.reject(404, "<html>") }, func(x *exchange) { x.reject(401, "") }, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and silence":  {func(x *exchange) { x.reject(404, "<html>") }, func(*exchange) {}, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and -32022":   {func(x *exchange) { x.reject(404, "<html>") }, func(x *exchange) { x.reject(400, x.error(-32022, "", `{}`)) }, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, and a crash":  {func(x *exchange) { x.reject(404, "<html>") }, func(x *exchange) { x.cut("") }, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"404 in HTML, unreachable":  {func(x *exchange) { x.reject(404, "<html>") }, (*exchange).unsent, "outcome unknown: HTTP 404", []string{"acme/x()", "server/discover()"}},
		"405 without a body, alive": {func(x *exchange) { x.reject(405, "") }, nil, "not executed: HTTP 405", []string{"acme/x()", "server/discover()"}},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			ons := []func(*exchange) bool{only("acme/x", tt.answer)}
			if tt.discover != nil {
				ons = append(ons, only("server/discover", tt.discover))
			}
			w.becomes(anyOf(ons...))
			if got := ask(t.Context(), c, "acme/x"); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			pass(time.Minute)
			if diff := cmp.Diff(tt.want, w.took()); diff != "" {
				t.Error(diff)
			}
			w.becomes(nil)
			if got := ask(t.Context(), c, "tools/call"); got != "answered" || c.Server().Era != "modern" {
				t.Error(got, c.Server().Era)
			}
		})
	}
}

// Subscriptions are translated: what was a resources/subscribe is a listen stream
// of the modern server, and the other way round.
func TestB095_SubscriptionsFollowTheEra(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		bubble(t, fmt.Sprintf("from legacy %t", legacy), func(t *testing.T) {
			w := &web{legacy: legacy, open: true, capabilities: `{"resources":{"subscribe":true}}`}
			c := dial(t, w, client.Config{})
			var heard diary
			s := listen(t, c, client.Filter{URIs: []string{"a"}}, &heard)
			w.become(func(w *web) { w.legacy, w.knows = !legacy, nil })
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
			pass(time.Second)
			if legacy {
				x := w.find(listenMethod)
				x.say("notifications/resources/updated", fmt.Sprintf(`{"uri":"a","_meta":{%q:%s}}`, subscriptionID, x.ID))
			} else {
				w.stream().say("notifications/resources/updated", `{"uri":"a"}`)
			}
			if got := ended(t, s); got != "goes on" {
				t.Error(got)
			}
			if diff := cmp.Diff([]string{"2 resources/updated"}, heard.read()); diff != "" {
				t.Error(diff)
			}
			if n := w.count("resources/subscribe") + w.count(listenMethod); n != 2 {
				t.Errorf("%d subscriptions on the wire", n)
			}
		})
	}
}

// Whoever listens needs the server, and may be the only one who asks for anything.
func TestB095_ASubscriptionAloneFindsTheNewEra(t *testing.T) {
	for name, refusal := range map[string]func(x *exchange){
		"404":                      func(x *exchange) { x.reject(404, "Not Found") },
		"400 for id null":          func(x *exchange) { x.reject(400, orphan) },
		"400 with an error for it": func(x *exchange) { x.reject(400, x.error(-32600, "no session", "")) },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{capabilities: `{"tools":{"listChanged":true}}`}
			c := dial(t, w, client.Config{})
			var heard diary
			s := listen(t, c, client.Filter{Tools: true}, &heard)
			synctest.Wait()
			w.become(func(w *web) { w.legacy, w.open = true, true })
			w.becomes(only(listenMethod, refusal))
			w.find(listenMethod).cut("")
			pass(time.Minute)
			want := slices.Concat(same(2, listenMethod+"()"), same(2, "server/discover()"), recovery(1))
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
			w.stream().say("notifications/tools/list_changed", `{}`)
			if got := ended(t, s); got != "goes on" || c.Server().Era != "legacy" {
				t.Errorf("it %s, and the server is %s", got, c.Server().Era)
			}
			if diff := cmp.Diff([]string{"2 tools/list_changed"}, heard.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A server that has no such streams says so by an error of its own, and lives.
func TestB095_ARefusedSubscriptionOfAServerThatIsModernStillEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		refusal func(x *exchange)
		asks    bool
	}{
		"404 method not found": {func(x *exchange) { x.reject(404, x.error(-32601, "", "")) }, false},
		"404 in HTML":          {func(x *exchange) { x.reject(404, "<html>") }, true},
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{on: only(listenMethod, tt.refusal)}
			c := dial(t, w, client.Config{})
			s := listen(t, c, client.Filter{Tools: true}, &diary{})
			pass(time.Minute)
			if got := ended(t, s); got == "goes on" || c.Server().Era != "modern" {
				t.Errorf("it %s, and the server is %s", got, c.Server().Era)
			}
			want := []string{listenMethod + "()"}
			if tt.asks {
				want = append(want, "server/discover()")
			}
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestS50_OverHTTPAnotherVersionThatBothKnowIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.becomes(only("initialize", func(x *exchange) {
			w.become(func(w *web) { w.next++; *x.issued = "S2"; w.knows = append(w.knows, "S2") })
			x.result(`{"protocolVersion":"2025-06-18","capabilities":{}}`)
		}))
		w.forget()
		if got := ask(t.Context(), c, "tools/call"); got != "answered" || c.Server().Version != "2025-06-18" {
			t.Error(got, c.Server().Version)
		}
		if v := w.find("tools/call").Header.Get("Mcp-Protocol-Version"); v != "2025-06-18" {
			t.Errorf("the request names version %q", v)
		}
	})
}
