package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// guard lets a handler be reached with one bearer alone, which may change.
type guard struct {
	mu   sync.Mutex
	want string
	next http.HandlerFunc
}

func (g *guard) set(bearer string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = bearer
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	want := g.want
	g.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+want {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, "expired", http.StatusUnauthorized)
		return
	}
	g.next(w, r)
}

// tokens is an Authorizer that gives A, B, C and so on.
type tokens struct {
	asked atomic.Int64
	takes time.Duration // how long each answer takes
	lasts time.Duration // how long each token lasts; 0: it does not say
	why   []streamable.Reason
	err   error
}

func (a *tokens) Authorize(ctx context.Context, why streamable.Reason) (streamable.Credentials, error) {
	n := a.asked.Add(1)
	a.why = append(a.why, why)
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return streamable.Credentials{}, ctx.Err()
	}
	if a.err != nil && n > 1 {
		return streamable.Credentials{}, a.err
	}
	c := streamable.Credentials{Authorization: "Bearer " + string(rune('A'+n-1))}
	if a.lasts > 0 {
		c.Expires = time.Now().Add(a.lasts)
	}
	return c, nil
}

// guarded runs a test of one incarnation behind a guard that wants A.
func guarded(t *testing.T, a *tokens, next http.HandlerFunc, test func(*guard, *wire, *life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &guard{want: "A", next: next}
		w := newWire(t, g.serve)
		conf := w.config()
		conf.Authorizer = a
		l := live(t, conf.Factory())
		test(g, w, l)
		l.stop(errTestOver)
		w.Close()
	})
}

func TestB096_AnExpiredTokenIsRenewedOnceForAll(t *testing.T) {
	a := &tokens{takes: time.Second}
	guarded(t, a, legacyServer("S1"), func(g *guard, w *wire, l *life) {
		l.send(request(1, "", "initialize"))
		time.Sleep(2 * time.Second)
		l.want(message(1, answer(1)))
		g.set("B") // A expires, for the POSTs, a GET and an initialize alike
		for ref := uint64(2); ref < 22; ref++ {
			l.send(request(ref, legacy, "tools/call"))
		}
		l.send(listen(22, ""))
		l.send(request(23, "", "initialize"))
		time.Sleep(2 * time.Second)
		answered := 0
		for _, e := range l.got()[1:] {
			switch e := e.(type) {
			case transports.Message:
				answered++
			case transports.Rejected:
				if e.Ref != 22 || e.Status != http.StatusMethodNotAllowed {
					t.Errorf("%#v", e)
				}
			default:
				t.Errorf("unexpected %#v", e)
			}
		}
		if answered != 21 {
			t.Errorf("%d answers, want 21", answered)
		}
		if n := a.asked.Load(); n != 2 {
			t.Errorf("the Authorizer was asked %d times, want 2: at first and for B", n)
		}
		if diff := cmp.Diff(streamable.Credentials{Authorization: "Bearer A"}, a.why[1].Stale); diff != "" {
			t.Errorf("what was stale (-want +got):\n%s", diff)
		}
		if got := a.why[1].Challenge.Get("WWW-Authenticate"); got != `Bearer error="invalid_token"` {
			t.Errorf("the challenge is %q", got)
		}
		perToken := map[string]int{}
		for _, r := range w.requests()[1:] {
			perToken[r.Authorization]++
		}
		if diff := cmp.Diff(map[string]int{"Bearer A": 22, "Bearer B": 22}, perToken); diff != "" {
			t.Errorf("requests by token (-want +got):\n%s", diff)
		}
	})
}

