package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

// resumes is an on that answers GETs with a Last-Event-ID.
func resumes(do func(n int, x *exchange)) func(x *exchange) bool {
	n := 0
	return func(x *exchange) bool {
		if x.Op != transports.OpResume {
			return false
		}
		n++
		do(n, x)
		return true
	}
}

// cuts is an on that runs a tool and cuts its response; the stream has shown an event id.
func cuts(lastID string, retry time.Duration) func(x *exchange) bool {
	return only("tools/call", func(x *exchange) {
		x.Emit(transports.Broken{Ref: x.Ref, LastID: lastID, Retry: retry, Cause: errCut})
	})
}

func TestM12_ALegacyStreamIsResumedWhereItBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.becomes(anyOf(cuts("e1", 0), resumes(func(_ int, x *exchange) {
			x.Emit(transports.Opened{Ref: x.Ref})
			x.result(`{"content":[]}`)
		})))
		began := time.Now()
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d != 250*time.Millisecond {
			t.Errorf("it was resumed after %s", d)
		}
		all := w.exchanges()
		if got, want := fmt.Sprint(all), "[tools/call(S1) GET e1(S1)]"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if call, get := all[0], all[1]; call.LastID != "" || get.Ref != call.Ref || len(get.Frame) != 0 ||
			get.Header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("the GET: %+v", get.Outbound)
		}
	})
}

func TestB031_AStreamWithoutAnEventIDIsNotResumed(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		cfg          client.Config
		fate         string
		want         []string
	}{
		{"a tool", "tools/call", client.Config{RetryLost: true}, "outcome unknown: stream broken", []string{"tools/call(S1)"}},
		{"a read", "resources/read", client.Config{}, "outcome unknown: stream broken", []string{"resources/read(S1)"}},
		{"a read and reads are retried", "resources/read", client.Config{RetryLost: true}, "answered", same(2, "resources/read(S1)")},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, tt.cfg)
			w.becomes(times(1, only(tt.method, func(x *exchange) { x.cut("") })))
			if got := ask(t.Context(), c, tt.method); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			pass(time.Minute)
			if diff := cmp.Diff(tt.want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestB033_RetryIsAFloorAndNothingButAFloor(t *testing.T) {
	for _, tt := range []struct {
		retry, want time.Duration
		fate        string
	}{
		{0, 250 * time.Millisecond, "answered"},
		{time.Millisecond, 250 * time.Millisecond, "answered"},
		{700 * time.Millisecond, 700 * time.Millisecond, "answered"},
		{59 * time.Second, 59 * time.Second, "answered"},
		{24 * time.Hour, time.Minute, "outcome unknown: timeout"},
	} {
		bubble(t, tt.retry.String(), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(anyOf(cuts("e1", tt.retry), resumes(func(_ int, x *exchange) { x.result(`{}`) })))
			began := time.Now()
			if got := ask(t.Context(), c, "tools/call"); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			if d := time.Since(began); d != tt.want {
				t.Errorf("it took %s", d)
			}
			pass(48 * time.Hour)
			if n := w.count("tools/call"); n != 1 {
				t.Errorf("%d POSTs", n)
			}
		})
	}
}

func TestB038_TheResumesOfOneCallAreCapped(t *testing.T) {
	for name, again := range map[string]func(x *exchange){
		"closed at once": func(x *exchange) { x.cut("e1") },
		"opened, closed": func(x *exchange) { x.Emit(transports.Opened{Ref: x.Ref}); x.cut("e1") },
		"no connection":  (*exchange).unsent,
		"503":            func(x *exchange) { x.reject(503, "") },
		"429":            func(x *exchange) { x.reject(429, "") },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{WaitForReady: true, RetryLost: true})
			w.becomes(anyOf(cuts("e1", 0), resumes(func(_ int, x *exchange) { again(x) })))
			began := time.Now()
			if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
				t.Error(got)
			}
			// 250 ms, 500 ms, 1 s, 2 s, 4 s
			if d := time.Since(began); d != 7750*time.Millisecond {
				t.Errorf("it took %s", d)
			}
			pass(time.Hour)
			if diff := cmp.Diff(append([]string{"tools/call(S1)"}, same(5, "GET e1(S1)")...), w.took()); diff != "" {
				t.Errorf("the POST is not made again: %s", diff)
			}
		})
	}
}

func TestM12_AnEventMakesEveryResumeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		w.becomes(anyOf(cuts("e0", 0), resumes(func(n int, x *exchange) {
			if n == 20 {
				x.result(`{}`)
				return
			}
			x.say("notifications/message", `{"level":"info","data":"step"}`)
			x.cut(fmt.Sprintf("e%d", n))
		})))
		began := time.Now()
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("20 resumes took %s", d)
		}
		if got := w.took(); got[20] != "GET e19(S1)" {
			t.Errorf("the last one: %s", got[20])
		}
	})
}

// A server that closes its streams and is polled says each time where to go on, or
// when, but sends no message (2025-11-25, transports, Sending Messages 6).
func TestM12_APollThatIsAnsweredIsNoFailure(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lastID func(n int) string
		retry  func(n int) time.Duration
		took   time.Duration
	}{
		{
			"a new event id, and a wish once",
			func(n int) string { return fmt.Sprint("e", n) },
			func(n int) time.Duration { return map[int]time.Duration{1: 700 * time.Millisecond}[n] },
			250*time.Millisecond + 19*700*time.Millisecond,
		},
		{
			"a new event id, and a wish below the floor",
			func(n int) string { return fmt.Sprint("e", n) },
			func(int) time.Duration { return 100 * time.Millisecond },
			20 * 250 * time.Millisecond,
		},
		{
			"a wish alone",
			func(int) string { return "e0" },
			func(int) time.Duration { return time.Second },
			250*time.Millisecond + 19*time.Second,
		},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(anyOf(cuts("e0", 0), resumes(func(n int, x *exchange) {
				x.Emit(transports.Opened{Ref: x.Ref})
				if n == 20 {
					x.result(`{}`)
					return
				}
				x.Emit(transports.Alive{Ref: x.Ref})
				x.Emit(transports.Broken{Ref: x.Ref, LastID: tt.lastID(n), Retry: tt.retry(n), Cause: errCut})
			})))
			began := time.Now()
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
			if d := time.Since(began); d != tt.took {
				t.Errorf("20 resumes took %s, want %s", d, tt.took)
			}
			if n := w.count("tools/call"); n != 1 {
				t.Errorf("%d POSTs", n)
			}
		})
	}
}

func TestM12_WhatCantBeResumedIsNotAskedForAgain(t *testing.T) {
	for _, status := range []int{200, 204, 400, 401, 403, 404, 405, 410, 501} {
		for _, retry := range []bool{false, true} {
			bubble(t, fmt.Sprint(status, " reads retried ", retry), func(t *testing.T) {
				w := &web{legacy: true}
				c := dial(t, w, client.Config{RetryLost: retry})
				w.becomes(anyOf(
					cuts("e1", 0),
					times(1, only("resources/read", func(x *exchange) { x.cut("e2") })),
					resumes(func(_ int, x *exchange) { x.reject(status, x.error(-32000, "no such stream", "")) })))
				if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
					t.Errorf("the tool: %s", got)
				}
				want, fate := []string{"tools/call(S1)", "GET e1(S1)", "resources/read(S1)", "GET e2(S1)"}, "outcome unknown: stream broken"
				if retry {
					want, fate = append(want, "resources/read(S1)"), "answered"
				}
				if got := ask(t.Context(), c, "resources/read"); got != fate {
					t.Errorf("the read: %s", got)
				}
				pass(time.Minute)
				if diff := cmp.Diff(want, w.took()); diff != "" {
					t.Errorf("no ping, no initialize: %s", diff)
				}
			})
		}
	}
}

// Nothing that a resume meets says that the POST before it did not run.
func TestB004_ARefusalOfAResumeProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		w := &web{legacy: true}
		c := dial(t, w, client.Config{WaitForReady: true, RetryLost: true})
		w.becomes(only("tools/call", func(x *exchange) {
			runs++
			w.forget()
			x.cut("e1")
		}))
		if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" || runs != 1 {
			t.Errorf("%s after %d runs", got, runs)
		}
	})
}

func TestM12_ASilentResumedStreamIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{RequestTimeout: time.Hour})
		var at []time.Duration
		began := time.Now()
		w.becomes(anyOf(cuts("e1", 0), resumes(func(n int, x *exchange) {
			at = append(at, time.Since(began))
			x.Emit(transports.Opened{Ref: x.Ref})
			if n == 7 {
				x.result(`{}`)
			}
		})))
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		ms := time.Millisecond
		want := []time.Duration{250 * ms, 5250 * ms, 15250 * ms, 35250 * ms, 75250 * ms, 115250 * ms, 155250 * ms}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("it was asked for at %s", diff)
		}
	})
}

