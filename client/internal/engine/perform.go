package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// step is what the actions of one transition need to know.
type step struct {
	do      []fsm.Action
	inc     *incarnation // of an ending, or of an up
	cause   error
	at      time.Time
	uptime  time.Duration
	verdict policy.Verdict
	session *Session
}

// perform does what the table asks for, in its order.
func (e *Engine) perform(s step) {
	for _, a := range s.do {
		switch a {
		case fsm.Spawn:
			e.spawn()
		case fsm.Announce:
			e.announce(s)
		case fsm.Settle:
			e.settle(s)
		case fsm.Stop:
			if s.inc == nil && e.Factory.Shape == transports.Pipe && !e.cur.servedAt.IsZero() {
				defer e.stop(s) // what is only queued is taken back first, while it is known to be
				continue
			}
			e.stop(s)
		case fsm.Report:
			e.report(s)
		case fsm.Arm:
			e.arm(s)
		case fsm.Disarm:
			e.disarm()
		case fsm.Fail:
			e.fail(s)
		}
	}
}

func (e *Engine) spawn() {
	e.calls.starting()
	e.cur = newIncarnation(e, e.machine.Snapshot().Gen, e.era)
	e.running++
	go e.cur.serve()
}

// stop ends an incarnation: the one that ended, whose context is released, or
// the live one, which is told to.
func (e *Engine) stop(s step) {
	inc := s.inc
	if inc == nil {
		inc = e.cur
	}
	if inc.retired && s.cause != nil {
		e.retire(inc)
		return
	}
	inc.cancel(ErrClosed)
}

func (e *Engine) report(s step) {
	state := e.machine.State()
	if state != fsm.Closed && !e.begun() && !s.verdict.Respawn {
		return // the first start's failure is Connect's error and nothing else
	}
	ended := Ended{Gen: e.cur.gen, Cause: s.cause, Uptime: s.uptime, Verdict: s.verdict, Restarts: e.restarts}
	switch {
	case state == fsm.Closed:
		if ended.Withdrawn = e.withdrawn(s); ended.Withdrawn {
			ended.Gen = e.machine.Snapshot().Gen
		}
		if ended.Cause == nil {
			ended.Cause = ErrClosed
		}
		if t := e.cur.servedAt; !ended.Withdrawn && !t.IsZero() {
			ended.Uptime = e.Clock.Now().Sub(t)
		}
		e.log(slog.LevelDebug, "closed", "gen", ended.Gen)
	case !e.begun(): // the one free ending of a first start, which is no fault
		e.log(slog.LevelInfo, "the server is started again", "cause", s.cause, "why", s.verdict.Why)
	case s.verdict.Parked:
		e.log(slog.LevelWarn, "the server went away and is tried again when it is needed", "gen", ended.Gen, "cause", s.cause,
			"uptime", s.uptime, "restarts", e.restarts, "budget", s.verdict.Why, "delay", s.verdict.Delay)
	case s.verdict.Respawn:
		e.log(slog.LevelWarn, "the server went away and is started again", "gen", ended.Gen, "cause", s.cause,
			"uptime", s.uptime, "attempt", e.restarts, "budget", s.verdict.Why, "delay", s.verdict.Delay)
	default:
		e.log(slog.LevelError, "the server went away and is not started again", "gen", ended.Gen, "cause", s.cause,
			"uptime", s.uptime, "restarts", e.restarts, "budget", s.verdict.Why)
	}
	if e.OnEnd != nil {
		e.tell.do(func() { e.OnEnd(ended) })
	}
}

// withdrawn reports whether this close took a promise back rather than ended an
// incarnation: then the last incarnation's generation has passed.
func (e *Engine) withdrawn(s step) bool {
	return s.inc == nil && e.machine.Snapshot().Gen > e.cur.gen
}

// arm starts the timer of the promised replacement; one that comes on use waits
// for somebody who needs it. Requests that the ending left waiting are a use, and
// so are streams: whoever listens waits for what the server has to say.
func (e *Engine) arm(s step) {
	e.dueAt = s.at.Add(s.verdict.Delay)
	t := e.calls
	t.mu.Lock()
	t.retryAt = e.dueAt
	t.armed = !s.verdict.OnUse || len(t.waits) > 0 || len(e.streams) > 0
	armed := t.armed
	t.mu.Unlock()
	if armed {
		e.respawn.t = e.after(s.verdict.Delay, evDue{e.machine.Snapshot().Gen})
	}
}

// use starts the timer of a replacement that waited for somebody to need it.
func (e *Engine) use() {
	t := e.calls
	t.mu.Lock()
	first := e.machine.State() == fsm.Dead && !t.armed
	t.armed = t.armed || first
	t.mu.Unlock()
	if first {
		e.respawn.t = e.after(e.dueAt.Sub(e.Clock.Now()), evDue{e.machine.Snapshot().Gen})
	}
}

func (e *Engine) disarm() {
	e.respawn.stop()
}

