package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// Outcome says what became of a request.
type Outcome uint8

const (
	// OutcomeUnknown: the request may have run. Check before making it again.
	OutcomeUnknown Outcome = iota
	// NotExecuted: the request provably never ran. Making it again is safe.
	NotExecuted
	// Answered: the server answered, with a result or with an error of its own.
	Answered
)

// String returns the outcome in words.
func (o Outcome) String() string {
	return [...]string{"outcome unknown", "not executed", "answered"}[o]
}

// OutcomeOf says what became of the request whose call returned err: Answered for
// nil, for a [*PeerError], an [*InputError] and a [*DecodeError]; what a
// [*LostError] says; NotExecuted for an error that this package returns before it
// sends anything; OutcomeUnknown for every other error.
func OutcomeOf(err error) Outcome {
	lost, invalid, peer, decode, input := new(LostError), new(InvalidRequestError), new(PeerError), new(DecodeError), new(InputError)
	switch {
	case err == nil, errors.As(err, &decode), errors.As(err, &input):
		return Answered
	case errors.As(err, &lost):
		return lost.Outcome
	case errors.As(err, &invalid):
		return NotExecuted
	case errors.As(err, &peer):
		return Answered
	}
	return OutcomeUnknown
}

// ErrClosed is the cause of whatever ends because of [Client.Close].
var ErrClosed = errors.New("client: closed")

// ErrCursorLost is the cause when a page of a listing can't be had because the
// incarnation that gave its cursor has ended. List again from the start.
var ErrCursorLost = errors.New("client: the cursor belongs to a server that ended")

// ErrUnresponsive is the cause of death of a server that failed Config.Liveness.
var ErrUnresponsive = errors.New("client: the server did not answer any liveness probe")

// ErrShed ends a subscription whose callback is too slow: 1,024 notifications wait.
var ErrShed = errors.New("client: the subscription's callback is too slow")

// ErrNotAcknowledged says that a subscription was ended, by its owner or gracefully
// by the server, before any server had agreed to it.
var ErrNotAcknowledged = errors.New("client: the subscription ended before a server agreed to it")

// LostError is how every request ends that gets no answer. Cause is why: an
// [*ExhaustedError], [ErrClosed], [*NotServingError], [*TimeoutError],
// [ErrCursorLost], an error of the caller's context, or the cause of the server's
// death.
type LostError struct {
	Method  string
	Outcome Outcome // OutcomeUnknown or NotExecuted
	Cause   error   // never nil
}

func (e *LostError) Error() string {
	return fmt.Sprintf("client: %s got no answer (%s): %v", e.Method, e.Outcome, e.Cause)
}

func (e *LostError) Unwrap() error { return e.Cause }

// ExhaustedError says that the budget is spent: no server will follow.
type ExhaustedError struct {
	Restarts int   // restarts that were granted before
	Last     error // the cause of the last ending
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("client: the server ended and is not started again after %d restarts: %v", e.Restarts, e.Last)
}

func (e *ExhaustedError) Unwrap() error { return e.Last }

// NotServingError says that nobody serves at the moment, and that the call may not
// wait: Config.WaitForReady is off, or too much waits already.
type NotServingError struct {
	RetryAt time.Time // when a call may find a server again; zero: not known
	Cause   error     // nil, or what else was in the way
}

func (e *NotServingError) Error() string {
	if e.Cause != nil {
		return "client: no server is serving: " + e.Cause.Error()
	}
	return "client: no server is serving"
}

func (e *NotServingError) Unwrap() error { return e.Cause }

// TimeoutError says that a bound of this client ended a wait.
type TimeoutError struct {
	What  string // "request", or "start-up"
	After time.Duration
	Idle  bool // no progress for so long, rather than no answer
	// Unserved says that the request was given to no server: it waited for one.
	Unserved bool
}

