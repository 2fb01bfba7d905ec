package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Outcome says what may have become of a request.
type Outcome uint8

const (
	OutcomeUnknown Outcome = iota // it may have run
	NotExecuted                   // it provably never ran
	Answered                      // a result or a peer's error arrived
)

// Kind says why a request ended without an answer.
type Kind uint8

const (
	KindDied        Kind = iota // the incarnation ended
	KindNotServing              // nobody serves, or too much waits already
	KindExhausted               // no incarnation will follow
	KindClosed                  // the owner closed
	KindTimeout                 // idle or ceiling
	KindCaller                  // the caller's context ended
	KindFull                    // the transport's queue is full
	KindSession                 // its session is gone and no other could be had
	KindRejected                // the peer refused its exchange
	KindBroken                  // its response ended without an answer
	KindUnreachable             // no connection could be made
	KindTooLarge                // its answer is over the size limit
	KindUnreadable              // its answer is no JSON, or nests too deeply
	KindPinned                  // it belongs to an incarnation that ended
	KindDuplicate               // its id is another's that is not over
	KindInvalid                 // the request can't be sent as it is
)

var kindNames = [...]string{
	"the server went away", "no server is serving", "no server will follow",
	"closed", "timed out", "the caller gave up", "too much is queued", "the session is gone", "rejected", "the response ended without an answer", "no connection", "the answer is too large", "the answer can't be read", "its incarnation ended", "its id is in use", "invalid request",
}

// Failure is how a request, or the engine itself, ends without an answer.
type Failure struct {
	Kind     Kind
	Method   string
	Outcome  Outcome
	Gen      uint64    // of the incarnation it was given to; 0: none
	Attempts int       // how often it was given to an incarnation
	Restarts int       // KindExhausted: respawns promised before
	RetryAt  time.Time // KindNotServing: the earliest use that may help; zero: unknown
	Idle     bool      // KindTimeout: no progress, rather than the ceiling
	After    time.Duration
	NotRun   bool // it provably never ran, though the peer had it
	Cause    error
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return "engine: " + kindNames[f.Kind]
	}
	return fmt.Sprintf("engine: %s: %v", kindNames[f.Kind], f.Cause)
}

func (f *Failure) Unwrap() error { return f.Cause }

// SizeError says how large an answer was that was dropped for it.
type SizeError struct{ Bytes int }

func (e *SizeError) Error() string { return fmt.Sprintf("an answer of %d bytes", e.Bytes) }

// RPCError is a JSON-RPC error object that the peer sent.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// VersionError says that the two sides have no protocol version in common. It is
// permanent: the same server will say the same again.
type VersionError struct{ Ours, Theirs []string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("no common protocol version: this side speaks %v, the server %v", e.Ours, e.Theirs)
}

// Permanent tells policy not to try again.
func (e *VersionError) Permanent() bool { return true }

// OpeningError says which exchange of an opening failed.
type OpeningError struct {
	Method string
	Status int         // of an HTTP answer that was not 2xx; 0 otherwise
	Header http.Header // of the same
	Err    error
}

func (e *OpeningError) Error() string { return "opening exchange: " + e.Method + ": " + e.Err.Error() }
func (e *OpeningError) Unwrap() error { return e.Err }

// StateError says that a replacement does not know what its predecessor was told.
type StateError struct {
	Method string
	Params json.RawMessage
	Err    error
}

func (e *StateError) Error() string { return fmt.Sprintf("%s %s: %v", e.Method, e.Params, e.Err) }
func (e *StateError) Unwrap() error { return e.Err }

// errNotLegacy is why a modern peer does not: it has no such request.
var errNotLegacy = errors.New("the server is modern and knows no such request")

// NoSessionError says why there is no session in the place of one that is gone.
type NoSessionError struct{ Refusal, Err error }

func (e *NoSessionError) Error() string { return fmt.Sprintf("%v; no new one: %v", e.Refusal, e.Err) }

// Unwrap finds what was in the way of a new session before what ended the old one.
func (e *NoSessionError) Unwrap() []error { return []error{e.Err, e.Refusal} }

// StartTimeoutError says that an incarnation did not serve in time.
type StartTimeoutError struct{ After time.Duration }

func (e *StartTimeoutError) Error() string {
	return fmt.Sprintf("start-up: the server did not serve within %s", e.After)
}

var (
	ErrClosed   = errors.New("closed by its owner") // the cause of what ends by Close
	errSilent   = errors.New("the server ended without saying why")
	errFactory  = errors.New("the factory returned no transport")
	errHeldLong = errors.New("nobody served for too long")
	errHeldFull = errors.New("too many requests wait already")
)
