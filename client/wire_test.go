package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

func TestH5_OverRealHTTPTheOrderAndTheHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		if err := c.Call(t.Context(), "logging/setLevel", map[string]string{"level": "error"}, nil); err != nil {
			t.Fatal(err)
		}
		s.hits()
		s.forget()
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		pass(time.Second)
		var got []string
		for _, h := range s.hits() {
			got = append(got, fmt.Sprintf("%s %s %s", h.Request.Method, h, h.Request.Header.Get("Mcp-Protocol-Version")))
		}
		// The GET is started after the session is there, and not awaited.
		get := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "GET") })
		if get < 3 {
			t.Fatalf("no GET, or one too early: %v", got)
		}
		opened := got[get]
		got = slices.Insert(slices.Delete(got, get, get+1), 3, opened)
		want := []string{
			"POST tools/call(S1) 2025-11-25",
			"POST initialize() ",
			"POST notifications/initialized(S2) 2025-11-25",
			"GET GET(S2) 2025-11-25",
			"POST logging/setLevel(S2) 2025-11-25",
			"POST tools/call(S2) 2025-11-25",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestH6_OverRealHTTPAThousandCallersRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		s.forget()
		var all sync.WaitGroup
		all.Add(1000)
		s.becomes(func(h *hit) bool {
			if h.Session == "S1" && h.Method == "tools/call" {
				all.Done()
				all.Wait()
			}
			return false
		})
		if diff := cmp.Diff(same(1000, "answered"), asks(t.Context(), c, 1000, "tools/call")()); diff != "" {
			t.Error(diff)
		}
		pass(time.Second)
		if inits, calls := s.count("initialize"), s.count("tools/call"); inits != 2 || calls != 2000 {
			t.Errorf("%d initializes and %d calls in all", inits, calls)
		}
	})
}

func TestH3_OverRealHTTPANotificationIsNoWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		s.forget()
		if got := fateOf(c.Notify(t.Context(), "notifications/roots/list_changed", nil)); got != "outcome unknown: HTTP 404" {
			t.Errorf("the notification: %s", got)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]string{"notifications/roots/list_changed(S1)"}, s.took()); diff != "" {
			t.Error(diff)
		}
		if got := ask(t.Context(), c, "tools/list"); got != "answered" {
			t.Error(got)
		}
		if err := c.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil {
			t.Errorf("on the new session: %v", err)
		}
		if n := s.count("initialize"); n != 2 {
			t.Errorf("%d initializes", n)
		}
	})
}

func TestH11_OverRealHTTPNoModernFrameCarriesASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &site{})
		s.becomes(func(h *hit) bool {
			h.Header().Set("Mcp-Session-Id", "unasked")
			return false
		})
		c := browse(t, s, client.Config{})
		for range 2 {
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
		}
		_ = c.Close(t.Context())
		if diff := cmp.Diff(same(2, "tools/call()"), s.took()); diff != "" {
			t.Errorf("and there is nothing to delete: %s", diff)
		}
	})
}

