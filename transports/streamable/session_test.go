package streamable_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

// legacyServer answers like a small stateful server that issues id.
func legacyServer(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch m := readMessage(r); {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", id)
			writeJSON(w, answer(m.ID))
		case m.ID == 0:
			w.WriteHeader(http.StatusAccepted)
		default:
			writeJSON(w, answer(m.ID))
		}
	}
}

func TestH11_TheSessionIDComesFromASuccessfulInitializeAndGoesOnAllThatFollows(t *testing.T) {
	inBubble(t, legacyServer("S1"), func(w *wire, l *life) {
		l.send(request(1, "", "initialize"))
		synctest.Wait()
		l.send(notification(2, "notifications/initialized"))
		synctest.Wait()
		l.send(request(3, legacy, "tools/list"))
		synctest.Wait()
		l.send(request(4, "", "initialize"))
		synctest.Wait()
		l.want(message(1, answer(1)), transports.Sent{Ref: 2}, message(3, answer(3)), message(4, answer(4)))
		l.stop(errTestOver)
		var got []seen
		for _, s := range w.requests() {
			s.Body = ""
			got = append(got, s)
		}
		if diff := cmp.Diff([]seen{
			{Method: "POST", Path: "/mcp"},
			{Method: "POST", Path: "/mcp", Session: "S1", Version: legacy},
			{Method: "POST", Path: "/mcp", Session: "S1", Version: legacy},
			{Method: "POST", Path: "/mcp"},
			{Method: "DELETE", Path: "/mcp", Session: "S1", Version: legacy},
		}, got); diff != "" {
			t.Errorf("on the wire (-want +got):\n%s", diff)
		}
	})
}

func TestH11_OnlyASuccessfulInitializeGivesASessionID(t *testing.T) {
	for _, tc := range []struct {
		name  string
		serve http.HandlerFunc
		want  string // the session that the next request carries
	}{
		{"a JSON answer", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, answer(1))
		}, "S1"},
		{"an answer in an event stream", func(w http.ResponseWriter, _ *http.Request) {
			stream(w)("data: " + answer(1) + "\n\n")
		}, "S1"},
		{"an error", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)
		}, ""},
		{"a refusal", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
		}, ""},
		{"an answer cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			writeJSON(w, `{"jsonrpc":"2.0"`)
		}, ""},
		{"a stream without the answer", func(w http.ResponseWriter, _ *http.Request) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				m := readMessage(r)
				if m.Method == "initialize" {
					w.Header().Set("Mcp-Session-Id", "S1")
					tc.serve(w, r)
					return
				}
				w.Header().Set("Mcp-Session-Id", "S2") // of no meaning here
				writeJSON(w, answer(m.ID))
			}
			inBubble(t, handler, func(w *wire, l *life) {
				l.send(request(1, "", "initialize"))
				synctest.Wait()
				l.send(request(2, legacy, "ping"))
				synctest.Wait()
				l.send(request(3, legacy, "ping"))
				synctest.Wait()
				for _, r := range w.requests()[1:] {
					if r.Session != tc.want {
						t.Errorf("the session sent is %q, want %q", r.Session, tc.want)
					}
				}
			})
		})
	}
}

// The session is in force before its answer is known to anybody: whoever sends
// in the very callback of the answer sends the session.
func TestH11_TheSessionIsInForceBeforeItsAnswerIsEmitted(t *testing.T) {
	inBubble(t, legacyServer("S1"), func(w *wire, l *life) {
		l.hook = func(e transports.Event) {
			if m, ok := e.(transports.Message); ok && m.Ref == 1 {
				l.send(notification(2, "notifications/initialized"))
			}
		}
		l.send(request(1, "", "initialize"))
		synctest.Wait()
		if got := w.requests()[1].Session; got != "S1" {
			t.Errorf("initialized was sent with session %q", got)
		}
	})
}

// A session that only the user's headers carry is no session of this transport.
func TestH3_ASessionOfTheUsersHeadersIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		conf := w.config()
		conf.Header = http.Header{"MCP-Session-ID": {"mine"}}
		l := live(t, conf.Factory())
		for i, out := range []transports.Outbound{
			request(1, "", "initialize"), request(2, legacy, "ping"), request(3, modern, "tools/list"),
		} {
			l.send(out)
			synctest.Wait()
			want := []string{"", "mine", ""}[i]
			if got := w.requests()[i].Session; got != want {
				t.Errorf("%s carried session %q, want %q", out.Method, got, want)
			}
		}
		l.want(
			transports.Rejected{Ref: 1, Status: 404},
			transports.Rejected{Ref: 2, Status: 404},
			transports.Rejected{Ref: 3, Status: 404},
		)
		l.stop(errTestOver)
		if n := w.count("DELETE"); n != 0 {
			t.Errorf("%d DELETE for a session that is not ours", n)
		}
		w.Close()
	})
}

func TestH1_ARefusalNamesTheSessionThatTheRequestCarried(t *testing.T) {
	gone := false
	serve := legacyServer("S1")
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if gone && r.Header.Get("Mcp-Session-Id") != "" {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		serve(w, r)
	}, func(_ *wire, l *life) {
		l.send(request(1, "", "initialize"))
		synctest.Wait()
		gone = true
		l.send(request(2, legacy, "tools/list"))
		synctest.Wait()
		l.want(message(1, answer(1)), transports.Rejected{Ref: 2, Status: 404, Body: []byte("no such session\n"), Session: "S1"})
	})
}

