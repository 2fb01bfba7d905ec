package stdio

import (
	"encoding/json"
	"time"
)

// stallWatch knows whether the server stopped reading for no reason of its own.
// It exists only under Config.WriteStall, because it has to look into each
// message for its id. The outbox's lock guards it.
type stallWatch struct {
	since    time.Time         // when the pipe last took a byte, or the last older request ended; zero: nothing waits
	inflight map[string]uint64 // requests written and unanswered, by id
	refs     map[uint64]string
}

func newStallWatch() *stallWatch {
	return &stallWatch{inflight: map[string]uint64{}, refs: map[uint64]string{}}
}

// began counts a request that was written whole. A listen request is never
// answered while it works, so it says nothing about the server being busy.
func (s *stallWatch) began(it *item) {
	if it.id == "" || it.cancelled || it.method == "subscriptions/listen" {
		return
	}
	s.inflight[it.id] = it.ref
	s.refs[it.ref] = it.id
}

// moved notes that the pipe took bytes at now, and whether more are waiting.
func (s *stallWatch) moved(waiting bool, now time.Time) {
	switch {
	case !waiting:
		s.since = time.Time{}
	case !now.IsZero():
		s.since = now
	case s.since.IsZero():
		s.since = time.Now()
	}
}

// forget drops a request that its caller gave up: the server may be at it for
// ever, and nobody waits.
func (s *stallWatch) forget(ref uint64, now time.Time) {
	id, ok := s.refs[ref]
	if !ok {
		return
	}
	delete(s.refs, ref)
	if s.inflight[id] == ref {
		delete(s.inflight, id)
	}
	s.restart(now)
}

// answered drops the request that a message answers.
func (s *stallWatch) answered(id string, now time.Time) {
	ref, ok := s.inflight[id]
	if !ok {
		return
	}
	delete(s.inflight, id)
	delete(s.refs, ref)
	s.restart(now)
}

// restart gives a server that was busy until now the whole time to read again.
func (s *stallWatch) restart(now time.Time) {
	if !s.since.IsZero() {
		s.since = now
	}
}

func (s *stallWatch) stalled(limit time.Duration, now time.Time) bool {
	return !s.since.IsZero() && len(s.inflight) == 0 && now.Sub(s.since) >= limit
}

// answerID is the id of a message that answers a request, "" for any other.
func answerID(frame []byte) string {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
	}
	if json.Unmarshal(frame, &m) != nil || m.Method != nil {
		return ""
	}
	return string(m.ID)
}

// answered tells the watch of a message from the server.
func (o *outbox) answered(frame []byte) {
	id := answerID(frame)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stall.answered(id, time.Now())
}

func (o *outbox) stalled(limit time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stall.stalled(limit, time.Now())
}
