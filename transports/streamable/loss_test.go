package streamable_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// hijack takes the connection over, to answer in bytes.
func hijack(w http.ResponseWriter, raw string, then ...string) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	io.WriteString(c, raw)
	for _, s := range then {
		io.WriteString(c, s)
	}
	c.Close()
}

const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`

func TestM1_AResponseWithoutItsAnswerIsABreak(t *testing.T) {
	const okJSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	const okEvents = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for _, tc := range []struct {
		name  string
		serve func(http.ResponseWriter)
		want  []transports.Event
		cause error // nil: any
	}{
		{
			"the connection ends before the headers",
			func(w http.ResponseWriter) { hijack(w, "") },
			[]transports.Event{transports.Broken{Ref: 1}},
			io.EOF,
		},
		{
			"and in the middle of them",
			func(w http.ResponseWriter) { hijack(w, "HTTP/1.1 200 OK\r\nContent-") },
			[]transports.Event{transports.Broken{Ref: 1}},
			nil,
		},
		{
			"a JSON body is shorter than its length",
			func(w http.ResponseWriter) {
				hijack(w, okJSON+"Content-Length: 90\r\n\r\n"+`{"jsonrpc":"2.0","id":1,"result":{}`)
			},
			[]transports.Event{transports.Broken{Ref: 1}},
			io.ErrUnexpectedEOF,
		},
		{
			"a chunked JSON body has no last chunk",
			func(w http.ResponseWriter) {
				hijack(w, okJSON+"Transfer-Encoding: chunked\r\n\r\n10\r\n"+`{"jsonrpc":"2.0"`+"\r\n")
			},
			[]transports.Event{transports.Broken{Ref: 1}},
			io.ErrUnexpectedEOF,
		},
		{
			"a chunked JSON body ends well in the middle of an object",
			func(w http.ResponseWriter) {
				hijack(w, okJSON+"Transfer-Encoding: chunked\r\n\r\n10\r\n"+`{"jsonrpc":"2.0"`+"\r\n0\r\n\r\n")
			},
			[]transports.Event{transports.Broken{Ref: 1}},
			io.ErrUnexpectedEOF,
		},
		{
			"a JSON body that lasts until the connection ends is cut",
			func(w http.ResponseWriter) { hijack(w, okJSON+"\r\n"+`{"jsonrpc":"2.0","id":1,"result":"abc`) },
			[]transports.Event{transports.Broken{Ref: 1}},
			io.ErrUnexpectedEOF,
		},
		{
			"a stream ends without an event",
			func(w http.ResponseWriter) { stream(w)("") },
			[]transports.Event{transports.Broken{Ref: 1}},
			streamable.ErrEnded,
		},
		{
			"a stream ends after a notification",
			func(w http.ResponseWriter) { stream(w)("data: " + progress + "\n\n") },
			[]transports.Event{message(1, progress), transports.Broken{Ref: 1}},
			streamable.ErrEnded,
		},
		{
			"half of the answer's event",
			func(w http.ResponseWriter) { stream(w)("data: " + progress + "\n\ndata: " + answer(1) + "\n") },
			[]transports.Event{message(1, progress), transports.Broken{Ref: 1}},
			streamable.ErrEnded,
		},
		{
			"a stream is cut in the middle of a line",
			func(w http.ResponseWriter) { hijack(w, okEvents+"id: 3\n\ndata: "+answer(1)) },
			[]transports.Event{transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: "3"}},
			streamable.ErrEnded,
		},
		{
			"a chunked stream has no last chunk",
			func(w http.ResponseWriter) {
				hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nid: 3\n\r\n", "1\r\n\n\r\n")
			},
			[]transports.Event{transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: "3"}},
			io.ErrUnexpectedEOF,
		},
		{
			"the answer to somebody else is none",
			func(w http.ResponseWriter) { stream(w)("data: " + answer(7) + "\n\n") },
			[]transports.Event{message(1, answer(7)), transports.Broken{Ref: 1}},
			streamable.ErrEnded,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) { tc.serve(w) }, func(w *wire, l *life) {
				l.send(request(1, modern, "resources/read"))
				synctest.Wait()
				l.want(tc.want...)
				events := l.got()
				if b, ok := events[len(events)-1].(transports.Broken); !ok || tc.cause != nil && !errors.Is(b.Cause, tc.cause) {
					t.Errorf("the break has the cause %v, want %v", b.Cause, tc.cause)
				}
				if n := w.count("POST"); n != 1 {
					t.Errorf("%d POSTs, want 1: the transport repeats nothing", n)
				}
			})
		})
	}
}

var errReset = errors.New("connection reset by peer")

func TestM1_AResetBeforeTheHeadersIsABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(http.ResponseWriter, *http.Request) {})
		conf := w.config()
		transport := w.client.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &afterWrite{Conn: c, written: make(chan struct{})}, err
		}
		l := live(t, conf.Factory())
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.want(transports.Broken{Ref: 1})
		l.stop(errTestOver)
		w.Close()
	})
}

// afterWrite is a connection that takes a request and is reset then.
type afterWrite struct {
	net.Conn
	once    sync.Once
	written chan struct{}
}

func (c *afterWrite) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.once.Do(func() { close(c.written) })
	return n, err
}

