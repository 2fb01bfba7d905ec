package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type httpOptions struct{ stateless, resumable bool }

// serveHTTP serves until it fails, and says when it listens. Beside the endpoint
// it has two for whoever measures: /count tells what it has counted, and
// /forget?requests=N makes it forget its sessions.
func serveHTTP(addr string, server *mcp.Server, opts httpOptions) error {
	f := &front{newHandler: func() http.Handler {
		conf := &mcp.StreamableHTTPOptions{Stateless: opts.stateless}
		if opts.resumable {
			conf.EventStore = mcp.NewMemoryEventStore(nil)
		}
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, conf)
	}}
	f.handler = f.newHandler()
	mux := http.NewServeMux()
	mux.Handle("/mcp", f)
	mux.HandleFunc("/count", f.tell)
	mux.HandleFunc("/forget", f.forget)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "sdkserver: listening on", ln.Addr())
	return http.Serve(&counted{ln, f}, mux)
}

// front stands before the SDK's handler, and counts.
type front struct {
	newHandler                     func() http.Handler
	accepted, initializes, refused atomic.Int64

	mu      sync.Mutex
	handler http.Handler
	waiting int           // requests that are still to come before they are refused together
	all     chan struct{} // closed when they have
}

// counted counts what it accepts.
type counted struct {
	net.Listener
	f *front
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.f.accepted.Add(1)
	}
	return c, err
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		f.current().ServeHTTP(w, r)
		return
	}
	if r.Header.Get("Mcp-Session-Id") == "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		if bytes.Contains(body, []byte(`"method":"initialize"`)) {
			f.initializes.Add(1)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	} else {
		f.wait()
	}
	f.current().ServeHTTP(&watched{w, f}, r)
}

func (f *front) current() http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handler
}

// wait holds a request until all have come that are to be refused together.
func (f *front) wait() {
	f.mu.Lock()
	all := f.all
	if f.waiting > 0 {
		if f.waiting--; f.waiting == 0 {
			close(all)
		}
		f.mu.Unlock()
		<-all
		return
	}
	f.mu.Unlock()
}

// watched counts refusals.
type watched struct {
	http.ResponseWriter
	f *front
}

func (w *watched) WriteHeader(status int) {
	if status == http.StatusNotFound {
		w.f.refused.Add(1)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find what the writer can do.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher for whoever asks for it by name.
func (w *watched) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (f *front) tell(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int64{
		"accepted": f.accepted.Load(), "initializes": f.initializes.Load(), "refused": f.refused.Load(),
	})
}

func (f *front) forget(_ http.ResponseWriter, r *http.Request) {
	requests, _ := strconv.Atoi(r.FormValue("requests"))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler, f.waiting, f.all = f.newHandler(), requests, make(chan struct{})
}
