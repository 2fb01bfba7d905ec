// Package memory is the reference transport: a peer that is a function in the
// same process. It keeps the contract of package transports in both shapes, uses
// nothing but channels and a mutex, and so runs inside testing/synctest bubbles.
package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/respawn-mcp/respawn/transports"
)

// Peer is one incarnation of a peer. It reads what was sent to it and emits what
// it has to say; returning is dying, with the error as the cause of death. It
// must return when ctx is done.
type Peer func(ctx context.Context, c *Conn) error

// Factory returns a factory whose incarnations run peer.
func Factory(shape transports.Shape, label string, peer Peer) transports.Factory {
	return transports.Factory{
		Shape: shape,
		Label: label,
		New:   func() transports.Transport { return New(shape, peer) },
	}
}

// New returns the transport of one incarnation.
func New(shape transports.Shape, peer Peer) transports.Transport {
	return &transport{shape: shape, peer: peer, wake: make(chan struct{}, 1), cancelled: map[uint64]bool{}}
}

type transport struct {
	shape transports.Shape
	peer  Peer
	wake  chan struct{} // holds a token while queue may be non-empty

	mu        sync.Mutex
	open      bool // between Ready and the end
	queue     []transports.Outbound
	bytes     int
	cancelled map[uint64]bool // attempts that nobody waits for; no event follows
}

// Serve implements [transports.Transport].
func (t *transport) Serve(ctx context.Context, emit func(transports.Event)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.mu.Lock()
	t.open = true
	t.mu.Unlock()
	emit(transports.Ready{})
	err := t.peer(ctx, &Conn{t: t, emit: emit})
	t.mu.Lock()
	t.open = false
	left := t.queue
	t.queue = nil
	t.mu.Unlock()
	for _, out := range left {
		emit(transports.Unsent{Ref: out.Ref, Cause: transports.ErrGone})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Send implements [transports.Transport].
func (t *transport) Send(out transports.Outbound) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.open:
		return transports.ErrGone
	case len(t.queue) > 0 && t.bytes+len(out.Frame) > transports.MaxQueued:
		return transports.ErrFull
	}
	t.queue = append(t.queue, out)
	t.bytes += len(out.Frame)
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return nil
}

// Cancel implements [transports.Transport].
func (t *transport) Cancel(ref uint64) (unsent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.queue, func(out transports.Outbound) bool { return out.Ref == ref })
	if i < 0 {
		if t.open && t.shape == transports.Posts {
			t.cancelled[ref] = true
		}
		return false
	}
	t.bytes -= len(t.queue[i].Frame)
	t.queue = slices.Delete(t.queue, i, i+1)
	return true
}

// Conn is a peer's end.
type Conn struct {
	t    *transport
	emit func(transports.Event)
}

// Read takes the next message; from then on it counts as written. It returns the
// cause of ctx when that is done.
func (c *Conn) Read(ctx context.Context) (transports.Outbound, error) {
	for {
		if ctx.Err() != nil { // first, or busy senders would keep a peer from leaving
			return transports.Outbound{}, context.Cause(ctx)
		}
		if out, ok := c.next(); ok {
			if out.ID == "" && out.Op == transports.OpMessage {
				c.Emit(transports.Sent{Ref: out.Ref})
			}
			return out, nil
		}
		select {
		case <-c.t.wake:
		case <-ctx.Done():
			return transports.Outbound{}, context.Cause(ctx)
		}
	}
}

func (c *Conn) next() (transports.Outbound, bool) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if len(c.t.queue) == 0 {
		return transports.Outbound{}, false
	}
	out := c.t.queue[0]
	c.t.queue = c.t.queue[1:]
	c.t.bytes -= len(out.Frame)
	if len(c.t.queue) > 0 { // for another reader: one token stands for many
		select {
		case c.t.wake <- struct{}{}:
		default:
		}
	}
	return out, true
}

// Emit emits an event, unless it concerns an attempt that was cancelled.
func (c *Conn) Emit(ev transports.Event) {
	c.t.mu.Lock()
	gone := c.t.cancelled[refOf(ev)]
	c.t.mu.Unlock()
	if !gone {
		c.emit(ev)
	}
}

// Write emits one message: as the answer to an attempt on Posts, or with ref 0,
// and always on a Pipe, as a message of no particular one.
func (c *Conn) Write(ref uint64, frame string) {
	if c.t.shape == transports.Pipe {
		ref = 0
	}
	c.Emit(transports.Message{Ref: ref, Frame: []byte(frame)})
}

// refOf is the attempt that an event concerns, or 0.
func refOf(ev transports.Event) uint64 {
	switch ev := ev.(type) {
	case transports.Message:
		return ev.Ref
	case transports.Sent:
		return ev.Ref
	case transports.Unsent:
		return ev.Ref
	case transports.Rejected:
		return ev.Ref
	case transports.Opened:
		return ev.Ref
	case transports.Broken:
		return ev.Ref
	case transports.Alive:
		return ev.Ref
	}
	return 0
}
