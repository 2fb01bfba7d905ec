package streamable

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrServed is returned by a second Serve of one transport.
	ErrServed = errors.New("streamable: a transport is used once")
	// ErrEnded is the cause of a Broken whose response ended, as responses do,
	// but without the answer.
	ErrEnded = errors.New("streamable: the response ended without its answer")
	// ErrNoStream is returned by Send for a standalone or resumed stream of the
	// modern era, which has neither (2026-07-28, Earlier Streamable HTTP Revisions).
	ErrNoStream = errors.New("streamable: the modern era has no GET streams")
)

// ConfigError says which field of a [Config] has no meaning.
type ConfigError struct{ Field, Value, Why string }

func (e *ConfigError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("streamable: Config.%s %s", e.Field, e.Why)
	}
	return fmt.Sprintf("streamable: Config.%s %s %s", e.Field, e.Value, e.Why)
}

// Permanent is true: trying again changes nothing.
func (e *ConfigError) Permanent() bool { return true }

// HeaderError is returned by Send for a message that would need a header that
// can't be sent, such as one with a line break. Its value is not shown.
type HeaderError struct{ Name, Why string }

func (e *HeaderError) Error() string {
	return fmt.Sprintf("streamable: header %q %s", e.Name, e.Why)
}

// ConnectError is the cause of an Unsent: no connection to the server could be
// made, so that nothing of the request reached it.
type ConnectError struct {
	Host string
	Err  error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("streamable: no connection to %s: %v", e.Host, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// UnsentError is the cause of an Unsent: there was a connection, and nothing of the
// message went out on it.
type UnsentError struct {
	Host string
	Err  error
}

func (e *UnsentError) Error() string {
	return fmt.Sprintf("streamable: nothing was sent to %s: %v", e.Host, e.Err)
}

func (e *UnsentError) Unwrap() error { return e.Err }

// Permanent reports whether the same message would meet it again: its headers are
// larger than the server takes by HTTP/2. net/http has no other name for that.
func (e *UnsentError) Permanent() bool {
	return strings.Contains(e.Err.Error(), "request header list larger than peer's advertised limit")
}

// AuthError says that the [Authorizer] failed. It is the cause of an Unsent, or
// of the Rejected of a 401.
type AuthError struct{ Err error }

func (e *AuthError) Error() string { return fmt.Sprintf("streamable: no credentials: %v", e.Err) }

func (e *AuthError) Unwrap() error { return e.Err }

// AnswerError says why a response of a success status can't be the answer.
type AnswerError struct {
	Status      int
	ContentType string
	Why         string
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("streamable: HTTP %d with content type %q can't be an answer: %s", e.Status, e.ContentType, e.Why)
}

// TooLargeError says that a message was longer than Config.MaxMessage.
type TooLargeError struct{ Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("streamable: a message is longer than %d bytes", e.Limit)
}