func TestB096_A401ThatStaysIsARefusal(t *testing.T) {
	broken := errors.New("invalid_grant")
	for _, tc := range []struct {
		name  string
		err   error
		asked int64 // for 2 requests, one after the other
		posts int
	}{
		{"whatever token it gets", nil, 2, 3},             // the second request meets the token that has just been renewed
		{"because there is no other token", broken, 2, 2}, // and learns what has just failed
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &tokens{err: tc.err}
			guarded(t, a, nil, func(g *guard, w *wire, l *life) {
				g.set("none")
				l.send(request(1, modern, "tools/call"))
				synctest.Wait()
				l.send(request(2, modern, "tools/call"))
				synctest.Wait()
				l.want(
					transports.Rejected{Ref: 1, Status: 401, Body: []byte("expired\n")},
					transports.Rejected{Ref: 2, Status: 401, Body: []byte("expired\n")},
				)
				for _, e := range l.got() {
					failed := new(streamable.AuthError)
					if cause := e.(transports.Rejected).Cause; errors.As(cause, &failed) != (tc.err != nil) || !errors.Is(cause, tc.err) {
						t.Errorf("the cause is %v", cause)
					}
				}
				if n := a.asked.Load(); n != tc.asked {
					t.Errorf("the Authorizer was asked %d times, want %d", n, tc.asked)
				}
				if n := w.count("POST"); n != tc.posts {
					t.Errorf("%d POSTs, want %d", n, tc.posts)
				}
			})
		})
	}
}