func TestH14_OverRealHTTPWhoseSessionIsDeleted(t *testing.T) {
	bubble(t, "at Close", func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		_ = c.Close(t.Context())
		if diff := cmp.Diff([]string{"DELETE(S1)"}, s.took()); diff != "" {
			t.Error(diff)
		}
	})
	bubble(t, "a retired one is not", func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		s.forget()
		ask(t.Context(), c, "ping")
		pass(time.Minute)
		_ = c.Close(t.Context())
		if diff := cmp.Diff(slices.Concat([]string{"ping(S1)"}, recovery(2), []string{"ping(S2)", "DELETE(S2)"}), ordered(s.took())); diff != "" {
			t.Error(diff)
		}
	})
	for name, tt := range map[string]struct {
		after time.Duration
		want  []string
		took  time.Duration
	}{
		"one that an initialize shows in time":  {time.Second, []string{"tools/call(S1)", "initialize()", "DELETE(S2)"}, time.Second},
		"one that an initialize shows too late": {3 * time.Second, []string{"tools/call(S1)", "initialize()"}, 2 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newSite(t, &site{legacy: true})
			c := browse(t, s, client.Config{WaitForReady: true})
			s.forget()
			s.becomes(hitOnly("initialize", func(h *hit) {
				time.Sleep(tt.after)
				h.initialize()
			}))
			fates := asks(t.Context(), c, 1, "tools/call")
			synctest.Wait()
			began := time.Now()
			_ = c.Close(t.Context())
			if d := time.Since(began); d != tt.took {
				t.Errorf("Close took %s", d)
			}
			if diff := cmp.Diff([]string{"not executed: closed"}, fates()); diff != "" {
				t.Error(diff)
			}
			pass(time.Minute)
			if diff := cmp.Diff(tt.want, s.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ordered puts a GET, which is started and not awaited, where it was started.
func ordered(lines []string) []string {
	for i, line := range lines {
		if i > 0 && strings.HasPrefix(line, "GET") && !strings.HasPrefix(lines[i-1], "notifications/initialized") {
			lines[i-1], lines[i] = lines[i], lines[i-1]
		}
	}
	return lines
}

// breaks are the ways in which a response ends without its answer.
var breaks = map[string]func(h *hit){
	"an event stream that ends": func(h *hit) { h.stream() },
	"one that is cut":           func(h *hit) { h.stream(); h.write(": hello\n\n"); h.cut() },
	"half an event": func(h *hit) {
		h.stream()
		h.write("data: " + h.message(`{"half":true}`))
	},
	"a JSON body that is cut": func(h *hit) {
		h.Header().Set("Content-Type", "application/json")
		h.Header().Set("Content-Length", "100")
		h.write(`{"jsonrpc":"2.0","id":`)
		h.cut()
	},
	"a JSON body without a length that is cut": func(h *hit) {
		h.Header().Set("Content-Type", "application/json")
		h.write(`{"jsonrpc":"2.0","id":`)
		h.cut()
	},
	"a reset before the headers": func(h *hit) { panic(http.ErrAbortHandler) },
}

func TestM1_OverRealHTTPEveryBreakOfAReadIsHealedOnce(t *testing.T) {
	for name, cut := range breaks {
		for times, want := range map[int64]string{1: "answered", 2: "outcome unknown: stream broken"} {
			bubble(t, fmt.Sprintf("%s %d times", name, times), func(t *testing.T) {
				s := newSite(t, &site{})
				c := browse(t, s, client.Config{})
				s.becomes(hitTimes(times, hitOnly("resources/read", cut)))
				if got := ask(t.Context(), c, "resources/read"); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				hits := s.hits()
				if len(hits) != 2 || hits[0].ID == hits[1].ID {
					t.Errorf("%v", hits)
				}
				if got := hits[1].Request.Header; got.Get("Mcp-Method") != "resources/read" || got.Get("Mcp-Name") != "file:///x" ||
					got.Get("Mcp-Protocol-Version") != "2026-07-28" || got.Get("Mcp-Session-Id") != "" {
					t.Errorf("the headers of the second: %v", got)
				}
			})
		}
	}
}

func TestM4_OverRealHTTPAToolThatRanIsNotIssuedAgain(t *testing.T) {
	for name, cut := range breaks {
		for _, legacy := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s legacy %t", name, legacy), func(t *testing.T) {
				s := newSite(t, &site{legacy: legacy})
				c := browse(t, s, client.Config{RetryLost: true})
				s.becomes(hitOnly("tools/call", cut))
				if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
					t.Error(got)
				}
				pass(time.Minute)
				if n := s.count("tools/call"); n != 1 {
					t.Errorf("%d POSTs", n)
				}
				s.becomes(nil)
				if got := ask(t.Context(), c, "tools/call"); got != "answered" {
					t.Errorf("the next call: %s", got)
				}
			})
		}
	}
}

