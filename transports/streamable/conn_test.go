package streamable_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

func TestConnectionsAreUsedAgainWhateverTheAnswerLookedLike(t *testing.T) {
	for _, tc := range []struct {
		name  string
		serve http.HandlerFunc
		out   func(ref uint64) transports.Outbound
		dials int64
		wait  time.Duration // until the event
	}{
		{name: "JSON", serve: func(w http.ResponseWriter, r *http.Request) { writeJSON(w, answer(readMessage(r).ID)) }, dials: 1},
		{name: "chunked JSON", serve: func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, "")
			w.(http.Flusher).Flush()
			writeJSON(w, answer(readMessage(r).ID))
		}, dials: 1},
		{name: "an event stream", serve: func(w http.ResponseWriter, r *http.Request) {
			stream(w)("data: " + answer(readMessage(r).ID) + "\n\n")
		}, dials: 1},
		{name: "a stream that ends 240 ms after the answer", serve: func(w http.ResponseWriter, r *http.Request) {
			stream(w)("data: " + answer(readMessage(r).ID) + "\n\n")
			time.Sleep(240 * time.Millisecond)
		}, dials: 1},
		{name: "a stream that does not end is left after 250 ms", serve: func(w http.ResponseWriter, r *http.Request) {
			stream(w)("data: " + answer(readMessage(r).ID) + "\n\n")
			<-r.Context().Done()
		}, dials: 20},
		{name: "JSON that does not end is left after 250 ms", serve: func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, answer(readMessage(r).ID))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, dials: 20, wait: 250 * time.Millisecond},
		{name: "a refusal", serve: func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 500) }, dials: 1},
		{name: "a page", serve: func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>"+strings.Repeat("x", 10_000)) }, dials: 1},
		{
			name: "an accepted notification", out: func(ref uint64) transports.Outbound { return notification(ref, "notifications/x") },
			serve: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(202) }, dials: 1,
		},
		{
			name: "one accepted with a body", out: func(ref uint64) transports.Outbound { return notification(ref, "notifications/x") },
			serve: func(w http.ResponseWriter, r *http.Request) { writeJSON(w, "null") }, dials: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, tc.serve, func(w *wire, l *life) {
				for ref := uint64(1); ref <= 20; ref++ {
					out := request(ref, legacy, "tools/call")
					if tc.out != nil {
						out = tc.out(ref)
					}
					l.send(out)
					time.Sleep(tc.wait)
					synctest.Wait()
					if n := len(l.got()); n != int(ref) {
						t.Fatalf("%d events after %d requests", n, ref)
					}
					time.Sleep(260 * time.Millisecond)
				}
				if n := w.dials.Load(); n != tc.dials {
					t.Errorf("%d connections for 20 requests, want %d", n, tc.dials)
				}
			})
		})
	}
}

func TestManyConnectionsStayForTheNextCalls(t *testing.T) {
	const callers = 128
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // so that all are under way at once
			writeJSON(w, answer(readMessage(r).ID))
		})
		l := live(t, w.config().Factory())
		for round := range uint64(3) {
			for i := range uint64(callers) {
				l.send(request(round*callers+i+1, modern, "tools/call"))
			}
			time.Sleep(2 * time.Second)
		}
		if n, dials := len(l.got()), w.dials.Load(); n != 3*callers || dials != callers {
			t.Errorf("%d answers on %d connections, want %d on %d", n, dials, 3*callers, callers)
		}
		l.stop(errTestOver)
		w.Close()
	})
}

// dying is a server that answers its first request on each connection, reads
// what comes next and closes the connection then without an answer: what net/http
// would repeat by itself, if it could.
func dying(t *testing.T, read *atomic.Int64, requests int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for i := 0; ; i++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					read.Add(1)
					if i == requests {
						return
					}
					body := answer(1)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n"+body)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/mcp"
}

