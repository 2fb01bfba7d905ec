package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

// down is an on that refuses every connection as long as the returned switch is on.
func down() (on func(x *exchange) bool, off *atomic.Bool) {
	off = &atomic.Bool{}
	return func(x *exchange) bool {
		if off.Load() {
			return false
		}
		x.unsent()
		return true
	}, off
}

func TestM13_ACallWithoutAConnectionFailsAtOnce(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		bubble(t, fmt.Sprintf("legacy %t", legacy), func(t *testing.T) {
			w := &web{legacy: legacy}
			c := dial(t, w, client.Config{RetryLost: true})
			on, off := down()
			w.becomes(on)
			began := time.Now()
			for _, method := range []string{"tools/call", "resources/read"} {
				err := c.Call(t.Context(), method, nil, nil)
				if got := fateOf(err); got != "not executed: no connection" || !errors.Is(err, errNoConnection) {
					t.Errorf("%s: %s: %v", method, got, err)
				}
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("that took %s", d)
			}
			if n := len(w.took()); n != 2 {
				t.Errorf("%d exchanges", n)
			}
			off.Store(true)
			if got := ask(t.Context(), c, "tools/call"); got != "answered" {
				t.Error(got)
			}
			if legacy && w.count("initialize") != 1 {
				t.Error("trouble on the way is no reason for another session")
			}
		})
	}
}

// unsendable is a message that no connection carries.
type unsendable struct{ error }

func (unsendable) Permanent() bool { return true }

// Nobody waits for what no other try can cure, the call itself least of all.
func TestM13_AMessageThatCantBeSentIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{WaitForReady: true})
		w.becomes(func(x *exchange) bool {
			if x.Method != "tools/call" {
				return false
			}
			x.Emit(transports.Unsent{Ref: x.Ref, Cause: unsendable{errors.New("too large")}})
			return true
		})
		began := time.Now()
		err := c.Call(t.Context(), "tools/call", nil, nil)
		invalid := new(client.InvalidRequestError)
		if !errors.As(err, &invalid) || !errors.Is(err, invalid.Err) || client.OutcomeOf(err) != client.NotExecuted {
			t.Errorf("%v, %s", err, client.OutcomeOf(err))
		}
		if got := ask(t.Context(), c, "acme/other"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("that took %s", d)
		}
	})
}

func TestM13_HeldCallsShareOneBackoffAndTheOldestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{WaitForReady: true})
		on, off := down()
		w.becomes(on)
		fates := make([]chan string, 5)
		call := func(i int) {
			fates[i] = make(chan string, 1)
			go func() { fates[i] <- ask(t.Context(), c, fmt.Sprintf("acme/%d", i)) }()
			synctest.Wait()
		}
		for i := range 4 {
			call(i)
		}
		pass(6 * time.Second) // 250 ms, 500 ms, 1 s, 2 s and not 4 s
		call(4)
		want := append([]string{"acme/0()"}, same(4, "acme/0()")...)
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
		off.Store(true)
		pass(2 * time.Second)
		if diff := cmp.Diff([]string{"acme/0()", "acme/1()", "acme/2()", "acme/3()", "acme/4()"}, w.took()); diff != "" {
			t.Errorf("when it can be reached: %s", diff)
		}
		for i, f := range fates {
			if got := <-f; got != "answered" {
				t.Errorf("call %d: %s", i, got)
			}
		}
	})
}

func TestM13_AHeldCallKeepsItsIDAndItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{WaitForReady: true})
		on, off := down()
		w.becomes(on)
		began := time.Now()
		late := make(chan string, 1)
		go func() {
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", RequestTimeout: 3 * time.Second, MaxRequestTimeout: 3 * time.Second})
			late <- fateOf(err)
		}()
		if got := <-late; got != "not executed: timeout" || time.Since(began) != 3*time.Second {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		w.exchanges()
		fates := asks(t.Context(), c, 1, "tools/call")
		pass(5 * time.Second)
		off.Store(true)
		fates()
		ids := map[string]bool{}
		all := w.exchanges()
		for _, x := range all {
			ids[x.ID] = true
		}
		if len(all) < 2 || len(ids) != 1 {
			t.Errorf("%d tries under ids %v", len(all), ids)
		}
	})
}

