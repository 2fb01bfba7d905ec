package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

func (e *Engine) ref() uint64 { return e.refs.Add(1) }

// Do sends a request and waits for its answer, or sends a notification and waits
// until it is written. It returns a *Failure when there is none.
func (e *Engine) Do(ctx context.Context, r Request) (Reply, *Failure) {
	if ctx.Err() != nil {
		return Reply{}, &Failure{Kind: KindCaller, Method: r.Method, Outcome: NotExecuted, Cause: context.Cause(ctx)}
	}
	c := &call{Request: r, done: make(chan struct{})}
	if r.Progress != nil {
		c.news = make(chan struct{}, 1)
	}
	if f := e.admit(c); f != nil {
		f.Method, f.Outcome = r.Method, NotExecuted
		return Reply{}, f
	}
	return e.await(ctx, c)
}

// Post is Do for a request that has Over: it does not wait. A request that can't
// be taken is over at once.
func (e *Engine) Post(r Request) {
	if f := e.admit(&call{Request: r}); f != nil { // nobody waits for its done
		f.Method, f.Outcome = r.Method, NotExecuted
		r.Over(Reply{}, f)
	}
}

// Withdraw ends a posted request without telling its Over. An incarnation that has it
// is told: on a pipe by notice, its owner's own cancellation, unless that is nil or the
// peer knows the request by another id.
func (e *Engine) Withdraw(id string, notice []byte) {
	t := e.calls
	t.mu.Lock()
	c := t.owned(id)
	if c == nil || c.uncancelled {
		t.mu.Unlock()
		return
	}
	if c.Over = nil; c.id == id {
		c.notice = notice
	}
	t.mu.Unlock()
	e.drop(c, &Failure{Kind: KindCaller}, "the caller gave up")
}

// await runs the caller's side of a call that was admitted: its progress
// callbacks, in order and before the answer, and its context.
func (e *Engine) await(ctx context.Context, c *call) (Reply, *Failure) {
	for {
		select {
		case <-c.done:
			e.tellProgress(c)
			return c.reply, c.fail
		case <-c.news:
			e.tellProgress(c)
		case <-ctx.Done():
			e.drop(c, &Failure{Kind: KindCaller, Cause: context.Cause(ctx)}, "the caller gave up")
			<-c.done
			return c.reply, c.fail
		}
	}
}

func (e *Engine) tellProgress(c *call) {
	if c.news == nil {
		return
	}
	e.calls.mu.Lock()
	progress := c.progress
	c.progress = nil
	e.calls.mu.Unlock()
	for _, p := range progress {
		guard(func() { c.Progress(p) }, e.panicked)
	}
}

// admit lets a new call through the gate, parks it, or refuses it.
func (e *Engine) admit(c *call) *Failure {
	t := e.calls
	t.mu.Lock()
	e.number(c)
	if c.ID != "" && t.taken(c.ID) {
		t.mu.Unlock()
		return &Failure{Kind: KindDuplicate}
	}
	if c.Pin != 0 && c.Pin != e.machine.Snapshot().Gen {
		t.mu.Unlock()
		return &Failure{Kind: KindPinned}
	}
	use := false
	switch t.gate {
	case gateEnded:
		f := *t.terminal
		t.mu.Unlock()
		return &f
	case gateOpen:
		if c.Wait && e.reach.down.Load() { // behind the others that wait for a connection
			if !e.room(c) {
				t.mu.Unlock()
				return &Failure{Kind: KindNotServing, Cause: errHeldFull}
			}
			e.wait(c, held)
			e.startTimer(c)
			t.mu.Unlock()
			return nil
		}
		inc := t.inc
		t.give(c, inc, e.ref())
		e.startTimer(c)
		t.mu.Unlock()
		e.send(c, inc)
		return nil
	case gateDown:
		waits, needed := e.maywait(c.Wait)
		late := c.Hold > 0 && t.retryAt.Sub(e.Clock.Now()) > c.Hold // it would wait for nothing
		if use = needed; !waits || late {
			at := t.retryAt
			t.mu.Unlock()
			if use {
				e.inbox.post(evUse{})
			}
			return &Failure{Kind: KindNotServing, RetryAt: at}
		}
	}
	if !e.room(c) {
		t.mu.Unlock()
		return &Failure{Kind: KindNotServing, Cause: errHeldFull}
	}
	e.wait(c, parked)
	e.startTimer(c)
	t.mu.Unlock()
	if use {
		e.inbox.post(evUse{})
	}
	return nil
}

// maywait says what the closed gate means for somebody who comes now. A replacement
// that comes on use is needed, if its time has come, and each use waits for it. On
// Posts a recovery is short, and whoever comes meanwhile waits for it. mu of the
// table is held.
func (e *Engine) maywait(wait bool) (waits, use bool) {
	t := e.calls
	down := e.machine.State() == fsm.Dead
	due := t.onUse && !e.Clock.Now().Before(t.retryAt)
	recovering := e.Factory.Shape == transports.Posts && e.hasServed() && (!down || t.armed)
	return wait || due || recovering, down && !t.armed && (wait || due)
}

func (e *Engine) hasServed() bool {
	select {
	case <-e.up:
		return true
	default:
		return false
	}
}