func TestT12_NetHTTPNeverRepeatsAPOST(t *testing.T) {
	for name, header := range map[string]http.Header{
		"plain":              nil,
		"an idempotency key": {"Idempotency-Key": {"x"}, "X-Idempotency-Key": {"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int64
			conf := streamable.Config{URL: dying(t, &read, 1), Header: header}
			l := live(t, conf.Factory())
			got := l.watch()
			l.send(request(1, modern, "tools/call"))
			if e := <-got; e.(transports.Message).Ref != 1 {
				t.Errorf("%#v", e)
			}
			l.send(request(2, modern, "tools/call")) // on the connection that dies
			if e, ok := (<-got).(transports.Broken); !ok || e.Ref != 2 {
				t.Errorf("%#v, want a break", e)
			}
			if n := read.Load(); n != 2 {
				t.Errorf("the server read %d requests, want 2", n)
			}
			l.stop(errTestOver)
		})
	}
}

// watch passes on what comes from now on.
func (l *life) watch() <-chan transports.Event {
	c := make(chan transports.Event, 100)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hook = func(e transports.Event) { c <- e }
	return c
}

// A pooled connection that was closed while nobody used it costs nothing: the
// request has not been begun on it.
func TestT12_AConnectionThatDiedIdleIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWireWith(t, legacyServer("S1"), time.Second)
		l := live(t, w.config().Factory())
		for ref := uint64(1); ref <= 5; ref++ {
			l.send(request(ref, modern, "tools/call"))
			time.Sleep(2 * time.Second)
		}
		l.want(message(1, answer(1)), message(2, answer(2)), message(3, answer(3)), message(4, answer(4)), message(5, answer(5)))
		if n := w.dials.Load(); n != 5 {
			t.Errorf("%d connections, want 5", n)
		}
		l.stop(errTestOver)
		w.Close()
	})
}

// deadPool is a round tripper whose pooled connections prove dead before
// anything is written: net/http says so by an error, because it can't read the
// body twice.
type deadPool struct {
	next http.RoundTripper
	dead int
	same net.Conn // it gives this one out each time
	hits int
}

func (d *deadPool) RoundTrip(r *http.Request) (*http.Response, error) {
	d.hits++
	if d.dead--; d.dead >= 0 {
		conn := d.same
		if conn == nil {
			conn = new(net.TCPConn)
		}
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: conn, Reused: true})
		r.Body.Close()
		return nil, errReset
	}
	return d.next.RoundTrip(r)
}

// A connection that is given out again was not dead: what fails before anything is
// sent would fail for ever.
func TestT12_ARequestThatADeadConnectionDidNotTakeIsSentOnAnother(t *testing.T) {
	for _, tc := range []struct {
		name string
		pool deadPool
		hits int
		want transports.Event
	}{
		{"two are dead", deadPool{dead: 2}, 3, message(1, answer(1))},
		{"all are", deadPool{dead: 1000}, 3, transports.Unsent{Ref: 1}},
		{"it is the same one", deadPool{dead: 1000, same: new(net.TCPConn)}, 2, transports.Unsent{Ref: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, legacyServer(""))
				tc.pool.next = w.client.Transport
				conf := w.config()
				conf.Client = &http.Client{Transport: &tc.pool}
				l := live(t, conf.Factory())
				l.send(request(1, modern, "tools/call"))
				synctest.Wait()
				l.want(tc.want)
				if tc.pool.hits != tc.hits {
					t.Errorf("it was tried %d times, want %d", tc.pool.hits, tc.hits)
				}
				cause := new(streamable.UnsentError)
				if u, ok := l.got()[0].(transports.Unsent); ok && (!errors.As(u.Cause, &cause) || !errors.Is(cause, errReset) || cause.Permanent()) {
					t.Errorf("unsent because of %v", u.Cause)
				}
				l.stop(errTestOver)
				w.Close()
			})
		})
	}
}

// Headers that HTTP/2 can't carry to this server fail before anything is sent, on a
// connection that is well.
func TestHeadersThatTheServerDoesNotTakeAreUnsentForGood(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := httptest.NewUnstartedServer(legacyServer(""))
	server.EnableHTTP2, server.Config.MaxHeaderBytes = true, 8<<10
	server.StartTLS()
	defer server.Close()
	l := live(t, streamable.Config{URL: server.URL, Client: server.Client()}.Factory())
	got := l.watch()
	for ref := range uint64(3) { // the server's settings come at once, but not before the first request
		l.send(request(2*ref+1, modern, "ping"))
		<-got
		l.send(withHeader(request(2*ref+2, modern, "tools/call"), "Mcp-Param-A", strings.Repeat("x", 20<<10)))
		cause := new(streamable.UnsentError)
		if u, ok := (<-got).(transports.Unsent); !ok || !errors.As(u.Cause, &cause) || !cause.Permanent() {
			t.Errorf("%#v, want an Unsent that no other try can cure", u)
		}
	}
	l.stop(errTestOver)
	server.Client().CloseIdleConnections()
}

