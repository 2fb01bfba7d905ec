package transports

import (
	"net/http"
	"time"
)

// Event is one fact that a transport emits. The set is closed.
type Event interface{ event() }

type (
	// Ready says that the transport takes messages. It comes first.
	Ready struct{}

	// Message is one JSON-RPC message of the peer. Ref is the attempt whose
	// exchange carried it, 0 for a Pipe and for the standalone GET. The frame is
	// the receiver's to keep. It is not validated.
	Message struct {
		Ref   uint64
		Frame []byte
	}

	// Sent says that a notification or a reply was written, or answered 2xx.
	Sent struct{ Ref uint64 }

	// Unsent says that provably nothing of an attempt reached the peer.
	Unsent struct {
		Ref   uint64
		Cause error
	}

	// Rejected is any answer that is not 2xx, and a 2xx that can't be an answer.
	// Body is bounded; Session is the session id that the request carried.
	Rejected struct {
		Ref     uint64
		Status  int
		Header  http.Header
		Body    []byte
		Session string
		Cause   error // what was wrong with a 2xx, or why there were no credentials for a 401; nil otherwise
	}

	// Opened says that a GET was answered 200 with an event stream.
	Opened struct{ Ref uint64 }

	// Broken says that an attempt's response ended without its answer. LastID is
	// the last event id seen, Retry the server's wish for the delay (0: none).
	Broken struct {
		Ref    uint64
		LastID string
		Retry  time.Duration
		Cause  error
	}

	// Alive says that bytes came on an attempt's stream that are no message. It
	// is emitted at most once a second a stream.
	Alive struct{ Ref uint64 }

	// Diagnostic is one line of the peer's stderr, sanitised and bounded.
	Diagnostic struct{ Line string }

	// Noise counts bytes where a message belonged that are none, with a short
	// sanitised sample. ID is set if they were the answer to a request, too long
	// to be taken, and its id could be told: that answer will not come.
	Noise struct {
		Bytes  int
		Sample string
		ID     string // the id's JSON text
	}
)

func (Ready) event()      {}
func (Message) event()    {}
func (Sent) event()       {}
func (Unsent) event()     {}
func (Rejected) event()   {}
func (Opened) event()     {}
func (Broken) event()     {}
func (Alive) event()      {}
func (Diagnostic) event() {}
func (Noise) event()      {}
