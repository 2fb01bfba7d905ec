package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/fsm"
)

// Filter says which notifications a stream asks for (2026-07-28,
// patterns/subscriptions, Notification Filter).
type Filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

const (
	methodListen          = "subscriptions/listen"
	methodAcknowledged    = "notifications/subscriptions/acknowledged"
	methodCancelled       = "notifications/cancelled"
	methodToolsChanged    = "notifications/tools/list_changed"
	methodPromptsChanged  = "notifications/prompts/list_changed"
	methodResourceChanged = "notifications/resources/list_changed"
	methodUpdated         = "notifications/resources/updated"
)

// maxDeliveries is how many notifications may wait for a stream's callback. One
// more ends the stream: dropping some in silence would be a lie, and keeping all
// of them unbounded.
const maxDeliveries = 1024

// ErrShed ends a stream whose callback is too slow.
var ErrShed = errors.New("more notifications wait than a stream may hold")

// Stream is one subscription over all the peer's lives, an instance of the
// lifecycle of its own: its incarnations are the listen requests.
type Stream struct {
	ID     string // the handle's and, on a Pipe, the wire id's JSON text
	e      *Engine
	filter Filter
	told   func(Incoming, uint64)
	raw    *RawStream // of an owner that speaks frames; nil: of one that does not

	// The loop's own.
	snap     fsm.Snapshot
	tries    int       // openings in a row that did not last
	openings int       // in all
	askedIn  uint64    // the incarnation that was asked last
	since    time.Time // when it was acknowledged
	missed   bool      // something may have changed that no recovery tells
	timer    timer
	ready    bool // the delay of the promised opening is over

	asked   int      // legacy: subscribe requests under way
	refusal error    // legacy: the peer's answer to one of them
	failed  *Failure // legacy: how one of them ended without an answer

	mu       sync.Mutex
	call     *call // the listen request in force; nil: none
	acked    Filter
	ackedAny bool
	queue    []delivery
	busy     bool
	over     bool
	shed     bool // it took one delivery too many
	err      error
	done     chan struct{}
	first    chan struct{} // closed at the first acknowledgement, or at the end
}

type delivery struct {
	m   Incoming
	gen uint64
}

// What the inbox carries about streams.
type (
	evListen struct {
		s      *Stream
		handed chan struct{} // closed when the request is on its way, or waits
	}
	evAcked      struct{ s *Stream }
	evStreamOver struct { // the request of a stream is over
		s *Stream
		c *call
	}
	evStreamDue struct {
		s   *Stream
		gen uint64
	}
	evStreamClose struct {
		s      *Stream
		err    error // nil: as its owner or the peer wanted
		byPeer bool  // the peer has ended it itself
	}
)

// Listen opens a stream. told is called in order, on a goroutine of the stream's
// own. It fails as a call does while nobody serves.
func (e *Engine) Listen(f Filter, wait bool, told func(Incoming, uint64)) (*Stream, *Failure) {
	return e.register(&Stream{filter: f, told: told}, wait)
}

// RawStream is a stream of an owner that speaks frames. It hears the first
// acknowledgement, a later one only if it grants less, and how the request ended
// if the peer ended it by an answer.
type RawStream struct {
	ID    string // the wire id's JSON text
	Frame []byte
	Hold  time.Duration // how long it may wait for its first opening while nobody serves; 0: for ever
	Over  func(Reply, *Failure)
	// Again hears what a later acknowledgement grants, after that itself if it is
	// told. Like told it must not block.
	Again func(Filter)
}

// ListenRaw opens a stream by a frame of its owner's. told is called on the
// transport's goroutine and must not block.
func (e *Engine) ListenRaw(f Filter, raw RawStream, told func(Incoming, uint64)) (*Stream, *Failure) {
	return e.register(&Stream{filter: f, told: told, raw: &raw, ID: raw.ID}, true)
}