func (c *afterWrite) Read([]byte) (int, error) {
	<-c.written
	return 0, errReset
}

func TestM2_WhatIsNoBreak(t *testing.T) {
	failed := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`
	for _, tc := range []struct {
		name  string
		serve func(http.ResponseWriter)
		want  transports.Event
	}{
		{"the connection dies after the answer in a stream", func(w http.ResponseWriter) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n30\r\ndata: "+answer(1)+"\n\n        \r\n")
		}, message(1, answer(1))},
		{"the connection dies after a whole JSON answer, before the last chunk", func(w http.ResponseWriter) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n24\r\n"+answer(1)+"\r\n")
		}, message(1, answer(1))},
		{"an error of the peer", func(w http.ResponseWriter) { writeJSON(w, failed) }, message(1, failed)},
		{"an error of the peer in a stream", func(w http.ResponseWriter) { stream(w)("data: " + failed + "\n\n") }, message(1, failed)},
		{"an error that names no request", func(w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}`)
		}, message(1, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}`)},
		{"an id spelled as text", func(w http.ResponseWriter) {
			stream(w)(`data: {"jsonrpc":"2.0","id":"1","result":{}}` + "\n\n")
		}, message(1, `{"jsonrpc":"2.0","id":"1","result":{}}`)},
		{
			"a status of refusal", func(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) },
			transports.Rejected{Ref: 1, Status: 503, Body: []byte("busy\n")},
		},
		{"a refusal whose body is cut", func(w http.ResponseWriter) {
			hijack(w, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 100\r\n\r\nbad gate")
		}, transports.Rejected{Ref: 1, Status: 502, Body: []byte("bad gate")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) { tc.serve(w) }, func(_ *wire, l *life) {
				l.send(request(1, modern, "tools/call"))
				synctest.Wait()
				time.Sleep(time.Second) // fake: whatever is read on is over
				l.want(tc.want)
			})
		})
	}
}

func TestM2_OurOwnCancelAndCloseAreNoBreak(t *testing.T) {
	closed := make(chan string, 2)
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		m := readMessage(r)
		stream(w)("data: " + progress + "\n\n")
		<-r.Context().Done()
		closed <- m.Method
	}, func(_ *wire, l *life) {
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.send(request(2, modern, "subscriptions/listen"))
		synctest.Wait()
		l.want(message(1, progress), message(2, progress))
		if unsent := l.tr.Cancel(1); unsent {
			t.Error("Cancel says that nothing was written")
		}
		// Closing the stream is the cancellation (2026-07-28, Cancellation).
		if got := <-closed; got != "tools/call" {
			t.Errorf("the server saw %s closed", got)
		}
		l.stop(errTestOver)
		if got := <-closed; got != "subscriptions/listen" {
			t.Errorf("the server saw %s closed", got)
		}
		l.want(message(1, progress), message(2, progress))
	})
}

// A peer can say whatever it wants: a break is an event of the transport, and an
// answer that reads like one stays an answer.
func TestT7_NoAnswerOfAPeerReadsAsABreak(t *testing.T) {
	forged := `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"` + streamable.ErrEnded.Error() + `","data":{"Broken":true}}}`
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, forged) }, func(_ *wire, l *life) {
		l.send(request(1, modern, "tools/call"))
		synctest.Wait()
		l.want(message(1, forged))
	})
}

func TestM13_NoConnectionIsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, answer(2)) })
		w.refuse.Store(true)
		l := live(t, w.config().Factory())
		l.send(request(1, modern, "tools/call"))
		l.send(listen(3, ""))
		synctest.Wait()
		for _, e := range l.got() {
			u, ok := e.(transports.Unsent)
			connect := new(streamable.ConnectError)
			if !ok || !errors.As(u.Cause, &connect) || !errors.Is(u.Cause, errRefused) || connect.Host != "server.test" {
				t.Errorf("%#v, want an Unsent because of a *ConnectError", e)
			}
		}
		if n, dials := len(l.got()), w.dials.Load(); n != 2 || dials != 2 {
			t.Errorf("%d events and %d dials, want 2 of each", n, dials)
		}
		w.refuse.Store(false)
		l.send(request(2, modern, "tools/call"))
		synctest.Wait()
		if diff := cmp.Diff(transports.Event(message(2, answer(2))), l.got()[2]); diff != "" {
			t.Errorf("once it is there (-want +got):\n%s", diff)
		}
		l.stop(errTestOver)
		w.Close()
	})
}

func TestCancelOfARequestThatHasNoConnectionYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(http.ResponseWriter, *http.Request) { t.Error("a cancelled request arrived") })
		conf := w.config()
		connect := make(chan struct{})
		transport := w.client.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-connect
			return dial(ctx, network, addr)
		}
		l := live(t, conf.Factory())
		l.send(request(1, modern, "tools/call"))
		l.send(request(2, legacy, "tools/call"))
		synctest.Wait()
		if !l.tr.Cancel(1) {
			t.Error("Cancel says that something was written")
		}
		l.end(errTestOver)
		<-l.done
		l.want(transports.Unsent{Ref: 2}) // it was not begun, and will not be
		close(connect)
		synctest.Wait()
		w.Close()
	})
}