func TestM2_OverRealHTTPAnAnswerIsAnAnswerWhateverFollows(t *testing.T) {
	for name, do := range map[string]func(h *hit){
		"a stream that stays open": func(h *hit) {
			h.stream()
			h.write("data: " + h.message(`{}`) + "\n\n")
			<-h.Request.Context().Done()
		},
		"a stream that is cut": func(h *hit) {
			h.stream()
			h.write("data: " + h.message(`{}`) + "\n\n")
			h.cut()
		},
		"an error in a stream": func(h *hit) {
			h.stream()
			h.write(`data: {"jsonrpc":"2.0","id":` + h.ID + `,"error":{"code":-32000,"message":"EOF"}}` + "\n\n")
			h.cut()
		},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newSite(t, &site{})
			c := browse(t, s, client.Config{})
			s.becomes(hitOnly("resources/read", do))
			want := "answered"
			if name == "an error in a stream" {
				want = "the peer says -32000"
			}
			began := time.Now()
			if got := ask(t.Context(), c, "resources/read"); got != want || time.Since(began) != 0 {
				t.Errorf("%s after %s", got, time.Since(began))
			}
			pass(time.Minute)
			if diff := cmp.Diff([]string{"resources/read()"}, s.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestM12_OverRealHTTPAStreamIsResumed(t *testing.T) {
	bubble(t, "with its cursor, after the delay it asked for", func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		var at time.Time
		var call *hit
		s.becomes(func(h *hit) bool {
			switch {
			case h.Method == "tools/call":
				call = h
				h.stream()
				h.write("id: e1\nretry: 700\ndata:\n\n") // a priming event (2025-11-25, Sending Messages, 6)
				at = time.Now()
			case h.Request.Header.Get("Last-Event-ID") == "e1":
				if d := time.Since(at); d != 700*time.Millisecond {
					t.Errorf("it was resumed after %s", d)
				}
				h.stream()
				h.write("id: e2\ndata: " + call.message(`{}`) + "\n\n")
			default:
				return false
			}
			return true
		})
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		var methods []string
		for _, h := range s.hits() {
			methods = append(methods, h.Request.Method+" "+h.String())
		}
		if diff := cmp.Diff([]string{"POST tools/call(S1)", "GET GET e1(S1)"}, methods); diff != "" {
			t.Error(diff)
		}
	})
	bubble(t, "as often as the server closes it, and nothing comes twice", func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		var progress []string
		c := browse(t, s, client.Config{})
		var call *hit
		event := func(n int) string {
			return fmt.Sprintf("id: e%d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d,\"message\":\"%d\"}}\n\n", n, call.ID, n, n)
		}
		s.becomes(func(h *hit) bool {
			switch from := h.Request.Header.Get("Last-Event-ID"); {
			case h.Method == "tools/call":
				call = h
				h.stream()
				h.write(event(1))
			case from == "e8":
				h.stream()
				h.write("id: e9\ndata: " + call.message(`{}`) + "\n\n")
			case from != "":
				var n int
				if _, err := fmt.Sscanf(from, "e%d", &n); err != nil {
					t.Error(err)
				}
				h.stream()
				h.write(event(n + 1))
			default:
				return false
			}
			return true
		})
		_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(p client.Progress) { progress = append(progress, p.Message) }})
		if got := fateOf(err); got != "answered" {
			t.Error(got)
		}
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6", "7", "8"}, progress); diff != "" {
			t.Error(diff)
		}
		if posts, gets := s.count("tools/call"), s.count("GET"); posts != 1 || gets != 9 { // one of them is the standalone stream
			t.Errorf("%d POSTs and %d GETs", posts, gets)
		}
	})
	bubble(t, "and asked for again while it is silent", func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		c := browse(t, s, client.Config{})
		var call *hit
		var gets atomic.Int64
		s.becomes(func(h *hit) bool {
			switch {
			case h.Method == "tools/call":
				call = h
				h.stream()
				h.write("id: e1\ndata:\n\n")
			case h.Request.Header.Get("Last-Event-ID") == "e1":
				third := gets.Add(1) == 3
				h.stream()
				if third {
					h.write("data: " + call.message(`{}`) + "\n\n")
					return true
				}
				<-h.Request.Context().Done() // an open stream that never hears of anything
			default:
				return false
			}
			return true
		})
		if got := ask(t.Context(), c, "tools/call"); got != "answered" || gets.Load() != 3 {
			t.Errorf("%s after %d GETs", got, gets.Load())
		}
	})
}

