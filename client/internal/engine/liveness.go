package engine

import (
	"errors"
	"time"

	"github.com/respawn-mcp/respawn/fsm"
)

// Liveness says when a peer that is silent is taken for dead. The zero value:
// never.
type Liveness struct {
	Idle    time.Duration // silence before the first probe, and between two
	Timeout time.Duration // silence after a probe that makes it a miss
	Misses  int           // misses in a row that end the incarnation
}

// ErrUnresponsive ends an incarnation that answered no probe.
var ErrUnresponsive = errors.New("the server did not answer any liveness probe")

// What the inbox carries about liveness.
type (
	evWatch  struct{ inc *incarnation } // time to look whether it lives
	evProbed struct {                   // a probe is over
		inc *incarnation
		c   *call
	}
)

// hear notes a sign of life.
func (inc *incarnation) hear() {
	if inc.e.Liveness.Idle > 0 {
		inc.signs.Add(1)
		inc.heard.Store(int64(inc.e.Clock.Now().Sub(inc.begun)))
	}
}

// silence is how long nothing has been heard of an incarnation.
func (inc *incarnation) silence() time.Duration {
	return inc.e.Clock.Now().Sub(inc.begun) - time.Duration(inc.heard.Load())
}

// watch starts to look after an incarnation that serves.
func (e *Engine) watch(inc *incarnation) {
	if e.Liveness.Idle > 0 {
		inc.lifeTimer.t = e.after(e.Liveness.Idle, evWatch{inc})
	}
}

// checkLife probes an incarnation that has been silent for long and has nothing
// to do. One that works on a request may be too busy to answer, and its request's
// timeout is nobody's death.
func (e *Engine) checkLife(inc *incarnation) {
	if e.cur != inc || e.machine.State() != fsm.Serving {
		return
	}
	silent := inc.silence()
	if busy := !e.calls.idle(); busy || silent < e.Liveness.Idle {
		wait := e.Liveness.Idle
		if !busy {
			wait -= silent
		}
		inc.lifeTimer.t = e.after(wait, evWatch{inc})
		return
	}
	method := methodPing
	if e.session.Load().Era == Modern { // ping is gone (2026-07-28, changelog 5)
		method = methodDiscover
	}
	if inc.misses == 0 {
		inc.lastSign = inc.signs.Load()
	}
	c := &call{Request: Request{Method: method, Idle: e.Liveness.Timeout}, probe: true, done: make(chan struct{})}
	c.then = evProbed{inc, c}
	e.giveTo(inc, c)
}

// probed takes the end of a probe. Any answer is life, an error or a late one too,
// and so is anything else heard since the first of the probes that were missed.
func (e *Engine) probed(inc *incarnation, c *call) {
	if e.cur != inc || e.machine.State() != fsm.Serving {
		return
	}
	if c.fail == nil || inc.signs.Load() != inc.lastSign || !e.calls.idle() {
		inc.misses = 0
	} else if inc.misses++; inc.misses >= e.Liveness.Misses {
		inc.cancel(ErrUnresponsive)
		return
	}
	e.watch(inc)
}