func TestH4_AnyRefusalOfTheStandaloneGETIsAFactAndNoMore(t *testing.T) {
	for _, status := range []int{400, 404, 405, 406, 501} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			serve := legacyServer("S1")
			inBubble(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.WriteHeader(status)
					return
				}
				serve(w, r)
			}, func(w *wire, l *life) {
				l.send(request(1, "", "initialize"))
				synctest.Wait()
				l.send(listen(2, ""))
				synctest.Wait()
				for ref := uint64(3); ref < 6; ref++ {
					l.send(request(ref, legacy, "tools/list"))
					synctest.Wait()
				}
				l.want(
					message(1, answer(1)), transports.Rejected{Ref: 2, Status: status, Session: "S1"},
					message(3, answer(3)), message(4, answer(4)), message(5, answer(5)),
				)
				if n := w.count("GET"); n != 1 {
					t.Errorf("%d GETs, want 1: the transport repeats nothing", n)
				}
			})
		})
	}
}

func TestB016_AGETAnswered404AndAnUnknownMethodAreFactsOfTheirOwn(t *testing.T) {
	unknown := `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, unknown)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}, func(w *wire, l *life) {
		l.send(listen(1, ""))
		synctest.Wait()
		l.send(request(2, modern, "vendor/unknown"))
		synctest.Wait()
		l.want(
			transports.Rejected{Ref: 1, Status: 404},
			transports.Rejected{Ref: 2, Status: 404, Body: []byte(unknown)},
		)
		if n := len(w.requests()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

func TestH4_AnOpenStandaloneStreamSaysThatItOpenedAndThatItEnded(t *testing.T) {
	notify := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	gone := false
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if gone {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		stream(w)("id: 7\nretry: 1500\ndata: " + notify + "\n\n")
	}, func(w *wire, l *life) {
		l.send(listen(1, ""))
		synctest.Wait()
		gone = true
		l.send(listen(2, "7"))
		synctest.Wait()
		l.want(
			transports.Opened{Ref: 1}, message(0, notify),
			transports.Broken{Ref: 1, LastID: "7", Retry: 1500 * time.Millisecond},
			transports.Rejected{Ref: 2, Status: 404},
		)
		if got := w.requests()[1].LastID; got != "7" {
			t.Errorf("the second GET carried Last-Event-ID %q", got)
		}
	})
}

func TestH14_CloseDeletesTheSession(t *testing.T) {
	for _, tc := range []struct {
		name      string
		after     time.Duration // when initialize shows its session, if it does
		cause     error
		delete    time.Duration // how long the DELETE takes
		wantAfter time.Duration
		wantIDs   []string
	}{
		{name: "of an initialize in flight, as soon as it shows it", after: time.Second, cause: errTestOver, wantAfter: time.Second, wantIDs: []string{"S1"}},
		{name: "of no initialize that shows it too late", after: time.Minute, cause: errTestOver, wantAfter: 2 * time.Second},
		{name: "and does not wait long for the answer", after: time.Second, delete: time.Hour, cause: errTestOver, wantAfter: 3 * time.Second, wantIDs: []string{"S1"}},
		{name: "but not of a retired incarnation", after: time.Second, cause: fmt.Errorf("replaced: %w", transports.ErrRetired)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
					wait := tc.delete
					if r.Method == http.MethodPost {
						w.Header().Set("Mcp-Session-Id", "S1")
						wait = tc.after
					}
					select {
					case <-time.After(wait):
					case <-r.Context().Done():
						return
					}
					writeJSON(w, answer(1))
				})
				l := live(t, w.config().Factory())
				l.send(request(1, "", "initialize"))
				l.send(request(2, legacy, "tools/list"))
				synctest.Wait()
				start := time.Now()
				if tc.delete > 0 {
					// DeleteWait is 2 s, and 1 s was for the session id.
					tc.wantAfter = tc.after + 2*time.Second
				}
				if err := l.stop(tc.cause); err != tc.cause {
					t.Errorf("Serve returned %v, want the cause", err)
				}
				if took := time.Since(start); took != tc.wantAfter {
					t.Errorf("the close took %v, want %v", took, tc.wantAfter)
				}
				var ids []string
				for _, r := range w.requests() {
					if r.Method == http.MethodDelete {
						ids = append(ids, r.Session)
					}
				}
				if diff := cmp.Diff(tc.wantIDs, ids); diff != "" {
					t.Errorf("sessions deleted (-want +got):\n%s", diff)
				}
				l.want() // a close is no break, and what was written counts as that
				w.Close()
			})
		})
	}
}

func TestARetiredSessionIsNotMentionedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, legacyServer("S1"))
		l := live(t, w.config().Factory())
		l.send(request(1, "", "initialize"))
		synctest.Wait()
		l.stop(transports.ErrRetired)
		if n := w.count("DELETE"); n != 0 {
			t.Errorf("%d DELETE", n)
		}
		w.Close()
	})
}