// A connection that was made may carry a call that takes long. The others do not
// wait for its end.
func TestM13_ALongCallThatGotThroughHoldsUpNobody(t *testing.T) {
	for name, sign := range map[string]func(x *exchange){
		"silent":        func(*exchange) {},
		"with progress": func(x *exchange) { x.say("notifications/message", `{"level":"info","data":"x"}`) },
		"alive":         func(x *exchange) { x.Emit(transports.Alive{Ref: x.Ref}) },
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{WaitForReady: true})
			on, off := down()
			w.becomes(anyOf(on, only("acme/long", sign)))
			asks(t.Context(), c, 1, "acme/long")
			synctest.Wait()
			others := asks(t.Context(), c, 3, "tools/list")
			synctest.Wait()
			off.Store(true)
			began := time.Now()
			if diff := cmp.Diff(same(3, "answered"), others()); diff != "" {
				t.Error(diff)
			}
			want := 250 * time.Millisecond
			if name == "silent" {
				want += time.Second
			}
			if d := time.Since(began); d != want {
				t.Errorf("they waited %s", d)
			}
			if got := ask(t.Context(), c, "tools/list"); got != "answered" || time.Since(began) != want {
				t.Errorf("a call made afterwards: %s after %s", got, time.Since(began))
			}
		})
	}
}

func TestM13_AnotherCallThatIsAnsweredEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{WaitForReady: true, RequestTimeout: time.Hour})
		on, off := down()
		w.becomes(on)
		fates := asks(t.Context(), c, 3, "tools/call")
		pass(10 * time.Minute) // 30 s between two tries by now
		off.Store(true)
		began := time.Now()
		if _, err := c.Do(t.Context(), client.Request{Method: "tools/list", Wait: client.WaitNever}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(same(3, "answered"), fates()); diff != "" {
			t.Error(diff)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the others went on after %s", d)
		}
	})
}

func TestM13_AProbeThatIsGivenUpIsFollowedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		c := dial(t, w, client.Config{WaitForReady: true})
		on, off := down()
		w.becomes(on)
		ctx, cancel := context.WithCancel(t.Context())
		first := asks(ctx, c, 1, "acme/0")
		synctest.Wait()
		rest := asks(t.Context(), c, 2, "acme/1")
		synctest.Wait()
		cancel()
		if diff := cmp.Diff([]string{"not executed: context canceled"}, first()); diff != "" {
			t.Error(diff)
		}
		off.Store(true)
		if diff := cmp.Diff(same(2, "answered"), rest()); diff != "" {
			t.Error(diff)
		}
		if n := w.count("acme/0"); n != 1 {
			t.Errorf("the one that was given up was sent %d times", n)
		}
	})
}

// A recovery takes all along that waits for a connection: whoever comes afterwards
// does not wait for the rest of an old backoff.
func TestM13_ANewSessionEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{WaitForReady: true, RequestTimeout: time.Hour})
		on, off := down()
		w.becomes(on)
		fates := asks(t.Context(), c, 3, "tools/call")
		pass(10 * time.Minute)
		off.Store(true)
		w.forget()
		if _, err := c.Do(t.Context(), client.Request{Method: "tools/list", Wait: client.WaitNever}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if diff := cmp.Diff(same(3, "answered"), fates()); diff != "" {
			t.Error(diff)
		}
		if got := ask(t.Context(), c, "tools/list"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("they waited %s", d)
		}
	})
}