func (e *TimeoutError) Error() string {
	if e.Unserved {
		return fmt.Sprintf("client: %s: no server was ready for it within %s", e.What, e.After)
	}
	if e.Idle {
		return fmt.Sprintf("client: %s: nothing heard for %s", e.What, e.After)
	}
	return fmt.Sprintf("client: %s: not over after %s", e.What, e.After)
}

// Timeout tells package net's convention that this is a timeout.
func (e *TimeoutError) Timeout() bool { return true }

// TooLargeError says that an answer came and was dropped, because it is larger than
// the transport's limit. Asking again brings the same.
type TooLargeError struct{ Bytes int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("client: an answer of %d bytes is over the size limit", e.Bytes)
}

// SessionError says that the server forgot the session and that the request could
// not be sent on a new one.
type SessionError struct {
	Refusal error // the answer that said so, an [*HTTPError]
	Err     error // why there is no new session; nil: there was one, and it was gone as well
}

func (e *SessionError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("client: the session is gone, and the one that followed too: %v", e.Refusal)
	}
	return fmt.Sprintf("client: the session is gone: %v; no new one: %v", e.Refusal, e.Err)
}

// Unwrap finds what was in the way of a new session before what ended the old one.
func (e *SessionError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Refusal}
	}
	return []error{e.Err, e.Refusal}
}

// HTTPError is an HTTP answer that is no answer to the request.
type HTTPError struct {
	Status int
	Header http.Header
	Body   []byte // the first 256 bytes
	Err    error  // what was wrong with a 2xx, or why there were no credentials for a 401; nil otherwise
}

func (e *HTTPError) Error() string {
	return "client: " + (&engine.RejectedError{Status: e.Status, Body: e.Body, Cause: e.Err}).Error()
}
func (e *HTTPError) Unwrap() error { return e.Err }

// StreamError says that the response to a request ended before its answer came.
type StreamError struct{ Err error } // nil: it ended as if it were complete

func (e *StreamError) Error() string {
	if e.Err == nil {
		return "client: the response ended without an answer"
	}
	return "client: the response ended without an answer: " + e.Err.Error()
}
func (e *StreamError) Unwrap() error { return e.Err }

// PeerError is a JSON-RPC error that the server sent. No error of this package's
// own is ever one, and the server can't forge any other.
type PeerError struct {
	Code    int64
	Message string
	Data    json.RawMessage // nil if there was none
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("client: the server answered with an error: %s (code %d)", e.Message, e.Code)
}

// VersionError says that the two sides have no protocol version in common. A
// server is not started again for it: it would say the same.
type VersionError struct{ Ours, Theirs []string } // each side's, preferred first

func (e *VersionError) Error() string {
	return fmt.Sprintf("client: no common protocol version: this client speaks %v, the server %v", e.Ours, e.Theirs)
}

// OpeningError says which exchange of an opening failed. Where the server refused
// it, Err is its [*PeerError]; errors.As does not find that one, because an error
// that is found to be the peer's means that a request was answered.
type OpeningError struct {
	Method string
	Err    error
}

func (e *OpeningError) Error() string {
	return fmt.Sprintf("client: opening exchange: %s: %v", e.Method, e.Err)
}

// Unwrap returns Err unless it is a [*PeerError].
func (e *OpeningError) Unwrap() error {
	if _, answered := e.Err.(*PeerError); answered {
		return nil
	}
	return e.Err
}

// StateError says that a replacement does not know what its predecessor was told:
// a log level, or a resource subscription made by resources/subscribe. Err is a
// [*PeerError], a [*TimeoutError], or says that a modern server has no such request.
type StateError struct {
	Method string          // logging/setLevel or resources/subscribe
	Params json.RawMessage // of the request that was accepted before
	Err    error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("client: not restored: %s %s: %v", e.Method, e.Params, e.Err)
}
func (e *StateError) Unwrap() error { return e.Err }