func TestB036_T11_AnAnswerIsDeliveredAndCloseReturnsWhileTheServerKeepsTheStream(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			left := make(chan struct{}, 10)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != version {
					t.Errorf("the request came by %s", r.Proto)
				}
				m := readMessage(r)
				write := stream(w)
				if m.Method == "tools/call" {
					write("data: " + answer(m.ID) + "\n\n")
				}
				<-r.Context().Done()
				left <- struct{}{}
			}))
			server.EnableHTTP2 = version == "HTTP/2.0"
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			conf := streamable.Config{URL: server.URL, Client: server.Client(), ReadOut: time.Hour}
			l := live(t, conf.Factory())
			got := l.watch()
			l.send(request(1, modern, "tools/call"))
			if e, ok := (<-got).(transports.Message); !ok || e.Ref != 1 {
				t.Errorf("%#v, want the answer", e)
			}
			l.send(request(2, modern, "subscriptions/listen"))
			l.send(request(3, modern, "subscriptions/listen"))
			l.tr.Cancel(2)
			l.tr.Cancel(3)
			if err := l.stop(errTestOver); err != errTestOver {
				t.Errorf("Serve returned %v", err)
			}
			<-left
			server.Client().CloseIdleConnections()
		})
	}
}

// What the factory made ends with its last incarnation, streams and idle
// connections included.
func TestNothingIsLeftOfTheFactorysOwnClient(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			stream(w)("")
			<-r.Context().Done()
			return
		}
		writeJSON(w, answer(readMessage(r).ID))
	}))
	defer server.Close()
	f := streamable.Endpoint(server.URL+"/mcp", nil)
	first, second := live(t, f), live(t, f)
	for _, l := range []*life{first, second} {
		got := l.watch()
		l.send(listen(1, ""))
		if e := <-got; e != transports.Event(transports.Opened{Ref: 1}) {
			t.Errorf("%#v", e)
		}
		l.send(request(2, legacy, "ping"))
		if e, ok := (<-got).(transports.Message); !ok {
			t.Errorf("%#v", e)
		}
	}
	first.stop(errTestOver)
	got := second.watch()
	second.send(request(3, legacy, "ping")) // on a connection that is still there
	if e, ok := (<-got).(transports.Message); !ok {
		t.Errorf("%#v", e)
	}
	second.stop(errTestOver)
}

func TestATLSFailureIsUnsent(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := httptest.NewUnstartedServer(legacyServer(""))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	l := live(t, streamable.Endpoint(server.URL, nil)) // which does not know its certificate
	got := l.watch()
	l.send(request(1, modern, "ping"))
	connect := new(streamable.ConnectError)
	if u, ok := (<-got).(transports.Unsent); !ok || !errors.As(u.Cause, &connect) || !strings.Contains(u.Cause.Error(), "certificate") {
		t.Errorf("%#v, want an Unsent that names the certificate", u)
	}
	l.stop(errTestOver)
}

func TestSendDoesNotWaitAndAQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(http.ResponseWriter, *http.Request) {})
		conf := w.config()
		connect := make(chan struct{})
		w.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			<-connect
			return nil, errRefused
		}
		l := live(t, conf.Factory())
		out := request(0, modern, "tools/call")
		out.Frame = make([]byte, 1<<20)
		taken := 0
		for {
			out.Ref++
			err := l.tr.Send(out)
			if err == transports.ErrFull {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			taken++
		}
		if want := transports.MaxQueued >> 20; taken != want {
			t.Errorf("%d MiB were taken, want %d", taken, want)
		}
		close(connect)
		synctest.Wait()
		if n := len(l.got()); n != taken {
			t.Errorf("%d events for %d attempts", n, taken)
		}
		if err := l.tr.Send(out); err != nil {
			t.Errorf("Send to an empty queue: %v", err)
		}
		l.stop(errTestOver)
		if err := l.tr.Send(out); err != transports.ErrGone {
			t.Errorf("Send after the end: %v", err)
		}
		w.Close()
	})
}
