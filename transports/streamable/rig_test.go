package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// wire is a server on net.Pipe connections and a client that dials it, so that
// both live in a bubble. It keeps every request that arrived.
type wire struct {
	t      *testing.T
	conns  chan net.Conn
	closed chan struct{}
	client *http.Client
	server *http.Server
	dials  atomic.Int64
	refuse atomic.Bool // connections are refused

	mu   sync.Mutex
	seen []seen
}

// seen is one request as the server got it.
type seen struct {
	Method, Path, Session, Version, LastID, Authorization string
	Body                                                  string
}

var errRefused = errors.New("connection refused")

// newWire serves handler. It must be closed at the end of the bubble.
func newWire(t *testing.T, handler http.HandlerFunc) *wire { return newWireWith(t, handler, 0) }

// newWireWith is newWire with a server that closes a connection idle for so long.
func newWireWith(t *testing.T, handler http.HandlerFunc, idle time.Duration) *wire {
	w := &wire{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
	w.server = &http.Server{IdleTimeout: idle, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		w.mu.Lock()
		w.seen = append(w.seen, seen{
			Method: r.Method, Path: r.URL.RequestURI(), Session: r.Header.Get("Mcp-Session-Id"),
			Version: r.Header.Get("MCP-Protocol-Version"), LastID: r.Header.Get("Last-Event-ID"),
			Authorization: r.Header.Get("Authorization"), Body: string(body),
		})
		w.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		handler(rw, r)
	})}
	w.client = &http.Client{Transport: &http.Transport{DialContext: w.dial, MaxIdleConnsPerHost: 128}}
	go w.server.Serve(w)
	t.Cleanup(func() {
		select {
		case <-w.closed:
		default:
			t.Error("the wire was not closed")
		}
	})
	return w
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.dials.Add(1)
	if w.refuse.Load() {
		return nil, errRefused
	}
	ours, theirs := net.Pipe()
	select {
	case w.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.closed:
		return nil, errRefused
	}
}

// Accept implements net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the server and what the client keeps.
func (w *wire) Close() error {
	select {
	case <-w.closed:
		return nil
	default:
	}
	close(w.closed)
	w.client.CloseIdleConnections()
	return w.server.Close()
}

// Addr implements net.Listener.
func (w *wire) Addr() net.Addr { return &net.TCPAddr{} }

// requests are those that arrived, in order.
func (w *wire) requests() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// count is how many requests of a method arrived.
func (w *wire) count(method string) (n int) {
	for _, r := range w.requests() {
		if r.Method == method {
			n++
		}
	}
	return n
}

// life is one incarnation and what it emitted.
type life struct {
	t    *testing.T
	tr   transports.Transport
	end  context.CancelCauseFunc
	done chan struct{}
	err  error

	mu     sync.Mutex
	events []transports.Event
	at     []time.Duration // since the start
	hook   func(transports.Event)
}

var errTestOver = errors.New("the test is over")

func (w *wire) config() streamable.Config {
	return streamable.Config{URL: "http://server.test/mcp", Client: w.client}
}

// live starts an incarnation of c.
func live(t *testing.T, f transports.Factory) *life {
	l := &life{t: t, tr: f.New(), done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	l.end = cancel
	start := time.Now()
	ready := make(chan struct{})
	go func() {
		defer close(l.done)
		l.err = l.tr.Serve(ctx, func(e transports.Event) {
			l.mu.Lock()
			l.events, l.at = append(l.events, e), append(l.at, time.Since(start))
			hook := l.hook
			l.mu.Unlock()
			if hook != nil {
				hook(e)
			}
			if _, ok := e.(transports.Ready); ok {
				close(ready)
			}
		})
	}()
	select {
	case <-ready:
	case <-l.done:
	}
	return l
}

// stop ends the incarnation and waits for Serve.
func (l *life) stop(cause error) error {
	l.end(cause)
	<-l.done
	return l.err
}

// got are the events so far, Ready apart.
func (l *life) got() []transports.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.events), func(e transports.Event) bool { return e == transports.Event(transports.Ready{}) })
}

// send sends what must be taken.
func (l *life) send(out transports.Outbound) {
	l.t.Helper()
	if err := l.tr.Send(out); err != nil {
		l.t.Fatalf("Send: %v", err)
	}
}

// want compares all events so far. Headers and causes have tests of their own.
func (l *life) want(want ...transports.Event) {
	l.t.Helper()
	diff := cmp.Diff(want, l.got(), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(transports.Rejected{}, "Header", "Cause"),
		cmpopts.IgnoreFields(transports.Broken{}, "Cause"),
		cmpopts.IgnoreFields(transports.Unsent{}, "Cause"))
	if diff != "" {
		l.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// inBubble runs a test of one incarnation against handler, and ends both.
func inBubble(t *testing.T, handler http.HandlerFunc, test func(*wire, *life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, handler)
		l := live(t, w.config().Factory())
		test(w, l)
		if err := l.stop(errTestOver); !errors.Is(err, errTestOver) {
			t.Errorf("Serve returned %v", err)
		}
		w.Close()
	})
}

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// request is a request whose id is its ref.
func request(ref uint64, version, method string) transports.Outbound {
	out := transports.Outbound{
		Ref: ref, ID: fmt.Sprint(ref), Method: method,
		Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q}`, ref, method),
	}
	if version != "" {
		out.Header = http.Header{"Mcp-Protocol-Version": {version}}
	}
	return out
}

func notification(ref uint64, method string) transports.Outbound {
	out := request(ref, legacy, method)
	out.ID, out.Frame = "", fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, method)
	return out
}

func answer(id uint64) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id) }

func message(ref uint64, frame string) transports.Message {
	return transports.Message{Ref: ref, Frame: []byte(frame)}
}

func writeJSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, body)
}

// stream begins an event stream and returns what writes to it at once.
func stream(w http.ResponseWriter) func(string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	return func(s string) {
		io.WriteString(w, s)
		flush()
	}
}

// rpc is what a server reads of a message.
type rpc struct {
	ID     uint64
	Method string
}

func readMessage(r *http.Request) (m rpc) {
	_ = json.NewDecoder(r.Body).Decode(&m) // a GET has none
	return m
}

func listen(ref uint64, lastID string) transports.Outbound {
	return transports.Outbound{Ref: ref, Op: transports.OpListen, LastID: lastID, Header: http.Header{"Mcp-Protocol-Version": {legacy}}}
}

func resume(ref uint64, lastID string) transports.Outbound {
	return transports.Outbound{Ref: ref, ID: fmt.Sprint(ref), Op: transports.OpResume, LastID: lastID, Header: http.Header{"Mcp-Protocol-Version": {legacy}}}
}