func TestS46_OverRealHTTPAListenStreamComesBackWithoutAStorm(t *testing.T) {
	bubble(t, "closed at once", func(t *testing.T) {
		s := newSite(t, &site{})
		c := browse(t, s, client.Config{})
		s.becomes(hitOnly(listenMethod, func(h *hit) { h.stream(); h.write(h.acknowledged()) }))
		l := listen(t, c, client.Filter{Tools: true}, &diary{})
		pass(2 * time.Second)
		if n := s.count(listenMethod); n < 3 || n > 6 {
			t.Errorf("%d openings in 2 s", n)
		}
		if got := ended(t, l); got != "goes on" {
			t.Error(got)
		}
	})
	bubble(t, "cut, and news on the next one", func(t *testing.T) {
		s := newSite(t, &site{})
		c := browse(t, s, client.Config{})
		var n atomic.Int64
		s.becomes(hitOnly(listenMethod, func(h *hit) {
			first := n.Add(1) == 1
			h.stream()
			h.write(h.acknowledged())
			if first {
				time.Sleep(10 * time.Second)
				h.cut()
			}
			h.write(h.news("notifications/tools/list_changed"))
			<-h.Request.Context().Done()
		}))
		var heard diary
		listen(t, c, client.Filter{Tools: true}, &heard)
		pass(10*time.Second + 250*time.Millisecond)
		if diff := cmp.Diff([]string{"1 tools/list_changed"}, heard.read()); diff != "" {
			t.Error(diff)
		}
	})
	bubble(t, "a graceful end", func(t *testing.T) {
		s := newSite(t, &site{})
		c := browse(t, s, client.Config{})
		s.becomes(hitOnly(listenMethod, func(h *hit) {
			h.stream()
			h.write(h.acknowledged())
			h.write("data: " + h.message(`{"resultType":"complete"}`) + "\n\n")
		}))
		l := listen(t, c, client.Filter{Tools: true}, &diary{})
		if got := ended(t, l); got != "ended" {
			t.Error(got)
		}
		pass(time.Hour)
		if n := s.count(listenMethod); n != 1 {
			t.Errorf("%d openings", n)
		}
	})
	bubble(t, "closed by its caller", func(t *testing.T) {
		s := newSite(t, &site{})
		c := browse(t, s, client.Config{})
		left := make(chan struct{})
		s.becomes(hitOnly(listenMethod, func(h *hit) {
			h.stream()
			h.write(h.acknowledged())
			<-h.Request.Context().Done()
			close(left)
		}))
		l := listen(t, c, client.Filter{Tools: true}, &diary{})
		l.Close()
		<-left // closing the stream is the cancellation
		if diff := cmp.Diff([]string{"subscriptions/listen()"}, s.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func (h *hit) acknowledged() string {
	return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{%q:%s},\"notifications\":{\"toolsListChanged\":true}}}\n\n", subscriptionID, h.ID)
}

func (h *hit) news(method string) string {
	return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{%q:%s}}}\n\n", method, subscriptionID, h.ID)
}

func TestM13_OverRealHTTPACallMadeWhileTheServerIsDown(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		bubble(t, fmt.Sprintf("legacy %t", legacy), func(t *testing.T) {
			s := newSite(t, &site{legacy: legacy})
			c := browse(t, s, client.Config{})
			s.client.CloseIdleConnections()
			s.down.Store(true)
			if got := ask(t.Context(), c, "tools/call"); got != "not executed: no connection" {
				t.Error(got)
			}
			patient := make(chan string)
			go func() {
				_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Wait: client.WaitReady})
				patient <- fateOf(err)
			}()
			pass(5 * time.Second)
			if legacy {
				s.forget() // it was restarted
			}
			s.down.Store(false)
			if got := <-patient; got != "answered" {
				t.Error(got)
			}
			runs := 0
			for _, h := range s.hits() {
				if h.Method == "tools/call" && (!legacy || h.Session == "S2") {
					runs++
				}
			}
			if runs != 1 {
				t.Errorf("it ran %d times", runs)
			}
		})
	}
}

// tokens is an Authorizer whose token expires when it is told.
type tokens struct {
	mu    sync.Mutex
	n     int
	asked int
}

func (a *tokens) Authorize(context.Context, streamable.Reason) (streamable.Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return streamable.Credentials{Authorization: fmt.Sprintf("Bearer %d", a.n)}, nil
}

