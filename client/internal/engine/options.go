// Package engine drives one peer through the lifecycle of package fsm. Its loop
// owns the machine: everything that happens becomes one event, policy says what
// an ending means, the table says what follows, and perform does it. Nothing
// else changes a state and nothing else restarts anything.
package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// Options is what a face tells the engine. Unlike the public configuration it
// has no defaults: a duration of 0 means none.
type Options struct {
	Factory transports.Factory
	Hello   Hello
	Face    Face

	Budget       policy.Budget
	Rules        policy.Rules
	RetryLost    bool
	MaxDeaths    int // deaths that a retried request may survive; 0: no bound
	WaitForReady bool
	Distrust     bool // annotations count for nothing

	StartTimeout      time.Duration  // spawn to up
	ProbeTimeout      time.Duration  // era probe to the initialize that follows its silence
	DrainTimeout      time.Duration  // close to the end of calls in flight
	RequestTimeout    time.Duration  // without progress
	MaxRequestTimeout time.Duration  // whatever the progress
	StreamBackoff     policy.Backoff // zero: streamBackoff
	Liveness          Liveness

	// Open runs the opening exchange of an incarnation. Default: the engine's own,
	// from Hello.
	Open func(context.Context, *Opening) (*Session, error)
	// FreeStart forgives the first death before anything has served.
	FreeStart bool
	// FirstID is where the engine's own ids begin. With it, ids are the peer's and
	// the owner's alone: an answer must name its id as it was sent.
	FirstID uint64

	MaxHeld      int
	MaxHeldBytes int64

	Clock  clock.Clock
	Logger *slog.Logger
	Rand   func() float64

	OnTransition func(fsm.Transition)
	OnEnd        func(Ended)
	OnReconnect  func(Reconnect)
}

// Hello is what the engine says of its owner in an opening exchange.
type Hello struct {
	Info         json.RawMessage // an Implementation
	Capabilities json.RawMessage // ClientCapabilities of a modern request
	Handshake    json.RawMessage // ClientCapabilities of an initialize
	Modern       []string        // versions without a handshake, preferred first
	Legacy       []string        // versions with one, preferred first
}

// Face is who sits on the engine. Its methods are called without locks.
type Face interface {
	// Take hands over a message that is no answer: a notification, or a request
	// of a legacy peer. It is called on the transport's goroutine and must not
	// block. ctx ends with the incarnation. reply sends the answer of a request to the incarnation that asked,
	// and drops it if that one is gone.
	Take(ctx context.Context, gen uint64, m Incoming, reply func(Answer))
	// Serves says that an incarnation serves, the first one or a replacement. It is called on the loop, before
	// the gate opens for new calls, and must not block.
	Serves(gen uint64, first bool)
	// Changed says that the peer announced a change: a list_changed, or the update
	// of a resource. It is called on the transport's goroutine.
	Changed(method, uri string)
}

// Incoming is a message of the peer that is no answer. Its bytes are not shared.
type Incoming struct {
	ID     json.RawMessage // nil for a notification
	Method string
	Params json.RawMessage
	Frame  []byte // the whole message
}

// Answer is a reply to a request of the peer: Err, or else Result.
type Answer struct {
	Result json.RawMessage
	Err    *RPCError
	Frame  []byte // sent as it is, instead of one composed of the above
}

// Ended reports one close of an incarnation, or of a promise to replace it.
type Ended struct {
	Gen       uint64
	Cause     error
	Uptime    time.Duration
	Verdict   policy.Verdict
	Restarts  int  // respawns promised so far
	Withdrawn bool // the close of a promise, not of an incarnation
}

// Reconnect reports that a replacement serves.
type Reconnect struct {
	Generation uint64
	Cause      error         // of the ending that it follows
	Downtime   time.Duration // from that ending to serving
	Retried    int           // requests sent again
	Reopened   int           // streams opened again
	Changed    []string      // what the replacement says differently
	Lost       []error       // state that the replacement did not take back
}
