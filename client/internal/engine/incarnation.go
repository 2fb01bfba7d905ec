package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/respawn-mcp/respawn/transports"
)

// incarnation is one life of the peer: a transport, and what it says of itself.
type incarnation struct {
	e          *Engine
	gen        uint64
	era        Era // to try first
	ctx        context.Context
	cancel     context.CancelCauseFunc
	startTimer timer
	spared     bool          // the start's timer came late once; the loop's own
	lifeTimer  timer         // the loop's own
	misses     int           // probes in a row that nothing answered; the loop's own
	lastSign   uint64        // signs before the first of them; the loop's own
	signs      atomic.Uint64 // of life: everything that the peer says
	heard      atomic.Int64  // when the last one came, in ns since begun
	begun      time.Time
	untagged   atomic.Bool // a message came that belongs to no exchange

	retired  bool        // policy called its session gone; the loop's own
	suspects []suspect   // refusals that a probe will settle; the loop's own
	leaving  atomic.Bool // it is retired and ends when its last exchange does
	late     timer

	tr       transports.Transport // set before Ready
	ready    atomic.Bool
	returned atomic.Bool          // Serve is over; what still comes is dropped
	question atomic.Pointer[call] // the question for the era; nil: it is known
	answered atomic.Bool          // something of the opening exchange was
	speaks   atomic.Uint32
	version  atomic.Pointer[string] // of the protocol, for headers; set by the opening exchange
	servedAt time.Time              // the loop's own
	session  *Session               // set before the gate opens
	endCause error                  // set when it is settled; the table's mutex guards it

	notRestored []error // what replay could not; set before the gate opens
}

// timer is a clock.Timer that may be absent.
type timer struct{ t *clock.Timer }

func (t timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

func newIncarnation(e *Engine, gen uint64, era Era) *incarnation {
	inc := &incarnation{e: e, gen: gen, era: era, begun: e.Clock.Now()}
	inc.ctx, inc.cancel = context.WithCancelCause(context.Background())
	inc.speaks.Store(uint32(era))
	// An owner who runs the first opening waits for somebody else to begin it.
	if d := e.StartTimeout; d > 0 && (e.Open == nil || e.begun()) {
		inc.startTimer.t = e.after(d, evStartOver{inc, inc.begun.Add(d)})
	}
	return inc
}

// startOver ends an incarnation that does not serve in time. One whose machine was
// away meanwhile gets its time again.
func (e *Engine) startOver(inc *incarnation, due time.Time) {
	now := e.Clock.Now()
	switch {
	case !inc.servedAt.IsZero():
	case !inc.spared && now.Sub(due) > lateTimer:
		inc.spared = true
		inc.startTimer.t = e.after(e.StartTimeout, evStartOver{inc, now.Add(e.StartTimeout)})
	default:
		inc.cancel(&StartTimeoutError{After: e.StartTimeout})
	}
}

// serve runs the transport and posts its end, whatever the end is.
func (inc *incarnation) serve() {
	cause := inc.run()
	inc.returned.Store(true)
	inc.e.inbox.post(evEnded{inc: inc, cause: cause, at: inc.e.Clock.Now()})
}

func (inc *incarnation) run() (cause error) {
	defer func() {
		if p := recover(); p != nil {
			inc.e.panicked(p)
			cause = fmt.Errorf("the transport panicked: %v", p)
		}
	}()
	if inc.tr = inc.e.Factory.New(); inc.tr == nil {
		return errFactory
	}
	if cause = inc.tr.Serve(inc.ctx, inc.emit); cause == nil { // every end that nobody asked for is a death
		cause = errSilent
	}
	return cause
}

// emit takes one fact. It runs on the transport's goroutines and does not block.
func (inc *incarnation) emit(ev transports.Event) {
	e := inc.e
	if inc.returned.Load() {
		e.Counters.Stale.Add(1)
		return
	}
	switch ev := ev.(type) {
	case transports.Message:
		inc.hear()
		if ev.Ref != 0 {
			inc.exchange(ev)
			return
		}
		inc.untagged.Store(true)
		inc.message(ev.Frame)
	case transports.Sent:
		e.sent(ev.Ref)
	case transports.Unsent:
		if e.Factory.Shape == transports.Posts {
			e.inbox.post(evUnsent{inc, ev})
			return
		}
		e.unsent(ev.Ref)
	case transports.Rejected:
		inc.hear()
		e.inbox.post(evRejected{inc, ev})
	case transports.Broken:
		e.inbox.post(evBroken{inc, ev})
	case transports.Opened:
		e.inbox.post(evGet{inc, ev.Ref})
	case transports.Ready:
		if !inc.ready.Swap(true) {
			e.inbox.post(evReady{inc})
		}
	case transports.Alive:
		inc.hear()
		e.alive(ev.Ref)
	case transports.Diagnostic:
		inc.hear()
		e.Logger.Debug("the server wrote to stderr", "peer", e.Factory.Label, "gen", inc.gen, "line", ev.Line)
	case transports.Noise:
		inc.hear()
		if ev.ID != "" {
			e.oversized(inc, ev.ID, ev.Bytes)
		}
		e.Counters.Noise.Add(uint64(ev.Bytes))
		e.Logger.Debug("noise on the server's stdout", "peer", e.Factory.Label, "gen", inc.gen, "bytes", ev.Bytes, "sample", ev.Sample)
	}
}

// open runs the opening exchange. If that fails by what the peer said, the
// incarnation must end; if it got no answer, its end is under way already and has
// a better cause.
func (inc *incarnation) open() {
	open := inc.e.Open
	if open == nil {
		open = func(ctx context.Context, o *Opening) (*Session, error) { return o.Exchange(ctx) }
	}
	session, err := open(inc.ctx, &Opening{inc})
	if err == nil && inc.gen > 1 {
		inc.replay(inc.ctx, session.Era)
	}
	if f := new(Failure); err != nil && !(errors.As(err, &f) && f.Kind <= KindClosed) {
		inc.cancel(err)
	}
	if err != nil {
		session = nil
	}
	inc.session = session
	inc.e.inbox.post(evOpened{inc: inc, session: session})
}
