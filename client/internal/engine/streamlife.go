package engine

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

// listen registers a new stream. While nobody serves it is as if it had been
// lost: the next incarnation opens it.
func (e *Engine) listen(s *Stream) {
	s.snap, _ = fsm.Lifecycle.Init()
	if e.machine.State().Terminal() { // since it was let in
		if f := e.admitStream(s, true); f != nil && s.raw != nil {
			s.raw.Over(Reply{}, f)
		}
		s.step(fsm.Close)
		s.end(e.err)
		return
	}
	e.setStreams(append(slices.Clone(e.streams), s))
	if e.machine.State() == fsm.Serving && e.calls.open() {
		e.openStream(s)
		return
	}
	s.ready = true
	s.step(fsm.Lost)
	e.holdStream(s)
	e.use()
}

// holdStream bounds how long a stream that never was open waits for an incarnation.
// One that was is a promise to its owner, and waits as long as there may be one.
func (e *Engine) holdStream(s *Stream) {
	if _, ever := s.Acknowledged(); ever || s.raw == nil || s.raw.Hold <= 0 {
		return
	}
	f := &Failure{Kind: KindNotServing, Method: methodListen, Outcome: OutcomeUnknown, After: s.raw.Hold, Cause: errHeldLong}
	if s.openings == 0 {
		f.Outcome = NotExecuted
	}
	s.timer.t = e.after(s.raw.Hold, evStreamClose{s: s, err: f})
}

// step moves a stream's own machine, and reports whether it moved.
func (s *Stream) step(on fsm.Event) bool {
	next, do, err := fsm.Lifecycle.Step(s.snap, fsm.Input{Event: on, Gen: s.snap.Gen})
	if err != nil {
		s.e.Counters.Illegal.Add(1)
		s.e.Logger.Error("illegal stream event", "stream", s.ID, "err", err)
		return false
	}
	s.snap = next
	return len(do) > 0
}

// reopenStreams opens what waits for an incarnation and whose delay is over.
func (e *Engine) reopenStreams() (n int) {
	for _, s := range e.streams {
		if s.snap.State == fsm.Dead && s.ready {
			e.respawnStream(s)
			n++
		}
	}
	return n
}

func (e *Engine) setStreams(streams []*Stream) {
	e.streams = streams
	e.allStreams.Store(&streams)
}

func (e *Engine) respawnStream(s *Stream) {
	s.ready = false
	if s.step(fsm.Due) {
		e.openStream(s)
	}
}

// openStream asks the serving incarnation for a stream. In the legacy era that is
// a subscription for each resource; the rest comes untagged anyway.
func (e *Engine) openStream(s *Stream) {
	s.tries++
	if e.session.Load().Era == Legacy {
		e.subscribe(s)
		return
	}
	raw, err := json.Marshal(s.filter)
	if err != nil {
		e.closeStream(s, err)
		return
	}
	c := &call{Request: Request{Method: methodListen, Params: object("notifications", raw)}, stream: s, done: make(chan struct{})}
	c.then = evStreamOver{s, c}
	if s.raw != nil {
		c.ID, c.Frame = s.ID, s.raw.Frame
	}
	// A request that is sent again on the same incarnation may not have the id of the
	// first, which is not answered yet, or may be late (2026-07-28, basic, Requests).
	again := s.askedIn == e.cur.gen
	s.askedIn = e.cur.gen
	switch s.openings++; {
	case e.Factory.Shape == transports.Pipe && !again, s.raw != nil && s.openings == 1:
		c.id = s.ID
	case s.raw != nil: // its owner knows it by the handle's, whatever the wire says
		c.id = e.calls.alias()
	}
	s.mu.Lock()
	s.call = c
	s.mu.Unlock()
	s.timer.stop()
	e.giveTo(e.cur, c)
	if d := e.RequestTimeout; d > 0 { // an opening that is never acknowledged has failed
		s.timer.t = e.Clock.AfterFunc(d, func() {
			if s.unacked(c) {
				e.drop(c, &Failure{Kind: KindTimeout, After: d}, "not acknowledged")
			}
		})
	}
}

// unacked reports whether c is in force and was not acknowledged.
func (s *Stream) unacked(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call == c && !c.acked
}

// streamOver takes the end of a listen request. A result is a graceful end, an
// error a refusal; anything else was lost and is tried again: at once when the
// incarnation died, behind a backoff when it is alive.
func (e *Engine) streamOver(s *Stream, c *call) {
	e.subscribed(s, c)
	s.mu.Lock()
	current := s.call == c
	if current {
		s.call = nil
	}
	s.mu.Unlock()
	if !current || s.snap.State.Terminal() {
		return
	}
	s.timer.stop()
	if c.fail != nil && c.fail.Outcome == NotExecuted { // the incarnation never had that id
		s.askedIn = 0
	}
	if s.raw != nil && c.fail == nil && !busy(c.reply.Status) {
		s.raw.Over(c.reply, nil)
	}
	switch f := c.fail; {
	case f == nil && c.reply.Err == nil:
		e.closeStream(s, nil)
	case f == nil && busy(c.reply.Status): // whoever stands before the server says so, too
		e.retryStream(s, tooBusy(c))
	case f == nil:
		e.closeStream(s, c.reply.Err)
	default:
		e.retryStream(s, f)
	}
}

