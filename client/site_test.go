package client_test

import (
	"context"
	"encoding/json"
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

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// site is a scripted server of real HTTP, on net.Pipe connections so that it lives in a bubble. The zero
// value is a modern one.
type site struct {
	legacy bool
	open   bool // legacy: it has a standalone stream
	// on takes a request before the defaults do, and reports whether it did. It runs on the goroutine of
	// its request and may take its time.
	on func(h *hit) bool

	pipes  chan net.Conn
	closed chan struct{}
	down   atomic.Bool // connections are refused
	server *http.Server
	client *http.Client

	mu    sync.Mutex
	next  int
	knows []string
	seen  []*hit
	read  int
}

// hit is one HTTP request.
type hit struct {
	http.ResponseWriter
	site    *site
	Request *http.Request
	Body    string
	ID      string
	Method  string // of the message, or of HTTP
	Session string
	ended   <-chan struct{} // the site closes
}

// newSite serves in the bubble of t until that is over.
func newSite(t *testing.T, s *site) *site {
	s.pipes, s.closed = make(chan net.Conn), make(chan struct{})
	s.server = &http.Server{Handler: s}
	s.client = &http.Client{Transport: &http.Transport{DialContext: s.dial, MaxIdleConnsPerHost: 128}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.server.Serve(s) // ends by Close
	}()
	t.Cleanup(func() {
		close(s.closed)
		s.client.CloseIdleConnections()
		if err := s.server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return s
}

func (s *site) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if s.down.Load() {
		return nil, errNoConnection
	}
	ours, theirs := net.Pipe()
	select {
	case s.pipes <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, errNoConnection
	}
}

// Accept implements net.Listener.
func (s *site) Accept() (net.Conn, error) {
	select {
	case c := <-s.pipes:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *site) Close() error { return nil }

// Addr implements net.Listener.
func (s *site) Addr() net.Addr { return &net.TCPAddr{} }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &m)
	h := &hit{
		ResponseWriter: w, site: s, Request: r, Body: string(body), ID: string(m.ID), Method: or(m.Method, r.Method),
		Session: r.Header.Get("Mcp-Session-Id"), ended: s.closed,
	}
	s.mu.Lock()
	s.seen = append(s.seen, h)
	on := s.on
	s.mu.Unlock()
	if on == nil || !on(h) {
		h.answer()
	}
}

// answer is what a well-behaved server of the site's era does.
func (h *hit) answer() {
	s := h.site
	switch h.Method {
	case "initialize":
		if !s.legacy {
			h.reject(400, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"","data":{"supported":["2026-07-28"]}}}`, h.ID))
			return
		}
		h.initialize()
		return
	case "server/discover":
		if s.legacy {
			h.reject(400, "Bad Request: no session")
			return
		}
		h.result(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		return
	}
	switch {
	case s.legacy && !s.knowsIt(h.Session):
		h.reject(404, "")
	case h.Method == http.MethodGet && s.open:
		h.stream()
		select {
		case <-h.Request.Context().Done():
		case <-h.ended:
		}
	case h.Method == http.MethodGet:
		h.reject(405, "")
	case h.ID == "":
		h.WriteHeader(http.StatusAccepted)
	default:
		h.result(`{}`)
	}
}

// initialize begins a session.
func (h *hit) initialize() {
	s := h.site
	s.mu.Lock()
	s.next++
	id := fmt.Sprintf("S%d", s.next)
	s.knows = append(s.knows, id)
	s.mu.Unlock()
	h.Header().Set("Mcp-Session-Id", id)
	h.result(`{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"site","version":"1"}}`)
}

func (s *site) knowsIt(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.knows, session)
}

func (s *site) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knows = nil
}

func (s *site) becomes(on func(h *hit) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

func (h *hit) result(result string) {
	h.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(h, h.message(result)) // the client may have left
}

// message is the answer to h with a result.
func (h *hit) message(result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, h.ID, result)
}

func (h *hit) reject(status int, body string) {
	if strings.HasPrefix(body, "{") {
		h.Header().Set("Content-Type", "application/json")
	}
	h.WriteHeader(status)
	_, _ = io.WriteString(h, body)
}

// stream begins an event stream.
func (h *hit) stream() {
	h.Header().Set("Content-Type", "text/event-stream")
	h.WriteHeader(http.StatusOK)
	h.flush()
}

// write sends part of a stream.
func (h *hit) write(text string) {
	_, _ = io.WriteString(h, text)
	h.flush()
}

func (h *hit) flush() { _ = http.NewResponseController(h.ResponseWriter).Flush() }

// cut closes the connection in the middle of the response.
func (h *hit) cut() {
	h.flush()
	panic(http.ErrAbortHandler)
}

// String is "method(session)"; a GET that resumes is "GET 7(session)".
func (h *hit) String() string {
	what := h.Method
	if h.Body != "" && h.Method == http.MethodPost {
		what = "reply"
	}
	if id := h.Request.Header.Get("Last-Event-ID"); id != "" {
		what += " " + id
	}
	return fmt.Sprintf("%s(%s)", what, h.Session)
}

func (s *site) hits() []*hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.seen[s.read:]
	s.read = len(s.seen)
	return slices.Clone(now)
}

func (s *site) took() []string {
	var lines []string
	for _, h := range s.hits() {
		lines = append(lines, h.String())
	}
	return lines
}

func (s *site) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.seen {
		if h.Method == method {
			n++
		}
	}
	return n
}

func (s *site) factory() transports.Factory {
	return streamable.Config{URL: "http://site.test/mcp", Client: s.client}.Factory()
}

// browse connects to s and forgets how; the client is closed before the site is.
func browse(t *testing.T, s *site, cfg client.Config) *client.Client {
	t.Helper()
	c := connectTo(t, s.factory(), cfg)
	synctest.Wait()
	s.hits()
	return c
}

// hitOnly is an on that takes messages of one method.
func hitOnly(method string, do func(h *hit)) func(h *hit) bool {
	return func(h *hit) bool {
		if h.Method != method {
			return false
		}
		do(h)
		return true
	}
}

// hitTimes is an on that holds n times.
func hitTimes(n int64, on func(h *hit) bool) func(h *hit) bool {
	var left atomic.Int64
	left.Store(n)
	return func(h *hit) bool { return left.Add(-1) >= 0 && on(h) }
}