func TestB096_AnExpiredTokenAndALostSessionAtTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &site{legacy: true})
		auth := &tokens{}
		f := streamable.Config{URL: "http://site.test/mcp", Client: s.client, Authorizer: auth}.Factory()
		valid := "Bearer 0"
		s.becomes(func(h *hit) bool {
			s.mu.Lock()
			ok := h.Request.Header.Get("Authorization") == valid
			s.mu.Unlock()
			if !ok {
				h.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
				h.reject(401, "")
			}
			return !ok
		})
		c := connectTo(t, f, client.Config{})
		synctest.Wait()
		s.hits()
		s.mu.Lock()
		valid = "Bearer 1"
		s.mu.Unlock()
		auth.mu.Lock()
		auth.n, auth.asked = 1, 0
		auth.mu.Unlock()
		s.forget()
		if diff := cmp.Diff(same(20, "answered"), asks(t.Context(), c, 20, "tools/call")()); diff != "" {
			t.Error(diff)
		}
		pass(time.Second)
		if auth.asked != 1 {
			t.Errorf("the token was renewed %d times", auth.asked)
		}
		if inits, calls := s.count("initialize"), s.count("tools/call"); inits != 2 || calls > 60 {
			t.Errorf("%d initializes and %d calls", inits, calls)
		}
	})
}

func TestB008_OverRealHTTPA401CostsOneRenewalAndOneInitialize(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		bubble(t, fmt.Sprintf("another token comes of it %t", renewed), func(t *testing.T) {
			s := newSite(t, &site{legacy: true})
			auth := &tokens{}
			c := connectTo(t, streamable.Config{URL: "http://site.test/mcp", Client: s.client, Authorizer: auth}.Factory(), client.Config{})
			synctest.Wait()
			s.hits()
			s.forget()
			s.becomes(func(h *hit) bool {
				if s.knowsIt(h.Session) || h.Method == "initialize" {
					return false
				}
				h.reject(401, "Unauthorized: Session not found") // and no challenge
				return true
			})
			auth.mu.Lock()
			if auth.asked = 0; renewed {
				auth.n++
			}
			auth.mu.Unlock()
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Error(got)
			}
			pass(time.Minute)
			if auth.asked != 1 || s.count("initialize") != 2 {
				t.Errorf("%d renewals and %d initializes", auth.asked, s.count("initialize"))
			}
		})
	}
}

func TestB102_OverRealHTTPABadAnswerDisturbsNobodyElse(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(h *hit)
		fate string
	}{
		"HTML":                       {func(h *hit) { h.Header().Set("Content-Type", "text/html"); h.write("<html>") }, "outcome unknown: HTTP 200"},
		"204":                        {func(h *hit) { h.WriteHeader(204) }, "outcome unknown: HTTP 204"},
		"202":                        {func(h *hit) { h.WriteHeader(202) }, "outcome unknown: HTTP 202"},
		"301 elsewhere":              {func(h *hit) { h.Header().Set("Location", "http://elsewhere.test/mcp"); h.WriteHeader(301) }, "outcome unknown: HTTP 301"},
		"gzip that nobody asked for": {func(h *hit) { h.Header().Set("Content-Encoding", "br"); h.result(`{}`) }, "outcome unknown: HTTP 200"},
		"an answer to another live id": {func(h *hit) {
			h.Header().Set("Content-Type", "application/json")
			h.write(`{"jsonrpc":"2.0","id":3,"result":{"forged":true}}`)
		}, "outcome unknown: HTTP 200"},
		"an endless line": {func(h *hit) {
			h.stream()
			h.write("data: ")
			line := strings.Repeat("x", 1<<20)
			for h.Request.Context().Err() == nil {
				if _, err := io.WriteString(h, line); err != nil {
					return
				}
			}
		}, "outcome unknown: HTTP 200"},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newSite(t, &site{})
			f := streamable.Config{URL: "http://site.test/mcp", Client: s.client, MaxMessage: 4 << 20}.Factory()
			c := connectTo(t, f, client.Config{})
			slow := make(chan struct{})
			s.becomes(func(h *hit) bool {
				switch h.Method {
				case "acme/slow":
					<-slow
				case "acme/bad":
					tt.do(h)
					return true
				}
				return false
			})
			others := asks(t.Context(), c, 10, "acme/slow")
			synctest.Wait()
			if got := ask(t.Context(), c, "acme/bad"); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			close(slow)
			if diff := cmp.Diff(same(10, "answered"), others()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