func TestM12_AStreamThatTheServerTakesForConnectedIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{RequestTimeout: time.Hour})
		w.becomes(anyOf(cuts("e1", 0), resumes(func(n int, x *exchange) {
			if n < 12 {
				x.reject(409, "")
				return
			}
			x.result(`{}`)
		})))
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
	})
}

// A look that was planned for a silent stream must not come in between a break and
// its delay.
func TestM12_ABreakTakesThePlaceOfAPlannedLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{})
		var at []time.Duration
		began := time.Now()
		w.becomes(anyOf(cuts("e1", 0), resumes(func(n int, x *exchange) {
			at = append(at, time.Since(began))
			if n == 2 {
				x.result(`{}`)
				return
			}
			go func() {
				time.Sleep(4900 * time.Millisecond)
				x.say("notifications/message", `{"level":"info","data":"step"}`)
				time.Sleep(50 * time.Millisecond)
				x.Emit(transports.Broken{Ref: x.Ref, LastID: "e2", Retry: time.Second, Cause: errCut})
			}()
		})))
		if got := ask(t.Context(), c, "tools/call"); got != "answered" {
			t.Error(got)
		}
		if diff := cmp.Diff([]time.Duration{250 * time.Millisecond, 6200 * time.Millisecond}, at); diff != "" {
			t.Error(diff)
		}
	})
}

// While a call waits to be resumed nothing of it runs, so that nobody else would
// tell it that its session is gone.
func TestM12_ASessionThatGoesTakesTheResumesOfItsCallsAlong(t *testing.T) {
	for _, retry := range []time.Duration{time.Second, 20 * time.Second, 24 * time.Hour} {
		bubble(t, retry.String(), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(cuts("e1", retry))
			fates := asks(t.Context(), c, 2, "tools/call")
			synctest.Wait()
			w.becomes(nil)
			w.forget()
			began := time.Now()
			if got := ask(t.Context(), c, "tools/list"); got != "answered" {
				t.Error(got)
			}
			if diff := cmp.Diff(same(2, "outcome unknown: stream broken"), fates()); diff != "" {
				t.Error(diff)
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("they were told after %s", d)
			}
			pass(48 * time.Hour)
			if n := w.count("GET"); n != 2 { // one of each session
				t.Errorf("%d GETs", n)
			}
		})
	}
}

// What a stream said is of no use to the next attempt.
func TestM12_AnotherAttemptHasAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{RetryLost: true})
		n := 0
		w.becomes(anyOf(
			only("resources/read", func(x *exchange) {
				switch n++; n {
				case 1:
					x.cut("e1")
				default:
					x.cut("")
				}
			}),
			resumes(func(_ int, x *exchange) { x.reject(404, "") })))
		if got := ask(t.Context(), c, "resources/read"); got != "outcome unknown: stream broken" {
			t.Error(got)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]string{"resources/read(S1)", "GET e1(S1)", "resources/read(S1)"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM12_WhoGivesUpABrokenStreamTellsTheServer(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		bubble(t, fmt.Sprintf("resumed %t", resumed), func(t *testing.T) {
			w := &web{legacy: true}
			c := dial(t, w, client.Config{})
			w.becomes(anyOf(cuts("e1", 10*time.Second), resumes(func(int, *exchange) {})))
			ctx, cancel := context.WithCancel(t.Context())
			fates := asks(ctx, c, 1, "tools/call")
			want := []string{"tools/call(S1)"}
			if synctest.Wait(); resumed {
				pass(10 * time.Second)
				want = append(want, "GET e1(S1)")
			}
			cancel()
			if diff := cmp.Diff([]string{"outcome unknown: context canceled"}, fates()); diff != "" {
				t.Error(diff)
			}
			pass(time.Hour)
			all := w.exchanges()
			want = append(want, "notifications/cancelled(S1)")
			if got := fmt.Sprint(all); got != "["+strings.Join(want, " ")+"]" {
				t.Fatalf("%s, want %v", got, want)
			}
			if id := `"requestId":` + all[0].ID; !strings.Contains(all[len(all)-1].params(), id) {
				t.Errorf("%s lacks %s", all[len(all)-1].params(), id)
			}
		})
	}
}

func TestM12_AnEraWithoutResumptionDoesNotResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{on: cuts("e1", 0)}
		c := dial(t, w, client.Config{})
		if got := ask(t.Context(), c, "tools/call"); got != "outcome unknown: stream broken" {
			t.Error(got)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]string{"tools/call()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}
