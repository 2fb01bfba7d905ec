package engine

import (
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// loss is what the retry rules may know of one attempt that ended without an
// answer. mu is held.
func (e *Engine) loss(c *call, kind policy.Kind) policy.Loss {
	l := policy.Loss{
		Kind: kind, Method: c.Method, Opening: c.opened != nil,
		Era: policy.Legacy, Shape: policy.Pipe,
		MayWait: c.mayWait(), RetryLost: e.RetryLost,
		Resent: c.resent, Deaths: c.deaths, MaxDeaths: e.MaxDeaths,
		DistrustAnnotations: e.Distrust,
		Evidence:            c.granted && e.evidence.grants(c.name),
		Resumable:           c.resumable(),
	}
	if e.Factory.Shape == transports.Posts {
		l.Shape = policy.Posts
	}
	if c.inc != nil && Era(c.inc.speaks.Load()) == Modern {
		l.Era = policy.Modern
	}
	l.Continuation, l.Cursor = traits(c.Params)
	return l
}

// keep asks policy about one attempt that its incarnation's end cut off and, if it
// is to be sent again, puts the call among those that wait. Otherwise it returns
// the failure to end it with. mu is held.
func (e *Engine) keep(c *call, f *Failure) *Failure {
	if c.probe || c.stream != nil { // the next incarnation is asked anew
		return f
	}
	kind := policy.Died
	if c.unsent {
		kind = policy.Unsent
	}
	l := e.loss(c, kind)
	l.MayWait = l.MayWait || l.Shape == policy.Posts // a recovery runs, and over HTTP calls wait for it
	if !c.unsent {                                   // what it never reached it did not kill
		c.deaths++
	}
	if c.Pin != 0 {
		return &Failure{Kind: KindPinned, Gen: f.Gen, Cause: f.Cause}
	}
	return e.retain(c, e.Rules.Decide(l).Action, f)
}

// retain carries out the decision to send a call again on a later incarnation, or
// returns the failure to end it with. mu is held.
func (e *Engine) retain(c *call, do policy.Action, f *Failure) *Failure {
	if !resends(do) {
		return f
	}
	if !e.room(c) {
		return &Failure{Kind: KindNotServing, Gen: f.Gen, Cause: errHeldFull}
	}
	e.part(c, do)
	e.wait(c, held)
	return nil
}

func resends(do policy.Action) bool {
	return do == policy.Hold || do == policy.ResendSameID || do == policy.ResendNewID
}

// part takes a call from the attempt that is over, to be sent again. mu is held.
func (e *Engine) part(c *call, do policy.Action) {
	e.calls.withdraw(c)
	c.wrote = c.wrote || !c.unsent
	c.renew = c.renew || do == policy.ResendNewID
	if c.inc != nil && c.inc.leaving.Load() {
		e.inbox.post(evRetire{inc: c.inc})
	}
}
