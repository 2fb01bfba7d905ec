package engine

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"
)

// Request is one request or notification to send.
type Request struct {
	Method string
	Params json.RawMessage // a JSON object; nil means {}
	Header http.Header     // the caller's own; a pipe ignores them
	Notify bool            // no answer is expected
	ID     string          // the wire id's JSON text; "": the engine chooses one
	Frame  []byte          // sent as it is, instead of one composed of the above

	// Over is told how the request ended, instead of a caller that waits, on
	// whatever goroutine ended it. It must not block.
	Over func(Reply, *Failure)
	Hold time.Duration // how long it may wait in all while nobody serves; 0: no bound

	Pin         uint64        // the one generation that may take it; 0: any
	Version     string        // of the protocol, for its header; "": its incarnation's
	Wait        bool          // hold it while nobody serves
	Idle        time.Duration // ends it without progress; 0 never
	Ceiling     time.Duration // ends it in any case; 0 never
	Progress    func(Progress)
	uncancelled bool // MUST NOT be cancelled on the wire (initialize)
}

// Progress is one progress notification of a request.
type Progress struct {
	Progress float64  `json:"progress"`
	Total    *float64 `json:"total"`
	Message  string   `json:"message"`
}

// Reply is the peer's answer: Err, or else Result. Gen is who gave it.
type Reply struct {
	Result json.RawMessage
	Err    *RPCError
	Gen    uint64
	Frame  []byte      // the whole message
	Status int         // of an HTTP answer that was not 2xx; 0 otherwise
	Header http.Header // of the same
}

// phase is where a call is. Who may end it depends on it, see table.
type phase uint8

const (
	parked  phase = iota // never sent, waits for the gate
	held                 // given to an incarnation that ended, to be sent again
	sending              // Send is running; its caller decides what comes next
	sent                 // taken by the transport
	over                 // answered, failed or being failed
)

// call is one request of this side. Everything below the line is guarded by the
// table's mutex; reply and fail are read only after done is closed.
type call struct {
	Request
	serial uint64       // order of creation
	id     string       // the wire id's JSON text; of a notification, never on the wire
	name   string       // params.name or params.uri, where the method has one
	token  string       // its progress token; "" for none
	opened *incarnation // whose opening exchange it belongs to; nil: none
	stream *Stream      // whose request it is; nil: none
	probe  bool         // a liveness probe, which is no work of the peer's owner
	then   any          // posted to the inbox when it is over; nil: nothing
	done   chan struct{}

	streamGen uint64 // legacy: the opening of the stream it was made for
	acked     bool   // a stream's: it was acknowledged; the stream's mutex guards it

	news chan struct{} // holds a token while progress may be non-empty

	// ----
	phase    phase
	inc      *incarnation  // whom it was given to last
	ref      uint64        // the attempt
	unsent   bool          // nothing of that attempt was written
	wrote    bool          // something of an earlier attempt may have been
	renew    bool          // it needs a new wire id before it is sent again
	resent   bool          // it was sent again once for a refusal or a break
	relisted bool          // ... and once for a header mismatch
	granted  bool          // the tool's annotations allowed a second run when it was sent
	turned   bool          // the peer has answered that attempt, though not with an answer
	lastID   string        // of that attempt's stream, for a resume
	resumed  bool          // what comes of that attempt comes of a resume, and its POST is over
	adrift   bool          // its stream broke, and no resume is under way
	resumes  int           // resumes in a row that failed
	retry    time.Duration // how long that stream wants a resume to wait
	polls    int           // ... and that brought nothing
	turn     int           // moves with each resume that is planned, so that a stale one is known
	resume   timer         // the next of them
	pages    int           // of the listing that a header mismatch asked for
	epoch    uint64        // a tools/list: what it was asked under
	deaths   int
	given    int      // attempts so far
	queued   bool     // phase sending: others are sent before it
	stopped  *Failure // phase sending: what Send's caller must do afterwards
	reason   string   // ... and what the peer is told of it
	notice   []byte   // ... in the words of its owner; nil: in ours
	lost     bool     // phase sending: the incarnation ended meanwhile
	progress []Progress
	idleAt   time.Time
	ceilAt   time.Time
	timer    *clock.Timer
	waiting  time.Time     // since when it waits while nobody serves
	waited   time.Duration // and how long it did before
	waker    timer         // ends it when Hold is over
	spared   bool          // its timer came late once, and it got a moment more

	reply Reply
	fail  *Failure
}

// maxProgress bounds the progress notifications that wait for a slow callback;
// beyond it the oldest go, since each one supersedes those before it.
const maxProgress = 1024

// mayWait reports whether a call that nothing was written of may wait for somebody
// else. One that is retained may: what it was retained for has not come yet.
func (c *call) mayWait() bool { return c.Wait || c.wrote }

// size is what a call that waits takes: the params of a frame are a part of it.
func (c *call) size() int64 {
	const rest = 256 // about what is not the message
	if c.Frame != nil {
		return int64(len(c.Frame)) + rest
	}
	return int64(len(c.Params)) + rest
}
