package engine

import (
	"sync/atomic"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// reach is the one backoff of all calls that wait because no connection could be
// made: the oldest probes, and when it gets through the others follow.
type reach struct {
	down  atomic.Bool
	tries int
	timer timer
	probe *call
}

// What the inbox carries about it.
type (
	evReach   struct{}          // time to try again
	evReached struct{ c *call } // a call is over: if it was the probe, the peer can be reached
)

// unreachable takes an attempt of which provably nothing reached the peer.
func (e *Engine) unreachable(inc *incarnation, ev transports.Unsent) {
	if e.getBroken(inc, transports.Broken{Ref: ev.Ref, Cause: ev.Cause}) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	if c == nil || stopped != nil || c.phase != sent {
		t.mu.Unlock()
		if stopped != nil {
			c.unsent = true
			e.drop(c, stopped, "")
		}
		return
	}
	c.unsent = true
	f := &Failure{Kind: KindUnreachable, Gen: inc.gen, Cause: ev.Cause}
	if c.opened == nil && !c.probe && c.stream == nil {
		if d := e.Rules.Decide(e.loss(c, policy.Unsent)); d.Action == policy.Hold {
			f = e.retain(c, d.Action, f)
		}
	}
	t.mu.Unlock()
	if f != nil {
		e.drop(c, f, "")
		return
	}
	if e.reach.probe == c {
		e.reach.probe = nil
	} else if e.reach.down.Load() {
		return // it joins those that wait already
	}
	e.reach.down.Store(true)
	e.reach.tries++
	e.reach.timer.t = e.after(e.StreamBackoff.Delay(e.reach.tries, e.rnd()), evReach{})
}

func (e *Engine) rnd() float64 {
	if e.Rand == nil {
		return 0
	}
	return e.Rand()
}

// tryReach sends the oldest of those that wait.
func (e *Engine) tryReach() {
	t := e.calls
	t.mu.Lock()
	var oldest *call
	for _, c := range t.waits {
		if c.phase == held && (oldest == nil || c.serial < oldest.serial) {
			oldest = c
		}
	}
	if t.gate != gateOpen || oldest == nil {
		t.mu.Unlock()
		e.reachable()
		return
	}
	inc := t.inc
	t.withdraw(oldest)
	t.give(oldest, inc, e.ref())
	t.mu.Unlock()
	e.reach.probe = oldest
	e.send(oldest, inc)
}

// reached notes the end of a call. That of the probe lets the others follow, and
// if the probe was given up, another one takes its place.
func (e *Engine) reached(c *call) {
	if e.reach.probe != c {
		return
	}
	e.reach.probe = nil
	if c.fail != nil && c.unsent {
		e.tryReach()
		return
	}
	e.reachable()
}

// reachable lets everybody go on.
func (e *Engine) reachable() {
	e.reach.timer.stop()
	e.reach.tries = 0
	e.reach.down.Store(false)
	e.useWaiting()
}
