package streamable

import (
	"io"
	"sync/atomic"
)

// body is the frame of one try of a POST. It is no type that net/http knows how
// to read twice, so net/http never sends it again by itself, whatever headers
// the request has; and it knows whether any byte of it was asked for, which is
// the proof that the server can't have the message.
type body struct {
	frame []byte
	off   int
	state atomic.Uint32
	taken func() // called when the connection has all of it, or wants no more
}

const (
	whole   = iota // nothing was read
	begun          // something was
	claimed        // nothing was, and nothing will be
)

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(whole, begun) && b.state.Load() == claimed {
		return 0, io.ErrClosedPipe
	}
	n := copy(p, b.frame[b.off:])
	b.off += n
	if b.off == len(b.frame) {
		b.taken()
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.taken()
	return nil
}

// claim reports whether nothing of the frame was read; then nothing will be.
func (b *body) claim() bool {
	return b.state.CompareAndSwap(whole, claimed) || b.state.Load() == claimed
}
