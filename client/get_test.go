package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

// get is an on that takes standalone GETs.
func get(do func(n int, x *exchange)) func(x *exchange) bool {
	n := 0
	return func(x *exchange) bool {
		if x.Op != transports.OpListen {
			return false
		}
		n++
		do(n, x)
		return true
	}
}

func TestB016_A404OnTheOptionalGetIsNoLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, on: get(func(_ int, x *exchange) { x.reject(404, "") })}
		c := dial(t, w, client.Config{})
		for range 3 {
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Error(got)
			}
			pass(10 * time.Minute)
		}
		if diff := cmp.Diff(same(3, "tools/list(S1)"), w.took()); diff != "" {
			t.Error(diff)
		}
		if gets, inits := w.count("GET"), w.count("initialize"); gets != 1 || inits != 1 {
			t.Errorf("%d GETs and %d initializes", gets, inits)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a modern server says so of a method
		w := &web{on: only("acme/x", func(x *exchange) { x.reject(404, x.error(-32601, "Method not found", "")) })}
		c := dial(t, w, client.Config{})
		if got := ask(t.Context(), c, "acme/x"); got != "the peer says -32601" {
			t.Error(got)
		}
		if got := ask(t.Context(), c, "tools/list"); got != "answered" || c.State() != fsm.Serving {
			t.Error(got, c.State())
		}
		if diff := cmp.Diff([]string{"acme/x()", "tools/list()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB017_ARefusedGetIsReportedOnceAndDisablesListeningAlone(t *testing.T) {
	for status, warned := range map[int]bool{400: true, 404: true, 405: false, 406: true, 501: true} {
		bubble(t, fmt.Sprint(status), func(t *testing.T) {
			book, logger := logbook()
			w := &web{legacy: true, on: get(func(_ int, x *exchange) { x.reject(status, "") })}
			c := dial(t, w, client.Config{Logger: logger})
			if diff := cmp.Diff(same(3, "answered"), asks(t.Context(), c, 3, "tools/list")()); diff != "" {
				t.Error(diff)
			}
			pass(time.Hour)
			if n := w.count("GET"); n != 1 {
				t.Errorf("%d GETs", n)
			}
			lines := strings.Count(book.String(), fmt.Sprintf("status=%d", status))
			if want := map[bool]int{true: 1, false: 0}[warned]; lines != want {
				t.Errorf("it was logged %d times, want %d: %s", lines, want, book)
			}
		})
	}
}

func TestB037_AStreamThatEndsAtOnceMeetsBackoffHoweverItEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		lives time.Duration
		say   func(x *exchange)
	}{
		"at once":         {0, nil},
		"after 20 ms":     {20 * time.Millisecond, nil},
		"after a comment": {0, func(x *exchange) { x.Emit(transports.Alive{Ref: x.Ref}) }},
		"after a message": {0, func(x *exchange) { x.say("notifications/message", `{"level":"info","data":1}`) }},
	} {
		bubble(t, name, func(t *testing.T) {
			var at []time.Duration
			began := time.Now()
			w := &web{legacy: true, on: get(func(_ int, x *exchange) {
				at = append(at, time.Since(began))
				x.Emit(transports.Opened{Ref: x.Ref})
				if tt.say != nil {
					tt.say(x)
				}
				time.AfterFunc(tt.lives, func() { x.cut("") })
			})}
			c := dial(t, w, client.Config{})
			for time.Since(began) < 10*time.Minute {
				if got := ask(t.Context(), c, "tools/list"); got != "answered" {
					t.Fatal(got)
				}
				pass(10 * time.Second)
			}
			if early := slices.IndexFunc(at, func(d time.Duration) bool { return d > 2*time.Second }); early > 6 {
				t.Errorf("%d openings in 2 s", early)
			}
			if len(at) > 40 {
				t.Errorf("%d openings in 10 min", len(at))
			}
			if last := at[len(at)-1] - at[len(at)-2]; last < 30*time.Second {
				t.Errorf("the last delay was %s", last)
			}
		})
	}
}

func TestB038_AStreamThatAsksForNoDelayGetsOne(t *testing.T) {
	for _, retry := range []time.Duration{0, time.Millisecond} {
		bubble(t, retry.String(), func(t *testing.T) {
			w := &web{legacy: true, on: get(func(_ int, x *exchange) {
				x.Emit(transports.Opened{Ref: x.Ref})
				x.Emit(transports.Broken{Ref: x.Ref, Retry: retry, Cause: errCut})
			})}
			dial(t, w, client.Config{})
			pass(2 * time.Second)
			if n := w.count("GET"); n > 6 {
				t.Errorf("%d GETs in 2 s", n)
			}
		})
	}
}

func TestB033_AStreamThatAsksForADelayGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		dial(t, w, client.Config{})
		w.stream().Emit(transports.Broken{Ref: w.stream().Ref, LastID: "e7", Retry: 700 * time.Millisecond, Cause: errCut})
		pass(700*time.Millisecond - 1)
		if took := w.took(); len(took) != 0 {
			t.Errorf("too early: %v", took)
		}
		pass(1)
		if diff := cmp.Diff([]string{"GET e7(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM12_AStandaloneStreamThatIsResumedAndSilentIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		var heard diary
		dial(t, w, client.Config{OnNotification: func(n client.Notification) { heard.write("%s", n.Method) }})
		pass(time.Hour)
		if took := w.took(); len(took) != 0 {
			t.Errorf("one that never broke: %v", took)
		}
		w.stream().Emit(transports.Broken{Ref: w.stream().Ref, LastID: "e7", Cause: errCut})
		pass(250 * time.Millisecond)
		if diff := cmp.Diff([]string{"GET e7(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
		ref := w.stream().Ref
		var at []time.Duration
		began := time.Now()
		for time.Since(began) < 2*time.Minute {
			pass(5 * time.Second)
			for range w.took() {
				at = append(at, time.Since(began))
			}
			if time.Since(began) == time.Minute {
				w.stream().say("acme/news", `{}`)
			}
		}
		// The wait doubles. At 75 s something was heard, and it begins anew.
		want := []time.Duration{5 * time.Second, 15 * time.Second, 35 * time.Second, 80 * time.Second, 90 * time.Second, 110 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Error(diff)
		}
		if w.stream().Ref != ref {
			t.Errorf("it is another attempt: %d, not %d", w.stream().Ref, ref)
		}
		if diff := cmp.Diff([]string{"acme/news"}, heard.read()); diff != "" {
			t.Error(diff)
		}
	})
}

// The event that a stream is to be resumed from may be one that the server does not
// know any more. Then the stream begins anew, and what it missed counts as changed.
func TestM12_AStandaloneStreamWhoseEventIsForgottenBeginsAnew(t *testing.T) {
	for _, tt := range []struct {
		status int
		anew   bool
	}{
		{400, true},
		{404, true},
		{410, true},
		{422, true},
		{401, false},
		{409, false},
		{429, false},
		{503, false},
	} {
		bubble(t, fmt.Sprint(tt.status), func(t *testing.T) {
			w := &web{legacy: true, open: true, capabilities: `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true}}`}
			var told diary
			dial(t, w, client.Config{OnListChanged: func(k client.Kind) { told.write("%s", k) }})
			w.becomes(times(1, get(func(_ int, x *exchange) { x.reject(tt.status, "") })))
			w.stream().Emit(transports.Broken{Ref: w.stream().Ref, LastID: "e7", Cause: errCut})
			pass(5 * time.Second)
			gets, kinds := []string{"GET e7(S1)", "GET e7(S1)"}, []string(nil)
			if tt.anew {
				gets[1], kinds = "GET(S1)", []string{"tools", "prompts"}
			}
			got := slices.DeleteFunc(w.took(), func(line string) bool { return strings.HasPrefix(line, "ping") })
			if diff := cmp.Diff(gets, got[:2]); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(kinds, told.read()); diff != "" {
				t.Errorf("what counts as changed: %s", diff)
			}
		})
	}
}

// Without event ids nothing can be resumed at all.
func TestWhatAStandaloneStreamMissedCountsAsChanged(t *testing.T) {
	for lastID, want := range map[string][]string{"": {"tools"}, "e1": nil} {
		bubble(t, lastID, func(t *testing.T) {
			w := &web{legacy: true, open: true, capabilities: `{"tools":{"listChanged":true},"prompts":{}}`}
			var told diary
			dial(t, w, client.Config{OnListChanged: func(k client.Kind) { told.write("%s", k) }})
			w.stream().cut(lastID)
			pass(time.Second)
			if diff := cmp.Diff(want, told.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestT5_EachSessionHasAStreamOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		var heard diary
		c := dial(t, w, client.Config{OnNotification: func(n client.Notification) { heard.write("%d %s", n.Generation, n.Method) }})
		for gen := 1; gen <= 4; gen++ {
			w.stream().say("acme/news", `{}`)
			w.stream().Emit(transports.Broken{Ref: w.stream().Ref, LastID: "old", Cause: errCut})
			pass(time.Second)
			w.stream().say("acme/more", `{}`)
			w.forget()
			ask(t.Context(), c, "ping")
			pass(time.Second)
		}
		var want, gets []string
		for gen := 1; gen <= 4; gen++ {
			want = append(want, fmt.Sprintf("%d acme/news", gen), fmt.Sprintf("%d acme/more", gen))
			gets = append(gets, fmt.Sprintf("GET old(S%d)", gen), fmt.Sprintf("GET(S%d)", gen+1))
		}
		if diff := cmp.Diff(want, heard.read()); diff != "" {
			t.Error(diff)
		}
		all := slices.DeleteFunc(w.took(), func(line string) bool { return !strings.HasPrefix(line, "GET") })
		if diff := cmp.Diff(gets, all); diff != "" {
			t.Errorf("a new session's stream begins anew: %s", diff)
		}
	})
}

// A stream whose session is gone waits for the next session, and never goes out
// without one.
func TestT4_NoStreamIsOpenedWithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		w.becomes(only("initialize", func(x *exchange) { x.reject(503, "") }))
		w.stream().cut("")
		w.forget()
		if got := ask(t.Context(), c, "tools/call"); got != "not executed: no new session" {
			t.Error(got)
		}
		pass(time.Hour)
		if diff := cmp.Diff([]string{"tools/call(S1)", "initialize()"}, w.took()); diff != "" {
			t.Error(diff)
		}
		w.becomes(nil)
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		pass(time.Second)
		if diff := cmp.Diff(append(recovery(2), "tools/call(S2)"), w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

// An answer comes on its own exchange alone: what another stream says of an id is
// no answer to it.
func TestB104_AnAnswerOnAnotherStreamIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		var calls []*exchange
		w.becomes(only("tools/call", func(x *exchange) { calls = append(calls, x) }))
		fates := asks(t.Context(), c, 2, "tools/call")
		synctest.Wait()
		forged := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"of another stream"}}`, calls[0].ID)
		w.stream().Write(0, forged)
		calls[1].Write(calls[1].Ref, forged)
		synctest.Wait()
		for _, x := range calls {
			x.result(`{}`)
		}
		if diff := cmp.Diff(same(2, "answered"), fates()); diff != "" {
			t.Error(diff)
		}
		if n := c.Stats().UnknownIDs; n != 2 {
			t.Errorf("%d answers for nobody", n)
		}
	})
}

func TestB104_OnItsOwnExchangeAnAnswerIsKnownByItsPlace(t *testing.T) {
	for name, spell := range map[string]func(id string) string{
		"a string": func(id string) string { return `"` + id + `"` }, "a float": func(id string) string { return id + ".0" },
		"an exponent": func(id string) string { return id + "e0" }, "0": func(string) string { return "0" },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{on: only("tools/call", func(x *exchange) {
				x.Write(x.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, spell(x.ID)))
			})}
			c := dial(t, w, client.Config{})
			if diff := cmp.Diff(same(2, "answered"), asks(t.Context(), c, 2, "tools/call")()); diff != "" {
				t.Error(diff)
			}
			if n := c.Stats().LooseIDs; n != 2 {
				t.Errorf("%d were counted", n)
			}
		})
	}
	bubble(t, "another's", func(t *testing.T) {
		w := &web{on: only("tools/call", func(x *exchange) {
			x.Write(x.Ref, `{"jsonrpc":"2.0","id":9007199254740993,"result":{}}`)
			x.cut("")
		})}
		c := dial(t, w, client.Config{})
		if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
			t.Error(got)
		}
	})
}

func TestB011_AnErrorWithoutAnIDEndsItsOwnRequest(t *testing.T) {
	for _, id := range []string{`"id":null,`, ``} {
		bubble(t, "id "+id, func(t *testing.T) {
			var other *exchange
			w := &web{on: anyOf(
				only("acme/other", func(x *exchange) { other = x }),
				only("tools/list", func(x *exchange) {
					x.Write(x.Ref, `{"jsonrpc":"2.0",`+id+`"error":{"code":-32600,"message":"Invalid Request"}}`)
				}))}
			c := dial(t, w, client.Config{})
			fates := asks(t.Context(), c, 1, "acme/other")
			synctest.Wait()
			began := time.Now()
			if got := ask(t.Context(), c, "tools/list"); got != "the peer says -32600" || time.Since(began) != 0 {
				t.Errorf("%s after %s", got, time.Since(began))
			}
			other.result(`{}`)
			if diff := cmp.Diff([]string{"answered"}, fates()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A reply carries the version that was agreed on, like every message of a settled
// session (2025-11-25, transports, Protocol Version Header).
func TestB005_ARepliesHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		dial(t, w, client.Config{})
		w.stream().Write(0, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		synctest.Wait()
		all := w.exchanges()
		if len(all) != 1 || string(all[0].Frame) != `{"jsonrpc":"2.0","id":7,"result":{}}` || all[0].Header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("%v", all)
		}
	})
}

func TestB005_WhicheverRequestMeetsThe404(t *testing.T) {
	for _, method := range []string{"tools/list", "tools/call", "prompts/get", "ping", "completion/complete"} {
		bubble(t, method, func(t *testing.T) {
			w := &web{legacy: true, open: true}
			c := dial(t, w, client.Config{})
			w.forget()
			for _, m := range []string{method, "tools/list"} {
				if got := ask(t.Context(), c, m); got != "answered" {
					t.Errorf("%s: %s", m, got)
				}
			}
			if n := w.count("initialize"); n != 2 {
				t.Errorf("%d initializes", n)
			}
		})
	}
	bubble(t, "Close", func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{})
		w.forget()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := w.took(); len(took) != 0 {
			t.Errorf("%v", took)
		}
	})
}
