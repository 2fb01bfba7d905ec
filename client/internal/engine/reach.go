package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// reach is the one backoff of all calls that wait because no connection could be
// made: the oldest probes, and when it gets through the others follow.
type reach struct {
	down  atomic.Bool
	since uint64 // the serial of the last call made before that
	tries int
	timer timer
	probe *call
}

// What the inbox carries about it.
type (
	evReach   struct{}          // time to try again, or to wait for the probe no longer
	evReached struct{ c *call } // a call is over, or something came on its exchange
)

// unreachable takes an attempt of which provably nothing reached the peer.
func (e *Engine) unreachable(inc *incarnation, ev transports.Unsent) {
	if e.getBroken(inc, transports.Broken{Ref: ev.Ref, Cause: ev.Cause}) ||
		e.resumeFailed(inc, ev.Ref, &Failure{Kind: KindBroken, Gen: inc.gen, Cause: ev.Cause}, true) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	if c == nil || stopped != nil || c.phase != sent {
		if c != nil {
			c.unsent = true
		}
		t.mu.Unlock()
		if stopped != nil {
			e.drop(c, stopped, c.reason)
		}
		return
	}
	c.unsent = true
	f := &Failure{Kind: KindUnreachable, Gen: inc.gen, Cause: ev.Cause}
	var p interface{ Permanent() bool }
	switch {
	case c.opened != nil, c.probe, c.stream != nil:
	case errors.As(ev.Cause, &p) && p.Permanent(): // it is the message, so another try meets it again
		if !c.wrote {
			f.Kind = KindInvalid
		}
	default:
		l := e.loss(c, policy.Unsent)
		l.MayWait = c.Wait // what was sent before and is sent again may not wait for that
		f = e.retain(c, e.Rules.Decide(l).Action, f)
	}
	serial := t.serial
	t.mu.Unlock()
	if f != nil {
		e.drop(c, f, "")
		return
	}
	if e.reach.probe == c {
		e.reach.probe = nil
	} else if e.reach.down.Load() {
		return // it joins those that wait already
	} else {
		e.reach.since = serial
	}
	e.reach.down.Store(true)
	e.reach.tries++
	e.reach.timer.stop()
	e.reach.timer.t = e.after(e.StreamBackoff.Delay(e.reach.tries, e.rnd()), evReach{})
}

func (e *Engine) rnd() float64 {
	if e.Rand == nil {
		return 0
	}
	return e.Rand()
}

// reachPatience is how long the others wait for a probe of which nothing is heard.
// A connection that is refused is refused at once; one that was made may carry a
// call that takes minutes.
const reachPatience = time.Second

// tryReach sends the oldest of those that wait. If that was done before, and it
// has neither failed nor been heard of, the others follow all the same.
func (e *Engine) tryReach() {
	t := e.calls
	t.mu.Lock()
	var oldest *call
	for _, c := range t.waits {
		if c.phase == held && (oldest == nil || c.serial < oldest.serial) {
			oldest = c
		}
	}
	if t.gate != gateOpen || oldest == nil || e.reach.probe != nil {
		t.mu.Unlock()
		e.reachable(false)
		return
	}
	inc := t.inc
	t.withdraw(oldest)
	oldest.rest(e.Clock.Now())
	t.renew(oldest)
	t.give(oldest, inc, e.ref())
	t.mu.Unlock()
	e.reach.probe = oldest
	e.reach.timer.stop()
	e.reach.timer.t = e.after(reachPatience, evReach{})
	e.send(oldest, inc)
}

// reachedBy notes that something came of a call.
func (e *Engine) reachedBy(c *call) {
	if e.reach.down.Load() {
		e.inbox.post(evReached{c})
	}
}

// reached takes a sign that the peer can be reached: something came of the probe,
// or of a call that was made since. A probe that was given up is followed by
// another.
func (e *Engine) reached(c *call) {
	if !e.reach.down.Load() {
		return
	}
	e.calls.mu.Lock()
	failed := c.phase == over && c.fail != nil
	gaveUp := failed && (c.unsent || c.ref == 0)
	fresh := !failed && c.ref != 0 && c.serial > e.reach.since
	e.calls.mu.Unlock()
	switch {
	case e.reach.probe == c && gaveUp:
		e.reach.probe = nil
		e.tryReach()
	case e.reach.probe == c, fresh:
		e.reachable(!failed)
	}
}

// reachable lets everybody go on; sure says that the peer has been heard.
func (e *Engine) reachable(sure bool) {
	e.unreach(sure)
	e.useWaiting()
}

// unreach forgets that no connection could be made.
func (e *Engine) unreach(sure bool) {
	e.reach.timer.stop()
	e.reach.probe = nil
	if e.reach.down.Store(false); sure {
		e.reach.tries = 0
	}
}