func TestM13_CloseLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true, open: true}
		c := dial(t, w, client.Config{WaitForReady: true, RequestTimeout: -1, MaxRequestTimeout: -1})
		broken := w.stream()
		on, _ := down()
		w.becomes(anyOf(cuts("e1", 24*time.Hour), on))
		broken.cut("")
		fates := asks(t.Context(), c, 1, "tools/call")
		pass(0) // it is written before anybody finds that there is no connection
		held := asks(t.Context(), c, 1, "tools/list")
		pass(time.Hour)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := append(fates(), held()...); !slices.Equal(got, []string{"outcome unknown: closed", "not executed: closed"}) {
			t.Errorf("the calls: %v", got)
		}
		n := len(w.took())
		pass(48 * time.Hour)
		if more := w.took(); len(more) != 0 {
			t.Errorf("after %d exchanges and Close came %v", n, more)
		}
	})
}

func TestB101_ADeployIsSurvivedWithOneInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{WaitForReady: true, Budget: unjittered()})
		began := time.Now()
		page := "<html>" + strings.Repeat("Bad Gateway ", 1000)
		w.forget()
		w.becomes(func(x *exchange) bool {
			switch at := time.Since(began); {
			case at < time.Second:
				x.unsent()
			case at < 3*time.Second && x.Method == "initialize":
				x.reject(502, page)
			default:
				return false
			}
			return true
		})
		if got := ask(t.Context(), c, "resources/read"); got != "answered" {
			t.Error(got)
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("it took %s", d)
		}
		var sessions []string
		for _, x := range w.exchanges() {
			if x.Method == "notifications/initialized" || x.Method == "resources/read" {
				sessions = append(sessions, x.String())
			}
		}
		// The read is refused by no connection three times, then by the session.
		want := append(same(4, "resources/read(S1)"), "notifications/initialized(S2)", "resources/read(S2)")
		if diff := cmp.Diff(want, sessions); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB101_ABodyOfHTMLIsClippedInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{legacy: true}
		c := dial(t, w, client.Config{WaitForReady: true})
		w.forget()
		w.becomes(only("initialize", func(x *exchange) { x.reject(502, "<html>"+strings.Repeat("Bad Gateway ", 1000)) }))
		_, err := c.Do(t.Context(), client.Request{Method: "tools/list", Wait: client.WaitNever})
		if got := fateOf(err); got != "not executed: no new session" || len(err.Error()) > 512 {
			t.Errorf("%s in %d bytes: %v", got, len(err.Error()), err)
		}
	})
}

func TestB102_OneBadAnswerFailsOneCall(t *testing.T) {
	for name, bad := range map[string]func(x *exchange){
		"429": func(x *exchange) { x.reject(429, "") }, "500": func(x *exchange) { x.reject(500, "") },
		"502": func(x *exchange) { x.reject(502, "") }, "503": func(x *exchange) { x.reject(503, "") },
		"504":     func(x *exchange) { x.reject(504, "") },
		"a reset": func(x *exchange) { x.cut("") }, "no TLS": (*exchange).unsent,
	} {
		for _, legacy := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s legacy %t", name, legacy), func(t *testing.T) {
				w := &web{legacy: legacy}
				c := dial(t, w, client.Config{})
				w.becomes(only("acme/bad", bad))
				wrong := asks(t.Context(), c, 1, "acme/bad")
				if diff := cmp.Diff(same(50, "answered"), asks(t.Context(), c, 50, "tools/call")()); diff != "" {
					t.Error(diff)
				}
				if got := wrong()[0]; got == "answered" {
					t.Errorf("the bad one: %s", got)
				}
				if got := ask(t.Context(), c, "tools/call"); got != "answered" {
					t.Error(got)
				}
				session := map[bool]string{true: "S1"}[legacy]
				for _, x := range w.exchanges() {
					if x.session != session || x.Method == "initialize" || x.Method == "ping" {
						t.Errorf("%s on the wire", x)
					}
				}
			})
		}
	}
}