// Requests that are refused together do not come back together. One failure is the
// answer to all of them, and to whoever comes within a second.
func TestB096_AFailureOfTheAuthorizerIsSharedToo(t *testing.T) {
	broken := errors.New("invalid_grant")
	a := &tokens{err: broken}
	late := func(w http.ResponseWriter, r *http.Request) { writeJSON(w, answer(readMessage(r).ID)) }
	guarded(t, a, late, func(g *guard, w *wire, l *life) {
		l.send(request(1, modern, "ping"))
		synctest.Wait()
		g.set("B")
		refused := func(from, to uint64) {
			t.Helper()
			for ref := from; ref < to; ref++ {
				l.send(request(ref, modern, "tools/call"))
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			events := l.got()
			for _, e := range events[len(events)-int(to-from):] {
				failed := new(streamable.AuthError)
				if r, ok := e.(transports.Rejected); !ok || r.Status != 401 || !errors.As(r.Cause, &failed) || !errors.Is(failed, broken) {
					t.Errorf("%#v", e)
				}
			}
		}
		refused(2, 22)
		if n := a.asked.Load(); n != 2 {
			t.Errorf("the Authorizer was asked %d times, want 2: at first, and once for all", n)
		}
		time.Sleep(time.Second)
		refused(22, 42)
		if n := a.asked.Load(); n != 3 {
			t.Errorf("the Authorizer was asked %d times, want 3: again after a second", n)
		}
		time.Sleep(time.Second)
		a.err = nil
		g.set("D")
		l.send(request(42, modern, "tools/call"))
		synctest.Wait()
		if diff := cmp.Diff(transports.Event(message(42, answer(42))), l.got()[41]); diff != "" {
			t.Errorf("once it has credentials again (-want +got):\n%s", diff)
		}
	})
}

func TestWithoutAnAuthorizerA401IsARefusal(t *testing.T) {
	g := &guard{want: "A"}
	inBubble(t, g.serve, func(w *wire, l *life) {
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.want(transports.Rejected{Ref: 1, Status: 401, Body: []byte("expired\n")})
	})
}

// The first who needs a token does not take it from the others by leaving.
func TestT3_ACancelledLeaderDoesNotFailWhoWaitsWithIt(t *testing.T) {
	a := &tokens{takes: time.Second}
	guarded(t, a, legacyServer(""), func(_ *guard, _ *wire, l *life) {
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.send(request(2, modern, "tools/call"))
		synctest.Wait()
		if !l.tr.Cancel(1) {
			t.Error("Cancel says that something was written")
		}
		time.Sleep(2 * time.Second)
		l.want(message(2, answer(2)))
		if n := a.asked.Load(); n != 1 {
			t.Errorf("the Authorizer was asked %d times, want 1", n)
		}
	})
}

func TestAnAuthorizerThatNobodyWaitsForIsCancelled(t *testing.T) {
	a := &tokens{takes: time.Hour}
	guarded(t, a, legacyServer(""), func(g *guard, w *wire, l *life) {
		g.set("B")
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.tr.Cancel(1) // A is given to nobody
		synctest.Wait()
		a.takes = 0
		l.send(request(2, modern, "tools/call"))
		synctest.Wait()
		if n := a.asked.Load(); n != 2 {
			t.Errorf("the Authorizer was asked %d times, want 2", n)
		}
		l.want(message(2, answer(2)))
	})
}

func TestCredentialsAreRenewedBeforeTheyExpire(t *testing.T) {
	for _, tc := range []struct {
		lasts, early time.Duration
	}{
		{time.Hour, 30 * time.Second},
		{time.Minute, 6 * time.Second},
		{10 * time.Second, time.Second},
	} {
		t.Run(fmt.Sprint(tc.lasts), func(t *testing.T) {
			a := &tokens{lasts: tc.lasts}
			guarded(t, a, legacyServer(""), func(g *guard, w *wire, l *life) {
				send := func(ref uint64) {
					l.send(request(ref, modern, "tools/call"))
					synctest.Wait()
				}
				send(1)
				time.Sleep(tc.lasts - tc.early - time.Millisecond)
				send(2)
				time.Sleep(time.Millisecond)
				g.set("B")
				send(3)
				l.want(message(1, answer(1)), message(2, answer(2)), message(3, answer(3)))
				var shown []string
				for _, r := range w.requests() {
					shown = append(shown, strings.TrimPrefix(r.Authorization, "Bearer "))
				}
				if got := strings.Join(shown, ""); got != "AAB" {
					t.Errorf("tokens shown: %s, want AAB, each once", got)
				}
			})
		})
	}
}

func TestCredentialsThatStillHoldOutliveAFailureToRenewThemEarly(t *testing.T) {
	down := errors.New("the token server is down")
	a := &tokens{lasts: time.Hour, err: down}
	guarded(t, a, legacyServer(""), func(g *guard, w *wire, l *life) {
		ref := uint64(0)
		send := func() {
			ref++
			l.send(request(ref, modern, "tools/call"))
			synctest.Wait()
		}
		send()
		time.Sleep(time.Hour - 20*time.Second)
		send()
		send()
		if n := a.asked.Load(); n != 2 {
			t.Errorf("the Authorizer was asked %d times, want 2: once at first and once early", n)
		}
		l.want(message(1, answer(1)), message(2, answer(2)), message(3, answer(3)))
		time.Sleep(20 * time.Second) // now they are over, and nothing is sent without
		send()
		l.want(message(1, answer(1)), message(2, answer(2)), message(3, answer(3)), transports.Unsent{Ref: 4})
		failed := new(streamable.AuthError)
		if cause := l.got()[3].(transports.Unsent).Cause; !errors.As(cause, &failed) || !errors.Is(cause, down) {
			t.Errorf("the cause is %v", cause)
		}
		if n := w.count("POST"); n != 3 {
			t.Errorf("%d POSTs, want 3", n)
		}
	})
}

func TestAnAuthorizerThatPanicsOrGivesALineBreakIsAnError(t *testing.T) {
	for name, authorize := range map[string]streamable.AuthorizerFunc{
		"panic": func(context.Context, streamable.Reason) (streamable.Credentials, error) { panic("boom") },
		"line break": func(context.Context, streamable.Reason) (streamable.Credentials, error) {
			return streamable.Credentials{Authorization: "Bearer a\r\nX: 1"}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
				conf := w.config()
				conf.Authorizer = authorize
				l := live(t, conf.Factory())
				l.send(request(1, modern, "ping"))
				synctest.Wait()
				l.want(transports.Unsent{Ref: 1})
				l.stop(errTestOver)
				w.Close()
			})
		})
	}
}

// Credentials belong to the factory: the next incarnation goes on with them.
func TestCredentialsOutliveAnIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &tokens{}
		g := &guard{want: "A", next: legacyServer("")}
		w := newWire(t, g.serve)
		conf := w.config()
		conf.Authorizer = a
		f := conf.Factory()
		for ref := uint64(1); ref < 4; ref++ {
			l := live(t, f)
			l.send(request(ref, modern, "ping"))
			synctest.Wait()
			l.want(message(ref, answer(ref)))
			l.stop(errTestOver)
		}
		if n := a.asked.Load(); n != 1 {
			t.Errorf("the Authorizer was asked %d times, want 1", n)
		}
		w.Close()
	})
}
