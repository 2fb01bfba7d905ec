// Package transports is the contract between the engine and whatever carries a
// peer's messages. A transport carries one incarnation: Serve runs, emits events
// and returns, and returning is dying. It emits facts and decides nothing;
// policy decides, and the lifecycle in package fsm says what follows.
package transports

import (
	"context"
	"errors"
	"net/http"
)

// Shape says how a transport carries messages, which is all the engine needs to
// know to choose ids, cancellation and defaults.
type Shape uint8

const (
	// Pipe is one ordered channel: ids survive a respawn, cancelling is a
	// notification, the default budget is policy.Contract.
	Pipe Shape = iota
	// Posts is one exchange a message: a re-sent request gets a new id, there
	// are sessions and streams, the default budget is policy.Unlimited.
	Posts
)

// String returns "pipe" or "posts".
func (s Shape) String() string {
	if s == Posts {
		return "posts"
	}
	return "pipe"
}

// Factory builds the transports of one peer, one for each incarnation.
type Factory struct {
	Shape Shape
	Label string           // names the peer in logs and errors; no secrets
	New   func() Transport // called at each spawn, and not before; never returns nil
}

// Op is what an Outbound asks for.
type Op uint8

const (
	OpMessage Op = iota // send Frame
	OpListen            // Posts only: open the standalone GET stream (2025-11-25, Listening for Messages)
	OpResume            // Posts only: continue the stream of Ref by GET with LastID (2025-11-25, Resumability)
)

// Outbound is one message, or on Posts one stream, to send.
type Outbound struct {
	// Ref names this attempt. It is never 0 and never given to another attempt
	// (a Resume repeats the one it resumes, and a Listen or Resume that asks again
	// for a stream that is open and silent takes its place, behind the last event
	// that it brought). Events carry it.
	Ref    uint64
	Op     Op
	LastID string // Last-Event-ID, for OpListen and OpResume
	ID     string // the id's JSON text (7 and "7" differ); "" for a notification or a reply
	Method string // "" for a reply
	Name   string // params.name or params.uri, where the method has one
	// Header is what the protocol layer computed, as plain text: a transport
	// encodes the values of Mcp-Param-* as its wire wants them, and adds
	// Mcp-Method and Mcp-Name itself. MCP-Protocol-Version says the era (from
	// 2026-07-28 on: modern; none: legacy). A Pipe ignores Header.
	Header http.Header
	Frame  []byte // one JSON-RPC message, without a newline; not modified after Send
}

// ErrGone is returned by Send when the message was not taken and nothing of it
// was written, from the moment the transport knows its end.
var ErrGone = errors.New("transports: the incarnation is gone")

// ErrRetired is the cause, or is wrapped by the cause, of a context that ends a
// retired incarnation: its session is gone or replaced, so the peer is told
// nothing about it any more (no DELETE, 2025-11-25, Session Management).
var ErrRetired = errors.New("transports: the incarnation is retired")

// ErrFull is returned by Send when the message was not taken because MaxQueued
// bytes are waiting already.
var ErrFull = errors.New("transports: too much is queued")

// MaxQueued is how many bytes of frames a transport queues before Send returns
// ErrFull. It equals the largest message, so that one such message still fits an
// empty queue (a message is refused only if something is queued already).
const MaxQueued = 64 << 20

// Transport carries one incarnation of a peer and is used once.
type Transport interface {
	// Serve runs the incarnation and returns the cause of its death, or
	// context.Cause(ctx) if it was told to stop. The first event is Ready. emit
	// may be called from several goroutines, holding no lock; the events of one
	// stream stay in order; emit may block until ctx is done. Serve returns
	// after its last emit, with nothing left running.
	Serve(ctx context.Context, emit func(Event)) error
	// Send takes a message over and never blocks: a Pipe queues it in call
	// order, Posts start an exchange. Before Ready a Send may return ErrGone.
	// Any error means that it was not taken; one that is neither ErrGone nor
	// ErrFull, that it can't be sent as it is, ever.
	Send(Outbound) error
	// Cancel ends interest in an attempt; no event for it follows. It reports
	// whether nothing of it was written, and then nothing will be. It must not
	// overtake the Send of the same attempt.
	Cancel(ref uint64) (unsent bool)
}
