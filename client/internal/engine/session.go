package engine

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// What the inbox carries about sessions.
type (
	evVerified struct { // the probe that settles suspicions is over
		inc *incarnation
		c   *call
	}
	evRetire struct { // a retired incarnation may have nothing left to do
		inc  *incarnation
		late bool // its time is over
	}
)

// suspect is a refusal that may mean that the session is gone. c is nil where it
// is one of the standalone GET.
type suspect struct {
	c        *call
	ev       transports.Rejected
	answered bool // it may be the answer, too: the call is not sent again
}

// isAnswer reports whether its call ends with it. A stream is opened again in any
// case.
func (s suspect) isAnswer() bool { return s.answered && s.c != nil && s.c.stream == nil }

// suspect joins a refusal to those that one probe on the same session settles: a
// ping, or in the modern era a server/discover.
func (e *Engine) suspect(inc *incarnation, s suspect) {
	inc.suspects = append(inc.suspects, s)
	if len(inc.suspects) > 1 {
		return
	}
	r := Request{Method: methodPing, Idle: cmp.Or(e.ProbeTimeout, e.RequestTimeout)}
	if Era(inc.speaks.Load()) == Modern {
		r.Method, r.Params = methodDiscover, inc.discoverParams(inc.agreed())
	}
	c := &call{Request: r, probe: true, done: make(chan struct{})}
	c.then = evVerified{inc, c}
	e.giveTo(inc, c)
}

const methodPing = "ping"

// verified settles the suspicions about an incarnation by the answer to the probe.
func (e *Engine) verified(ev evVerified) {
	inc, suspects := ev.inc, ev.inc.suspects
	if len(suspects) == 0 { // settled without it
		return
	}
	modern := Era(inc.speaks.Load()) == Modern
	if e.judgeProbe(ev.c, modern).Signal == policy.Gone {
		if modern {
			e.era = Unknown
		}
		e.sessionGone(inc, suspects[0].ev)
		return
	}
	inc.suspects = nil
	for _, s := range suspects {
		if s.c != nil && !e.headerMismatch(inc, s.c, s.ev) {
			e.refuse(s.c, s.ev)
		}
	}
}

// convict settles the refusals of an incarnation whose session is gone.
func (e *Engine) convict(inc *incarnation) {
	suspects := inc.suspects
	inc.suspects = nil
	for _, s := range suspects {
		switch {
		case s.c == nil:
		case s.isAnswer():
			e.refuse(s.c, s.ev)
		default:
			e.refused(inc, s.c, s.ev)
		}
	}
}

// settleAnswered ends the calls of an incarnation whose answer is at hand, and
// waits for what a probe says of the session only.
func (e *Engine) settleAnswered(inc *incarnation) {
	for _, s := range inc.suspects {
		if s.isAnswer() {
			e.refuse(s.c, s.ev)
		}
	}
}

func (e *Engine) judgeProbe(c *call, modern bool) policy.Judgement {
	p := policy.Probe{ID: c.id}
	switch r := new(RejectedError); {
	case c.fail == nil:
		p.Status, p.Body = cmp.Or(c.reply.Status, 200), c.reply.Frame
	case errors.As(c.fail, &r):
		p.Status, p.Body, p.Uncredentialed = r.Status, r.Body, uncredentialed(r.Status, r.Cause)
	}
	if modern {
		return policy.JudgeDiscover(p)
	}
	return policy.JudgePing(p)
}

// sessionGone ends an incarnation by policy's verdict on a refusal, while its
// Serve still runs. Those whose refusals it settles hear of them when the ending
// is performed: whoever then calls again finds the session gone.
func (e *Engine) sessionGone(inc *incarnation, ev transports.Rejected) {
	if !inc.retired && e.cur == inc && e.machine.State() == fsm.Serving {
		inc.retired = true
		e.spare(inc)
		e.ended(evEnded{inc: inc, cause: rejection(ev).Cause, at: e.Clock.Now()})
	}
	e.convict(inc)
}

// spare notes that what the peer refused did not run, whatever ends it.
func (e *Engine) spare(inc *incarnation) {
	e.calls.mu.Lock()
	defer e.calls.mu.Unlock()
	for _, s := range inc.suspects {
		if s.c != nil && !s.answered {
			s.c.unsent = true
		}
	}
}

// retireTime is how long exchanges that somebody waits for keep a retired
// incarnation.
const retireTime = 30 * time.Second

// retire takes an incarnation out of service: no new message goes to it, and it
// ends when the last exchange that somebody waits for is over. The rest of a
// stream that broke can't be asked for any more.
func (e *Engine) retire(inc *incarnation) {
	t := e.calls
	t.mu.Lock()
	inc.leaving.Store(true)
	calls := t.given(inc)
	t.mu.Unlock()
	for _, c := range calls {
		t.mu.Lock()
		switch {
		case c.stream != nil: // the stream is opened again, and this is nobody's any more
			t.mu.Unlock()
			e.drop(c, &Failure{Kind: KindSession, Gen: inc.gen, Cause: transports.ErrRetired}, "")
		case c.adrift && c.phase == sent:
			e.cut(inc, c, &Failure{Kind: KindBroken, Gen: inc.gen, Cause: transports.ErrRetired}, false)
		default:
			t.mu.Unlock()
		}
	}
	inc.late.t = e.after(retireTime, evRetire{inc, true})
	e.retireNow(inc, false)
}

func (e *Engine) retireNow(inc *incarnation, late bool) {
	t := e.calls
	t.mu.Lock()
	left := len(t.given(inc))
	t.mu.Unlock()
	if late || left == 0 {
		inc.late.stop()
		inc.cancel(transports.ErrRetired)
	}
}

// retiredEnded takes the return of a retired incarnation's Serve. It was reported
// when it was retired; what it still had is lost now.
func (e *Engine) retiredEnded(ev evEnded) {
	ev.inc.late.stop()
	e.log(slog.LevelDebug, "a retired session is over", "gen", ev.inc.gen)
	e.settleCalls(ev.inc, ev.cause)
	e.useWaiting()
}

// useWaiting is a use if anything waits.
func (e *Engine) useWaiting() {
	t := e.calls
	t.mu.Lock()
	waiting := len(t.waits) > 0
	open, inc := t.gate == gateOpen, t.inc
	t.mu.Unlock()
	switch {
	case waiting && !open:
		e.use()
	case waiting && !e.reach.down.Load():
		e.resend(inc, held)
	}
}
