package engine

import (
	"net/http"
	"time"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// evResume is the time to ask for the rest of a broken or silent stream.
type evResume struct {
	inc  *incarnation
	c    *call
	turn int // of the call when this was planned
}

// broken takes the end of a response without its answer.
func (e *Engine) broken(inc *incarnation, ev transports.Broken) {
	if e.getBroken(inc, ev) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	if c == nil || stopped != nil || c.phase != sent {
		t.mu.Unlock()
		if stopped != nil {
			e.drop(c, stopped, c.reason)
		}
		return
	}
	e.reachedBy(c)
	if ev.Retry > 0 {
		c.retry = ev.Retry // until the server says otherwise (HTML, 9.2.6)
	}
	f := &Failure{Kind: KindBroken, Gen: inc.gen, Cause: ev.Cause, After: c.retry}
	if c.opened != nil || c.probe || c.Notify || c.Method == methodListen {
		t.mu.Unlock()
		e.drop(c, f, "")
		return
	}
	// A server that has nothing yet says where to go on, or when, and closes: a poll
	// that it answers so is none that failed (2025-11-25, transports, Sending Messages 6).
	if ev.Retry > 0 || ev.LastID != "" && ev.LastID != c.lastID {
		c.resumes = 0
	}
	if ev.LastID != "" {
		c.lastID = ev.LastID
	}
	e.cut(inc, c, f, true)
}

// cut decides about a call whose response broke, and f says how: the rest of it
// may still be had where it can be resumed. t.mu is held, and released.
func (e *Engine) cut(inc *incarnation, c *call, f *Failure, resumable bool) {
	l := e.loss(c, policy.Broken)
	l.Resumable = resumable && c.resumable()
	d := e.Rules.Decide(l)
	if d.Action == policy.Resume {
		c.resumes++
		c.adrift = true
		e.planResume(inc, c, max(f.After, e.StreamBackoff.Delay(c.resumes, e.rnd())))
		e.calls.mu.Unlock()
		return
	}
	c.resent = true
	e.again(c, nil, d.Action, f)
}

// maxResumes is how many resumes in a row may fail.
const maxResumes = 5

// resumable reports whether a call's stream can be continued where it broke
// (2025-11-25, transports, Resumability and Redelivery). mu is held.
func (c *call) resumable() bool {
	return c.lastID != "" && c.resumes < maxResumes && c.inc != nil && !c.inc.leaving.Load()
}

// planResume takes the place of whatever resume was planned before. mu is held.
func (e *Engine) planResume(inc *incarnation, c *call, delay time.Duration) {
	c.turn++
	c.resume.stop()
	c.resume.t = e.after(delay, evResume{inc, c, c.turn})
}

// resume asks for the rest of a stream, which takes the place of what there still
// is of it.
func (e *Engine) resume(ev evResume) {
	c, t := ev.c, e.calls
	t.mu.Lock()
	if c.phase != sent || c.turn != ev.turn {
		t.mu.Unlock()
		return
	}
	out := transports.Outbound{
		Ref: c.ref, Op: transports.OpResume, LastID: c.lastID, ID: c.id, Method: c.Method, Header: e.header(c, ev.inc),
	}
	c.adrift, c.resumed = false, true
	e.pollLater(ev.inc, c)
	t.mu.Unlock()
	err := ev.inc.tr.Send(out)
	t.mu.Lock()
	over := t.byRef[out.Ref] != c
	t.mu.Unlock()
	switch {
	case over: // it ended meanwhile, and whoever ended it cancelled only what there was
		ev.inc.tr.Cancel(out.Ref)
	case err != nil:
		e.resumeFailed(ev.inc, out.Ref, &Failure{Kind: KindBroken, Gen: ev.inc.gen, Cause: err}, true)
	}
}

// A resumed stream that brings nothing for pollAfter is asked for again, and each
// time a moment later: some servers look for missed events only when asked. Up to
// pollMost, which is below the 60 s after which proxies cut silent streams.
const (
	pollAfter = 5 * time.Second
	pollMost  = 40 * time.Second
)

// pollLater plans the next look at a resumed stream. mu is held.
func (e *Engine) pollLater(inc *incarnation, c *call) {
	e.planResume(inc, c, min(pollAfter<<c.polls, pollMost))
	c.polls = min(c.polls+1, 3)
}

// resumeBrought notes that a call's own stream brought a message. mu is held.
func (e *Engine) resumeBrought(inc *incarnation, c *call) {
	if c.resumes, c.polls = 0, 0; c.resumed && !c.adrift {
		e.pollLater(inc, c)
	}
}

// resumeRejected takes a refusal of a GET that asked for the rest of a stream. It
// says nothing about the POST, and nothing about the session. It reports whether
// it was one.
func (e *Engine) resumeRejected(inc *incarnation, ev transports.Rejected) bool {
	if ev.Status == http.StatusConflict && e.stillHeld(inc, ev.Ref) {
		return true
	}
	later := false
	switch ev.Status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly:
		later = true
	default:
		later = ev.Status/100 == 5 && ev.Status != http.StatusNotImplemented
	}
	f := &Failure{Kind: KindBroken, Gen: inc.gen, Cause: rejection(ev).Cause, After: retryAfter(ev.Header, e.Clock.Now())}
	return e.resumeFailed(inc, ev.Ref, f, later)
}

// stillHeld plans another look at a stream that the server takes for connected.
// That is no failure: it may not have noticed yet that the connection broke.
func (e *Engine) stillHeld(inc *incarnation, ref uint64) bool {
	t := e.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRef[ref]
	if c == nil || !c.resumed || c.adrift || c.phase != sent || !c.resumable() {
		return false
	}
	c.adrift = true
	e.pollLater(inc, c)
	return true
}

// resumeFailed takes a resume that brought nothing; later says that another may
// fare better. It reports whether the attempt was one.
func (e *Engine) resumeFailed(inc *incarnation, ref uint64, f *Failure, later bool) bool {
	t := e.calls
	t.mu.Lock()
	c := t.byRef[ref]
	if c == nil || !c.resumed {
		t.mu.Unlock()
		return false
	}
	if c.phase != sent || c.adrift {
		t.mu.Unlock()
		return true
	}
	e.cut(inc, c, f, later)
	return true
}