// settle decides about each request that the ended incarnation had.
func (e *Engine) settle(s step) {
	t := e.calls
	t.mu.Lock()
	if t.gate != gateEnded {
		t.gate, t.inc = gateDown, nil
	}
	// Callers that this wakes may be back before arm has run.
	t.retryAt, t.onUse, t.armed = s.at.Add(s.verdict.Delay), s.verdict.OnUse, !s.verdict.OnUse
	t.mu.Unlock()
	e.loseStreams()
	e.closeGet()
	if s.inc.retired { // a session that is gone: exchanges that still run may end well
		return
	}
	e.settleCalls(s.inc, s.cause)
	if e.Factory.Shape == transports.Posts && s.inc.servedAt.IsZero() {
		e.failWaiters(s)
	}
}

// settleCalls decides about each request that an incarnation had whose Serve is
// over.
func (e *Engine) settleCalls(inc *incarnation, cause error) {
	e.settleAnswered(inc)
	t := e.calls
	t.mu.Lock()
	inc.endCause = cause
	calls := t.given(inc)
	failed := make([]*Failure, len(calls))
	for i, c := range calls {
		if c.phase == sending { // its sender knows soon whether anything was taken
			c.lost = true
			continue
		}
		failed[i] = e.keep(c, &Failure{Kind: KindDied, Gen: inc.gen, Cause: cause})
	}
	t.mu.Unlock()
	for i, c := range calls {
		if failed[i] != nil {
			e.drop(c, failed[i], "")
		}
	}
}

// failWaiters ends what waited for a session that could not be had: only calls
// that may wait for a peer wait for another try.
func (e *Engine) failWaiters(s step) {
	t := e.calls
	t.mu.Lock()
	var losers []*call
	for _, c := range t.waits {
		if !c.Wait {
			losers = append(losers, c)
		}
	}
	t.mu.Unlock()
	sortCalls(losers)
	for _, c := range losers {
		e.drop(c, &Failure{Kind: KindSession, Gen: s.inc.gen, Cause: &NoSessionError{e.refusal, s.cause}}, "")
	}
}

// room reports whether one more call may wait. mu is held.
func (e *Engine) room(c *call) bool {
	return len(e.calls.waits) < e.MaxHeld && e.calls.queued+c.size() <= e.MaxHeldBytes
}

// fail ends whatever is pending with the terminal failure.
func (e *Engine) fail(s step) {
	f := e.terminal(s)
	e.watchMu.Lock()
	e.err = f
	e.watchMu.Unlock()
	t := e.calls
	t.mu.Lock()
	t.gate, t.inc, t.terminal = gateEnded, nil, f
	t.mu.Unlock()
	e.settleAnswered(e.cur)
	t.mu.Lock()
	calls := append([]*call(nil), t.waits...)
	for _, c := range t.byRef {
		calls = append(calls, c)
	}
	sortCalls(calls)
	t.mu.Unlock()
	e.closeGet()
	e.unreach(true)
	for _, s := range e.streams {
		e.closeStream(s, f)
	}
	for _, c := range calls {
		e.drop(c, f, "")
	}
}

// announce tells everybody that an incarnation serves, in this order: who it is,
// requests kept for it, those that waited, and then the gate is open.
func (e *Engine) announce(s step) {
	first := !e.served
	s.inc.startTimer.stop()
	s.inc.servedAt = e.Clock.Now()
	e.served, e.era = true, s.session.Era
	before := e.session.Swap(s.session)
	e.evidence.renew()
	e.Face.Serves(s.inc.gen, first)
	e.watch(s.inc)
	if e.Open == nil { // another owner says when its session is ready for one
		e.openGet(s.inc)
	}
	e.unreach(true)
	retried := e.resend(s.inc, held)
	reopened := e.reopenStreams()
	e.resend(s.inc, parked)
	if first {
		close(e.up)
		return
	}
	r := Reconnect{
		Generation: s.inc.gen, Cause: e.endCause, Downtime: s.inc.servedAt.Sub(e.endedAt),
		Retried: retried, Reopened: reopened, Changed: s.session.differs(before), Lost: s.inc.notRestored,
	}
	e.log(slog.LevelInfo, "the server serves again", "gen", r.Generation, "downtime", r.Downtime,
		"retried", r.Retried, "changed", fmt.Sprint(r.Changed))
	if e.OnReconnect != nil {
		e.tell.do(func() { e.OnReconnect(r) })
	}
}

// resend sends what waits in a phase, until nothing does; after the parked ones
// the gate is open. It reports how many the peer may have seen before.
func (e *Engine) resend(inc *incarnation, p phase) (retried int) {
	t := e.calls
	for {
		t.mu.Lock()
		calls := t.release(p, inc, e.Clock.Now(), e.ref)
		for _, c := range calls {
			if c.wrote {
				retried++
			}
		}
		t.mu.Unlock()
		if len(calls) == 0 {
			return retried
		}
		for _, c := range calls {
			if e.turn(c) {
				e.send(c, inc)
			}
		}
	}
}