// InvalidRequestError says that a request can't be sent as it is.
type InvalidRequestError struct {
	Method string
	Err    error
}

func (e *InvalidRequestError) Error() string { return fmt.Sprintf("client: %s: %v", e.Method, e.Err) }
func (e *InvalidRequestError) Unwrap() error { return e.Err }

// ConfigError says that a Config makes no sense. [Connect] returns it, and nothing
// was started.
type ConfigError struct {
	Field string // of Config
	Why   string
}

func (e *ConfigError) Error() string { return fmt.Sprintf("client: Config.%s %s", e.Field, e.Why) }

// DecodeError says that an answer came and is not what its method promises.
type DecodeError struct {
	Method string
	Err    error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("client: the answer to %s can't be decoded: %v", e.Method, e.Err)
}
func (e *DecodeError) Unwrap() error { return e.Err }

// InputError says that the server answered with a request for input which could
// not be given. Nothing is in flight; the server may ask again.
type InputError struct {
	Method string
	Err    error // of the handler
}

func (e *InputError) Error() string {
	return fmt.Sprintf("client: %s needs input: %v", e.Method, e.Err)
}
func (e *InputError) Unwrap() error { return e.Err }

// lost turns the engine's failure of a request into the documented error.
func lost(f *engine.Failure) error {
	if f.Kind == engine.KindInvalid {
		return &InvalidRequestError{Method: f.Method, Err: f.Cause}
	}
	if f.Kind == engine.KindUnreadable {
		return &DecodeError{Method: f.Method, Err: f.Cause}
	}
	return &LostError{Method: f.Method, Outcome: Outcome(f.Outcome), Cause: public(f)}
}

// public turns an error of the engine, and what it wraps, into documented ones.
func public(err error) error {
	switch e := err.(type) {
	case *engine.Failure:
		switch e.Kind {
		case engine.KindExhausted:
			return &ExhaustedError{Restarts: e.Restarts, Last: public(e.Cause)}
		case engine.KindClosed:
			return ErrClosed
		case engine.KindNotServing:
			return &NotServingError{RetryAt: e.RetryAt, Cause: public(e.Cause)}
		case engine.KindSession:
			if none := new(engine.NoSessionError); errors.As(e.Cause, &none) {
				return &SessionError{Refusal: public(none.Refusal), Err: public(none.Err)}
			}
			return &SessionError{Refusal: public(e.Cause)}
		case engine.KindBroken:
			return &StreamError{Err: public(e.Cause)}
		case engine.KindPinned:
			return ErrCursorLost
		case engine.KindTimeout:
			return &TimeoutError{What: "request", After: e.After, Idle: e.Idle, Unserved: e.Attempts == 0}
		}
		return public(e.Cause)
	case *engine.SizeError:
		return &TooLargeError{Bytes: e.Bytes}
	case *engine.RejectedError:
		return &HTTPError{Status: e.Status, Header: e.Header, Body: e.Body, Err: e.Cause}
	case *engine.OpeningError:
		return &OpeningError{Method: e.Method, Err: public(e.Err)}
	case *engine.StateError:
		return &StateError{Method: e.Method, Params: e.Params, Err: public(e.Err)}
	case *engine.StartTimeoutError:
		return &TimeoutError{What: "start-up", After: e.After}
	case *engine.VersionError:
		return &VersionError{Ours: e.Ours, Theirs: e.Theirs}
	case *engine.RPCError:
		return &PeerError{Code: e.Code, Message: e.Message, Data: e.Data}
	}
	for _, known := range []struct{ engine, public error }{
		{engine.ErrClosed, ErrClosed},
		{engine.ErrUnresponsive, ErrUnresponsive},
		{engine.ErrShed, ErrShed},
	} {
		if err == known.engine {
			return known.public
		}
	}
	return err
}

func publicAll(errs []error) []error {
	var out []error
	for _, err := range errs {
		out = append(out, public(err))
	}
	return out
}
