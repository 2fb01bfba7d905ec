package drill

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const headerSession = "Mcp-Session-Id" // 2025-11-25, basic/transports, Session Management

// wire is where a client's requests leave it: it sees the sessions that the server
// issues, and can send in the client's name.
type wire struct {
	base *http.Transport

	mu       sync.Mutex
	n        int
	issued   []string      // sessions, in their order
	refusals []string      // the sessions of POSTs that were refused
	last     *http.Request // that carried a session, without its body
}

func newWire() *wire {
	base := http.DefaultTransport.(*http.Transport).Clone()
	return &wire{base: base}
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	carried := r.Header.Get(headerSession)
	kept := &http.Request{URL: r.URL, Header: r.Header.Clone()}
	resp, err := w.base.RoundTrip(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if carried != "" {
		w.last = kept
	}
	if err != nil || r.Method != http.MethodPost {
		return resp, err
	}
	// A session is issued in the answer to initialize, which carries none itself.
	if id := resp.Header.Get(headerSession); id != "" && carried == "" && resp.StatusCode/100 == 2 {
		w.issued = append(w.issued, id)
	}
	if carried != "" && resp.StatusCode/100 == 4 {
		w.refusals = append(w.refusals, carried)
	}
	return resp, nil
}

// deleteSession deletes the session that the client used last, with the headers of
// the client's own requests, and returns the HTTP status.
func (w *wire) deleteSession(ctx context.Context) (int, error) {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last == nil {
		return 0, fmt.Errorf("no request carried the session")
	}
	r := (&http.Request{Method: http.MethodDelete, URL: last.URL, Header: last.Header.Clone()}).WithContext(ctx)
	r.Header.Del("Content-Type")
	r.Header.Del("Accept")
	resp, err := w.base.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, deleteBody))
	return resp.StatusCode, err
}

// deleteBody is how much of the answer to a DELETE is read, for the connection's
// sake; nobody looks at it.
const deleteBody = 1 << 16

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// session is the newest one, or "".
func (w *wire) session() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.issued) == 0 {
		return ""
	}
	return w.issued[len(w.issued)-1]
}

func (w *wire) sessions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.issued)
}

// refused counts the refusals of what carried a session.
func (w *wire) refused(session string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.refusals {
		if id == session {
			n++
		}
	}
	return n
}
