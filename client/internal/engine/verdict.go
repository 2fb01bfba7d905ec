package engine

import (
	"errors"
	"time"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// wishOf is the delay that a server asked for by refusing an opening.
func wishOf(cause error, now time.Time) time.Duration {
	opening, rejected := new(OpeningError), new(RejectedError)
	switch {
	case errors.As(cause, &rejected):
		return retryAfter(rejected.Header, now)
	case errors.As(cause, &opening):
		return retryAfter(opening.Header, now)
	}
	return 0
}

// begun reports whether something has served, or is about to be announced: from then on
// an ending is the budget's.
func (e *Engine) begun() bool { return e.served || e.agreed.Load() }

// verdict says whether a live ending is followed by another incarnation.
func (e *Engine) verdict(inc *incarnation, s step) policy.Verdict {
	if e.doubtEra(inc, s.cause) && !e.served && !e.freeUsed {
		e.freeUsed = true
		return policy.Verdict{Respawn: true, Why: "it exited on the era probe, which tells that it is a legacy server"}
	}
	if e.begun() {
		rnd := 0.0
		if e.Rand != nil {
			rnd = e.Rand()
		}
		var v policy.Verdict
		e.ledger, v = e.Budget.Spend(e.ledger, policy.Death{Gen: inc.gen, At: s.at, Uptime: s.uptime, Cause: s.cause}, rnd)
		if v.Respawn {
			e.restarts++
		}
		return v
	}
	// Until something has served, an ending is Connect's error.
	if e.FreeStart && !e.freeUsed && inc.ready.Load() { // what could not be started won't start now
		e.freeUsed = true
		return policy.Verdict{Respawn: true, Why: "one death before the opening exchange is answered is forgiven"}
	}
	return policy.Verdict{Why: "nothing has served yet"}
}

// probed reports whether the peer may have read the question for its era.
func (inc *incarnation) probed() bool {
	c := inc.question.Load()
	if c == nil {
		return false
	}
	inc.e.calls.mu.Lock()
	defer inc.e.calls.mu.Unlock()
	return !c.unsent
}

// doubtEra learns from an ending which era to try next. Some legacy servers exit
// on a request they do not know before initialize; that tells the era rather than
// a fault (2026-07-28, stdio, Backward Compatibility), and is reported. A
// remembered era that got no answer at all may be wrong: the next incarnation is
// probed (2026-07-28, basic/versioning), unless the probe is known to end it. Over
// HTTP a server of the other era answers, and trouble on the way tells nothing.
func (e *Engine) doubtEra(inc *incarnation, cause error) (exitedOnProbe bool) {
	switch {
	case inc.answered.Load():
	case inc.probed() && inc.ctx.Err() == nil:
		e.era = Legacy
		return true
	case e.Factory.Shape == transports.Posts && !errors.As(cause, new(*StartTimeoutError)):
	case e.served && !(inc.era == Legacy && e.freeUsed):
		e.era = Unknown
	}
	return false
}
