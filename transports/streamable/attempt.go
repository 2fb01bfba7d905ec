package streamable

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// attempt is one try of a request, and the proof whether the server can have any
// of its message. net/http never sends a frame again by itself, whatever headers
// the request has: it is not told how to read the body twice.
//
// The proof needs a body that knows when it is read, and net/http sends the
// headers of such a body alone first. On the connections that the factory makes
// for plain HTTP, and which carry HTTP/1.1 one request at a time, the bytes
// written are proof too: there the body is one that goes out with its headers.
type attempt struct {
	frame []byte // nil: a request without a body
	plain bool
	taken func() // called when the connection has all of it, or wants no more
	state atomic.Uint32
	off   int
	hooks httptrace.ClientTrace

	// Set when a connection was found, before anything is written.
	conn   net.Conn
	reused bool
	before int64 // what was written to it, if it is a *conn
}

const (
	whole   = iota // nothing of the frame was handed over
	begun          // something was, or may have been
	claimed        // nothing was, and nothing will be
)

func (a *attempt) trace() *httptrace.ClientTrace {
	a.hooks.GotConn = a.gotConn
	if a.plain {
		a.hooks.WroteHeaders = a.wroteHeaders
		a.hooks.WroteRequest = func(httptrace.WroteRequestInfo) { a.taken() }
	}
	return &a.hooks
}

func (a *attempt) body() io.ReadCloser {
	switch {
	case a.frame == nil:
		return http.NoBody
	case a.plain:
		return io.NopCloser(bytes.NewReader(a.frame))
	}
	return a
}

func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.conn, a.reused = info.Conn, info.Reused
	if c, ok := a.conn.(*conn); ok {
		a.before = c.written.Load()
	}
}

// wroteHeaders is called when the headers are in the connection's buffer, before
// the body follows. A frame that was claimed meanwhile must not: its request is
// cancelled, and its connection with it.
func (a *attempt) wroteHeaders() {
	if !a.begin() {
		a.conn.Close()
	}
}

// Read implements io.Reader.
func (a *attempt) Read(p []byte) (int, error) {
	if !a.begin() {
		return 0, io.ErrClosedPipe
	}
	n := copy(p, a.frame[a.off:])
	a.off += n
	if a.off == len(a.frame) {
		a.taken()
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (a *attempt) Close() error {
	a.taken()
	return nil
}

func (a *attempt) begin() bool {
	return a.state.CompareAndSwap(whole, begun) || a.state.Load() == begun
}

// claim reports whether nothing of the frame was handed over; then nothing will be.
func (a *attempt) claim() bool {
	return a.state.CompareAndSwap(whole, claimed) || a.state.Load() == claimed
}

// unsent reports, after an error, whether provably nothing reached the server.
// net/http has stopped writing to a connection of HTTP/1.1 by then.
func (a *attempt) unsent() bool {
	if a.frame == nil {
		return a.conn == nil
	}
	c, counted := a.conn.(*conn)
	return a.claim() || a.plain && counted && c.written.Load() == a.before
}
