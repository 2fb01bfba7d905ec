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
	frame   []byte
	off     int
	state   atomic.Uint32
	queued  *atomic.Int64 // counts what no connection has taken yet
	settled atomic.Bool
}

const (
	whole   = iota // nothing was read
	begun          // something was
	claimed        // nothing was, and nothing will be
)

func newBody(frame []byte, queued *atomic.Int64) *body {
	queued.Add(int64(len(frame)))
	return &body{frame: frame, queued: queued}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(whole, begun) && b.state.Load() == claimed {
		return 0, io.ErrClosedPipe
	}
	n := copy(p, b.frame[b.off:])
	b.off += n
	if b.off == len(b.frame) {
		b.settle()
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.settle()
	return nil
}

func (b *body) settle() {
	if !b.settled.Swap(true) {
		b.queued.Add(-int64(len(b.frame)))
	}
}

// claim reports whether nothing of the frame was read; then nothing will be.
func (b *body) claim() bool {
	return b.state.CompareAndSwap(whole, claimed) || b.state.Load() == claimed
}
