package engine

import (
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

// suspect is a refusal that may mean that the session is gone.
type suspect struct {
	c  *call
	ev transports.Rejected
}

// suspect joins a refusal to those that one probe on the same session settles: a
// ping, or in the modern era a server/discover.
func (e *Engine) suspect(inc *incarnation, s suspect) {
	inc.suspects = append(inc.suspects, s)
	if len(inc.suspects) > 1 {
		return
	}
	r := Request{Method: "ping", Idle: e.ProbeTimeout}
	if Era(inc.speaks.Load()) == Modern {
		r.Method, r.Params = methodDiscover, inc.discoverParams(inc.version)
	}
	c := &call{Request: r, probe: true, done: make(chan struct{})}
	c.then = evVerified{inc, c}
	e.giveTo(inc, c)
}

// verified settles the suspicions about an incarnation.
func (e *Engine) verified(ev evVerified) {
	inc, suspects := ev.inc, ev.inc.suspects
	inc.suspects = nil
	modern := Era(inc.speaks.Load()) == Modern
	gone := inc.retired || e.judgeProbe(ev.c, modern).Signal == policy.Gone
	if gone && modern {
		e.era = Unknown
	}
	for _, s := range suspects {
		switch {
		case s.c == nil: // the standalone GET
		case gone:
			e.refused(inc, s.c, s.ev)
		case !e.headerMismatch(inc, s.c, s.ev):
			e.refuse(s.c, s.ev)
		}
	}
	if gone && len(suspects) > 0 {
		ev := suspects[0].ev
		e.sessionGone(inc, &RejectedError{Status: ev.Status, Header: ev.Header, Body: clip(ev.Body), Cause: ev.Cause})
	}
}

func (e *Engine) judgeProbe(c *call, modern bool) policy.Judgement {
	p := policy.Probe{ID: c.id}
	switch r := new(RejectedError); {
	case c.fail == nil:
		if p.Status, p.Body = c.reply.Status, c.reply.Frame; p.Status == 0 {
			p.Status = 200
		}
	case errors.As(c.fail, &r):
		p.Status, p.Body = r.Status, r.Body
	}
	if modern {
		return policy.JudgeDiscover(p)
	}
	return policy.JudgePing(p)
}

// sessionGone ends an incarnation by policy's verdict on a refusal, while its
// Serve still runs.
func (e *Engine) sessionGone(inc *incarnation, cause error) {
	if inc.retired || e.cur != inc || e.machine.State() != fsm.Serving {
		return
	}
	inc.retired = true
	e.ended(evEnded{inc: inc, cause: cause, at: e.Clock.Now()})
}

// retireTime is how long exchanges that somebody waits for keep a retired
// incarnation.
const retireTime = 30 * time.Second

// retire takes an incarnation out of service: no new message goes to it, and it
// ends when the last exchange that somebody waits for is over.
func (e *Engine) retire(inc *incarnation) {
	inc.leaving.Store(true)
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
	if e.machine.State() == fsm.Closed { // steps in closed say what ended, and move nothing
		e.log(slog.LevelDebug, "a retired session is over", "gen", ev.inc.gen)
	}
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
	case waiting && open:
		e.resend(inc, held)
	case waiting:
		e.use()
	}
}