// retryStream takes a stream whose request got no answer.
func (e *Engine) retryStream(s *Stream, f *Failure) {
	switch f.Kind {
	case KindDied, KindNotServing, KindSession:
		e.loseStream(s)
	case KindTimeout, KindFull, KindBroken, KindUnreachable, KindRejected:
		if _, ever := s.Acknowledged(); !ever && f.Kind == KindRejected && !f.busy() { // there are no such streams
			e.closeStream(s, f)
			return
		}
		tries := s.tries
		if s.snap.State == fsm.Serving && e.Clock.Now().Sub(s.since) >= getLived {
			tries = 0 // an acknowledgement alone is no success: a server may end each one at once
		}
		e.loseStream(s)
		s.timer.stop()
		s.ready, s.tries, s.missed = false, tries, true
		d := max(e.StreamBackoff.Delay(max(tries, 1), e.rnd()), f.floor(e.Clock.Now()))
		e.log(slog.LevelWarn, "a stream is opened again", "stream", s.ID, "cause", f, "delay", d)
		s.timer.t = e.after(d, evStreamDue{s, s.snap.Gen})
	default:
		e.closeStream(s, f)
	}
}

// busy reports a status that may change by itself.
func busy(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }

func tooBusy(c *call) *Failure {
	return &Failure{Kind: KindRejected, Cause: &RejectedError{Status: c.reply.Status, Header: c.reply.Header, Cause: c.reply.Err}}
}

func (f *Failure) busy() bool {
	r := new(RejectedError)
	return errors.As(f, &r) && busy(r.Status)
}

// floor is the server's wish for the delay before the next try.
func (f *Failure) floor(now time.Time) time.Duration {
	if f.Kind == KindBroken {
		return f.After
	}
	return wishOf(f, now)
}

// loseStream takes a stream from a dead incarnation; the next one opens it.
func (e *Engine) loseStream(s *Stream) {
	if s.snap.State != fsm.Starting && s.snap.State != fsm.Serving {
		return
	}
	s.step(fsm.Lost)
	s.timer.stop()
	e.holdStream(s)
	s.ready, s.asked, s.tries = true, 0, 0
	s.mu.Lock()
	s.call = nil
	s.mu.Unlock()
}

// loseStreams does so for all, when the incarnation they were on has ended.
func (e *Engine) loseStreams() {
	for _, s := range e.streams {
		e.loseStream(s)
	}
}

// streamDue opens a lost stream again: its delay is over, and if nobody serves
// the next announcement does the rest.
func (e *Engine) streamDue(s *Stream, gen uint64) {
	if s.snap.State != fsm.Dead || s.snap.Gen != gen {
		return
	}
	s.ready = true
	if e.machine.State() == fsm.Serving && e.calls.open() {
		e.respawnStream(s)
	}
}

// ackedStream notes that the peer serves the stream. What changed while earlier
// openings failed was not announced; what changed before the peer served, the
// recovery has told.
func (e *Engine) ackedStream(s *Stream) {
	if s.snap.State != fsm.Starting {
		return
	}
	missed := s.missed
	s.missed, s.since = false, e.Clock.Now()
	s.timer.stop()
	s.step(fsm.Up)
	if !missed {
		return
	}
	for _, method := range changes {
		if method != methodUpdated && s.wants(method, "") {
			e.stale(method, "")
		}
	}
	for _, uri := range s.filter.URIs {
		e.stale(methodUpdated, uri)
	}
}

// closeStream ends a stream for good and tells the peer if it still holds it.
func (e *Engine) closeStream(s *Stream, err error) {
	e.endStream(s, err, "the subscription was closed")
}

// endStream does so and gives the peer a reason; "" if it must not be told.
func (e *Engine) endStream(s *Stream, err error, reason string) {
	if s.snap.State.Terminal() {
		return
	}
	if f := new(Failure); s.raw != nil && errors.As(err, &f) {
		s.raw.Over(Reply{}, f)
	}
	s.step(fsm.Close)
	s.timer.stop()
	e.setStreams(slices.DeleteFunc(slices.Clone(e.streams), func(x *Stream) bool { return x == s }))
	s.mu.Lock()
	c := s.call
	s.call = nil
	s.mu.Unlock()
	if c != nil {
		e.drop(c, &Failure{Kind: KindCaller}, reason)
	}
	e.unsubscribe(s)
	s.end(err)
}
