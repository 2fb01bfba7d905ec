package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// drop ends a call without an answer. Whoever still has the peer working on it
// tells the peer; reason says why, "" if the peer must not be told.
func (e *Engine) drop(c *call, f *Failure, reason string) {
	t := e.calls
	t.mu.Lock()
	switch c.phase {
	case over:
		t.mu.Unlock()
		return
	case sending:
		if c.stopped == nil {
			c.stopped, c.reason = f, reason
		}
		t.mu.Unlock()
		return
	}
	live := c.phase == sent && !c.unsent
	if c.opened != nil && e.Factory.Shape == transports.Posts && c.inc.ctx.Err() != nil {
		live = false // the end of its incarnation ends it; an initialize may still show its session
	}
	inc, ref, resumed, turned, notice := c.inc, c.ref, c.resumed, c.turned, c.notice
	t.withdraw(c)
	c.phase = over
	t.mu.Unlock()
	// Closing the stream is how a modern request is cancelled over HTTP; the legacy
	// era wants to be told first (2025-11-25, transports, Sending Messages 6). Who
	// has answered, or forgotten the session, is told nothing.
	tell := reason != "" && !c.Notify && !c.uncancelled && !turned && (inc == nil || !inc.leaving.Load())
	if live && tell && e.Factory.Shape == transports.Posts && Era(inc.speaks.Load()) == Legacy {
		e.tellCancelled(inc, c.id, cancelled(c.id, reason))
	}
	if live && !turned && inc.tr.Cancel(ref) && !resumed {
		c.unsent, live = true, false
	}
	if live && tell && e.Factory.Shape == transports.Pipe {
		if notice == nil {
			notice = cancelled(c.id, reason)
		}
		e.tellCancelled(inc, c.id, notice)
	}
	e.finish(c, f)
}

func (e *Engine) tellCancelled(inc *incarnation, id string, frame []byte) {
	err := inc.tr.Send(transports.Outbound{
		Ref: e.ref(), Method: methodCancelled, Header: inc.headers(), Frame: frame,
	})
	if err != nil && !errors.Is(err, transports.ErrGone) {
		e.log(slog.LevelWarn, "a cancellation was not sent", "id", id, "err", err)
	}
}

// finish hands a failure to the caller of a call that was withdrawn.
func (e *Engine) finish(c *call, f *Failure) {
	t := e.calls
	t.mu.Lock()
	mine := *f
	mine.Method, mine.Outcome, mine.Attempts = c.Method, NotExecuted, c.given
	if c.wrote || c.inc != nil && !c.unsent && !f.NotRun {
		mine.Outcome = OutcomeUnknown
	}
	if c.inc != nil && mine.Gen == 0 {
		mine.Gen = c.inc.gen
	}
	c.phase, c.fail = over, &mine
	e.release(c)
	t.mu.Unlock()
	c.tell()
}

// tell tells whoever does not wait.
func (c *call) tell() {
	if c.Over != nil {
		c.Over(c.reply, c.fail)
	}
}

// wait puts a call among those that wait for somebody to serve, and bounds how
// long it may do so. mu is held.
func (e *Engine) wait(c *call, p phase) {
	e.calls.wait(c, p)
	if c.Hold <= 0 {
		return
	}
	c.waiting = e.Clock.Now()
	c.waker.t = e.Clock.AfterFunc(max(c.Hold-c.waited, 1), func() {
		e.dropWaiting(c, &Failure{Kind: KindNotServing, After: c.Hold, Cause: errHeldLong})
	})
}

// dropWaiting ends a call if it still waits.
func (e *Engine) dropWaiting(c *call, f *Failure) {
	t := e.calls
	t.mu.Lock()
	waits := c.phase == parked || c.phase == held
	t.mu.Unlock()
	if waits {
		e.drop(c, f, "")
	}
}

// release ends a call that was withdrawn and has its reply or failure. mu is held.
func (e *Engine) release(c *call) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.waker.stop()
	c.turn++
	c.resume.stop()
	if c.done != nil {
		close(c.done)
	}
	if c.token != "" {
		delete(e.calls.tokens, c.token)
	}
	if c.then != nil {
		e.inbox.post(c.then)
	}
	if c.inc != nil && c.inc.leaving.Load() {
		e.inbox.post(evRetire{inc: c.inc})
	}
	if e.reach.down.Load() {
		e.inbox.post(evReached{c})
	}
	if e.calls.draining && e.calls.isIdle() {
		e.inbox.post(evDrained{})
	}
}

// startTimer starts the one timer of a call: the idle bound, which progress
// moves, or the ceiling, whichever comes first. mu is held.
func (e *Engine) startTimer(c *call) {
	if c.Idle <= 0 && c.Ceiling <= 0 {
		return
	}
	now := e.Clock.Now()
	if c.Idle > 0 {
		c.idleAt = now.Add(c.Idle)
	}
	if c.Ceiling > 0 {
		c.ceilAt = now.Add(c.Ceiling)
	}
	c.timer = e.Clock.AfterFunc(c.deadline().Sub(now), func() { e.timeout(c) })
}

// deadline is the earlier of the bounds that are set, and the time is the idle
// one's where they are equal.
func (c *call) deadline() time.Time {
	if c.ceilAt.IsZero() || !c.idleAt.IsZero() && !c.ceilAt.Before(c.idleAt) {
		return c.idleAt
	}
	return c.ceilAt
}

// lateTimer is how late a timer must fire to show that the whole machine was
// away, asleep or stopped, and how long the peer then has to be heard before a
// call is timed out that had no chance. No scheduler is that late by itself.
const lateTimer = time.Second

func (e *Engine) timeout(c *call) {
	t := e.calls
	t.mu.Lock()
	if c.phase == over {
		t.mu.Unlock()
		return
	}
	at := c.deadline()
	left := at.Sub(e.Clock.Now())
	if left < -lateTimer && !c.spared { // the machine slept: what came meanwhile is read first
		left, c.spared = lateTimer, true
	}
	if left > 0 { // or progress moved it
		c.timer.Reset(left)
		t.mu.Unlock()
		return
	}
	f := &Failure{Kind: KindTimeout, Idle: at.Equal(c.idleAt), After: c.Ceiling}
	if f.Idle {
		f.After = c.Idle
	}
	t.mu.Unlock()
	e.drop(c, f, "timed out")
}