func (e *Engine) register(s *Stream, wait bool) (*Stream, *Failure) {
	s.e, s.done, s.first = e, make(chan struct{}), make(chan struct{})
	if f := e.admitStream(s, wait); f != nil {
		return nil, f
	}
	handed := make(chan struct{})
	e.inbox.post(evListen{s, handed})
	select {
	case <-handed:
	case <-e.done:
	}
	select {
	case <-handed: // also when it was the last of all
		return s, nil
	default: // it was posted too late to be read
		return nil, e.admitStream(s, wait)
	}
}

// admitStream lets a new stream through the gate, as admit does for a call.
func (e *Engine) admitStream(s *Stream, wait bool) *Failure {
	t := e.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.gate {
	case gateEnded:
		f := *t.terminal
		f.Method, f.Outcome = methodListen, NotExecuted
		return &f
	case gateDown:
		if waits, _ := e.maywait(wait); !waits {
			return &Failure{Kind: KindNotServing, Method: methodListen, Outcome: NotExecuted, RetryAt: t.retryAt}
		}
	}
	if s.raw != nil && t.taken(s.ID) {
		return &Failure{Kind: KindDuplicate, Method: methodListen, Outcome: NotExecuted}
	}
	if t.serial++; s.raw == nil {
		s.ID = idText(t.serial)
	}
	return nil
}

// Close ends a stream and tells the peer.
func (s *Stream) Close() { s.e.inbox.post(evStreamClose{s: s}) }

// Done is closed when the stream has ended and its last callback returned.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Opened is closed when the peer has acknowledged the stream once, or it ended.
func (s *Stream) Opened() <-chan struct{} { return s.first }

// Err is why the stream ended; nil for a graceful end, or while it has not.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Acknowledged is what the peer agreed to the last time, and whether it ever did.
func (s *Stream) Acknowledged() (Filter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked, s.ackedAny
}

// exceeds reports whether f grants something that g does not.
func (f Filter) exceeds(g Filter) bool {
	return f.Tools && !g.Tools || f.Prompts && !g.Prompts || f.Resources && !g.Resources ||
		slices.ContainsFunc(f.URIs, func(uri string) bool { return !slices.Contains(g.URIs, uri) })
}

// end makes the end visible, after the callbacks of what came before.
func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.err = true, err
	if !s.ackedAny {
		close(s.first)
	}
	if !s.busy {
		close(s.done)
	}
}

// take gives a stream a notification of its own, on the transport's goroutine.
func (s *Stream) take(m Incoming, gen uint64, c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.shed || c != nil && s.call != c {
		return
	}
	if m.Method == methodAcknowledged {
		var p struct {
			Notifications Filter `json:"notifications"`
		}
		if Decode(m.Params, &p) == nil && c != nil && !c.acked {
			c.acked = true
			first, less := !s.ackedAny, s.acked.exceeds(p.Notifications)
			s.acknowledge(p.Notifications)
			if s.raw != nil && (first || less) {
				s.told(m, gen)
			}
			if s.raw != nil && !first {
				s.raw.Again(p.Notifications)
			}
		}
		return
	}
	if c != nil && !c.acked { // the acknowledgement comes first (2026-07-28, Acknowledgment)
		s.e.Counters.Malformed.Add(1)
		return
	}
	if s.raw != nil {
		s.told(m, gen)
		return
	}
	if len(s.queue) >= maxDeliveries {
		s.shed, s.queue = true, nil // nothing more is told, though the end comes a moment later
		s.e.inbox.post(evStreamClose{s: s, err: ErrShed})
		return
	}
	s.queue = append(s.queue, delivery{m, gen})
	if !s.busy {
		s.busy = true
		go s.deliver()
	}
}

// acknowledge notes what the peer agreed to. s.mu is held.
func (s *Stream) acknowledge(f Filter) {
	s.acked = f
	if !s.ackedAny {
		s.ackedAny = true
		close(s.first)
	}
	s.e.inbox.post(evAcked{s})
}

// deliver runs the callback until nothing waits.
func (s *Stream) deliver() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy = false
			if s.over {
				close(s.done)
			}
			s.mu.Unlock()
			return
		}
		d := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		guard(func() { s.told(d.m, d.gen) }, s.e.panicked)
	}
}