// number gives a call its serial and its id. mu is held.
func (e *Engine) number(c *call) {
	e.calls.serial++
	c.serial = e.calls.serial
	if c.id = c.ID; c.id == "" {
		c.id = idText(e.FirstID + c.serial)
	}
	if c.Progress != nil {
		c.token = c.id
	}
	if e.Factory.Shape == transports.Posts {
		c.name = nameOf(c.Method, c.Params)
	}
}

// turn reports whether a call that waited for others to be sent is to be sent still.
func (e *Engine) turn(c *call) bool {
	t := e.calls
	t.mu.Lock()
	stopped := c.stopped
	c.queued = false
	switch {
	case c.phase != sending: // settled already
		t.mu.Unlock()
		return false
	case stopped == nil:
		t.mu.Unlock()
		return true
	}
	c.phase, c.unsent, c.stopped, c.lost = sent, true, nil, false
	t.mu.Unlock()
	e.drop(c, stopped, "")
	return false
}

// send hands a call, given to inc already, to its transport, and then looks at
// what happened to it meanwhile.
func (e *Engine) send(c *call, inc *incarnation) {
	ref := c.ref
	err := e.compose(c, inc)
	t := e.calls
	t.mu.Lock()
	if c.phase != sending || c.ref != ref { // settled already, or even sent again
		t.mu.Unlock()
		return
	}
	c.phase = sent
	c.unsent = c.unsent || err != nil // or an Unsent came meanwhile
	stopped, lost := c.stopped, c.lost
	c.stopped, c.lost = nil, false
	t.mu.Unlock()
	switch {
	case stopped != nil:
		e.drop(c, stopped, c.reason)
	case err == nil && !lost:
	case err == nil, errors.Is(err, transports.ErrGone):
		e.gone(c, inc, lost)
	case errors.Is(err, transports.ErrFull):
		e.drop(c, &Failure{Kind: KindFull, Cause: err}, "")
	default:
		e.drop(c, &Failure{Kind: KindInvalid, Cause: err}, "")
	}
}

// gone deals with a call whose incarnation ended around its Send. The ending is
// posted and finds the call (not lost), or it was settled while Send ran, and
// then the call is settled here.
func (e *Engine) gone(c *call, inc *incarnation, lost bool) {
	t := e.calls
	t.mu.Lock()
	cause := inc.endCause // the context of one that was settled says no more than that
	if cause == nil {
		cause = cmp.Or(context.Cause(inc.ctx), transports.ErrGone)
	}
	found := inc.endCause == nil // by the ending, which is still to be dealt with
	if c.phase != sent || !lost && found && (c.mayWait() || e.Factory.Shape == transports.Posts && t.gate != gateEnded) {
		t.mu.Unlock()
		return
	}
	f := &Failure{Kind: KindNotServing, Gen: inc.gen, Cause: cause}
	if c.opened != nil { // it is this incarnation's or nobody's
		f.Kind = KindDied
	}
	switch {
	case lost:
		f = e.keep(c, &Failure{Kind: KindDied, Gen: inc.gen, Cause: cause})
	case t.gate == gateEnded:
		f = t.terminal
	}
	next := t.inc
	again := f == nil && t.gate == gateOpen // a replacement serves by now
	if again {
		t.withdraw(c)
		t.renew(c)
		c.rest(e.Clock.Now())
		t.give(c, next, e.ref())
	}
	if f == nil && t.gate == gateEnded {
		f = t.terminal
	}
	t.mu.Unlock()
	switch {
	case again:
		e.send(c, next)
	case f != nil:
		e.drop(c, f, "")
	default:
		e.inbox.post(evUse{})
	}
}

// giveTo sends a call of the engine's own to an incarnation.
func (e *Engine) giveTo(inc *incarnation, c *call) {
	t := e.calls
	t.mu.Lock()
	if id := c.id; id == "" {
		e.number(c)
	}
	t.give(c, inc, e.ref())
	e.startTimer(c)
	t.mu.Unlock()
	e.send(c, inc)
}

// compose writes the frame for this incarnation and sends it.
func (e *Engine) compose(c *call, inc *incarnation) error {
	id := c.id
	if c.Notify {
		id = ""
	}
	var meta []byte
	if !c.Notify && inc.session != nil { // a notification may come while the opening exchange sets it
		meta = inc.session.meta
		if level := e.state.level.Load(); level != nil && inc.session.Era == Modern {
			meta = appendField(meta[:len(meta):len(meta)], metaLogLevel, *level)
		}
	}
	out := transports.Outbound{Ref: c.ref, ID: id, Method: c.Method, Name: c.name, Header: c.Header, Frame: c.Frame}
	if e.Factory.Shape == transports.Posts {
		out.Header = e.header(c, inc)
		c.epoch = e.evidence.now()
		c.granted = c.Method == methodCallTool && e.evidence.grants(c.name) && c.plain()
	}
	if c.Frame != nil {
		if c.ID != "" && c.ID != id && !c.Notify {
			var env Envelope
			if err := Parse(c.Frame, &env); err != nil {
				return err
			}
			out.Frame = Splice(c.Frame, env.ID, id)
		}
		return inc.tr.Send(out)
	}
	frame, err := appendFrame(make([]byte, 0, len(c.Params)+len(meta)+128), id, c.Method, c.Params, meta, c.token)
	if err != nil {
		return err
	}
	out.Frame = frame
	return inc.tr.Send(out)
}
