package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// Engine drives one peer. Its methods are safe for concurrent use.
type Engine struct {
	Options
	Counters Counters

	inbox   *inbox
	calls   *table
	tell    dispatcher
	refs    atomic.Uint64
	up      chan struct{} // closed when something has served
	done    chan struct{} // closed when the loop has ended
	session atomic.Pointer[Session]
	agreed  atomic.Bool // an owner that runs the opening itself has had its answer, which the loop may not know yet
	state   state

	evidence evidence   // what the peer says of its tools
	endMu    sync.Mutex // serializes the step to closed after the loop has ended

	watchMu sync.Mutex
	changed chan struct{} // closed and replaced at each change of state
	err     error         // why nothing will follow

	// The loop's own.
	machine  *fsm.Machine
	cur      *incarnation // the live or last one
	running  int          // Serves and openings that have not ended
	ledger   policy.Ledger
	restarts int
	served   bool // something has served
	freeUsed bool // the one free ending of a first start is spent
	era      Era  // to try first
	draining bool
	drain    timer
	respawn  timer
	dueAt    time.Time // earliest time of the promised spawn
	endedAt  time.Time // of the last ending
	endCause error
	refusal  error     // why the last session that served is gone
	streams  []*Stream // not over
	get      *getStream
	reach    reach // while no connection can be made

	allStreams atomic.Pointer[[]*Stream] // the same, for the transport's goroutines
}

// What the inbox carries. Each is posted exactly once for what it names.
type (
	evOpened struct { // the opening exchange is over; no session: it failed
		inc     *incarnation
		session *Session
	}
	evReady struct{ inc *incarnation } // the transport takes messages
	evEnded struct {                   // Serve returned
		inc   *incarnation
		cause error
		at    time.Time
	}
	evStartOver struct { // it should serve by now
		inc *incarnation
		due time.Time
	}
	evDue     struct{ gen uint64 }
	evUse     struct{} // somebody waits
	evClose   struct{}
	evDrained struct{} // no call is in flight any more, or the bound is over
)

// New builds an engine that does nothing yet.
func New(o Options) *Engine {
	e := &Engine{
		Options: o, inbox: newInbox(), calls: newTable(o.FirstID),
		up: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
	}
	if e.StreamBackoff == (policy.Backoff{}) {
		e.StreamBackoff = streamBackoff
	}
	e.calls.renames = o.Factory.Shape == transports.Posts
	e.tell.panicky = e.panicked
	e.setStreams(nil)
	return e
}

// streamBackoff is before each new try at what a peer that is not known to be dead
// refused, broke or was not there for. A wait of nothing would be a storm.
var streamBackoff = policy.Backoff{Base: 250 * time.Millisecond, Factor: 2, Cap: 30 * time.Second}

// Start spawns the first incarnation and returns at once.
func (e *Engine) Start() {
	var first []fsm.Action
	e.machine, first = fsm.New(fsm.Lifecycle)
	go func() {
		e.perform(step{do: first})
		for !e.over() {
			for _, ev := range e.inbox.take() {
				e.handle(ev)
			}
		}
		e.drain.stop()
		close(e.done)
	}()
}

// over reports that nothing runs and nothing will.
func (e *Engine) over() bool { return e.machine.State().Terminal() && e.running == 0 }

// Up is closed when the first incarnation serves.
func (e *Engine) Up() <-chan struct{} { return e.up }

// Done is closed when nothing runs any more and nothing will follow.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why nothing will follow, nil before that is known.
func (e *Engine) Err() error {
	e.watchMu.Lock()
	defer e.watchMu.Unlock()
	return e.err
}

// State returns the peer's state.
func (e *Engine) State() fsm.State { return e.machine.State() }

// Session returns what the last incarnation that served said of itself.
func (e *Engine) Session() *Session { return e.session.Load() }

// WaitForStateChange waits until the state is not from, and reports whether that
// happened before ctx ended.
func (e *Engine) WaitForStateChange(ctx context.Context, from fsm.State) bool {
	for {
		e.watchMu.Lock()
		changed := e.changed
		e.watchMu.Unlock()
		if e.machine.State() != from {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Close refuses new calls, lets calls in flight finish for DrainTimeout, and ends
// the peer. It returns when nothing runs any more or ctx ends; the stop goes on.
func (e *Engine) Close(ctx context.Context) error {
	e.shut(&Failure{Kind: KindClosed, Cause: ErrClosed})
	e.inbox.post(evClose{})
	select {
	case <-e.done:
	case <-ctx.Done():
		select {
		case <-e.done: // there is nothing to wait for, so ctx has no say
		default:
			return context.Cause(ctx)
		}
	}
	// An exhausted peer has no loop left to step it.
	e.endMu.Lock()
	defer e.endMu.Unlock()
	if e.machine.State() == fsm.Exhausted {
		e.step(fsm.Input{Event: fsm.Close}, step{})
	}
	return nil
}

// shut refuses new calls with f, unless they are refused for good already.
func (e *Engine) shut(f *Failure) {
	e.calls.mu.Lock()
	defer e.calls.mu.Unlock()
	if e.calls.gate != gateEnded {
		e.calls.gate, e.calls.terminal = gateEnded, f
	}
}

func (e *Engine) handle(ev any) {
	switch ev := ev.(type) {
	case evOpened:
		e.running--
		if ev.session != nil {
			e.opened(ev)
		}
	case evReady:
		e.running++
		go ev.inc.open()
	case evEnded:
		e.running--
		if ev.inc.retired {
			e.retiredEnded(ev)
			return
		}
		e.ended(ev)
	case evRejected:
		e.rejected(ev.inc, ev.Rejected)
	case evBroken:
		e.broken(ev.inc, ev.Broken)
	case evUnsent:
		e.unreachable(ev.inc, ev.Unsent)
	case evResume:
		e.resume(ev)
	case evVerified:
		e.verified(ev)
	case evRelisted:
		e.relisted(ev)
	case evRetire:
		e.retireNow(ev.inc, ev.late)
	case evStartGet:
		e.startedGet(ev)
	case evGet:
		e.getOpened(ev.inc, ev.ref)
	case evGetPoll:
		e.pollGet(ev)
	case evGetDue:
		e.getDue(ev.g)
	case evReach:
		e.tryReach()
	case evReached:
		e.reached(ev.c)
	case evStartOver:
		e.startOver(ev.inc, ev.due)
	case evDue:
		e.step(fsm.Input{Event: fsm.Due, Gen: ev.gen}, step{})
	case evUse:
		e.use()
	case evClose:
		e.close()
	case evListen:
		e.listen(ev.s)
		close(ev.handed)
	case evAcked:
		e.ackedStream(ev.s)
	case evStreamOver:
		e.streamOver(ev.s, ev.c)
	case evUnsubscribed:
		e.unsubscribed(ev.uri)
	case evKept:
		e.Post(Request{Method: ev.c.Method, Params: ev.c.Params, Wait: true, Idle: e.RequestTimeout, Over: func(Reply, *Failure) {}})
	case evStreamDue:
		e.streamDue(ev.s, ev.gen)
	case evStreamClose:
		if ev.byPeer {
			e.endStream(ev.s, nil, "")
			return
		}
		e.closeStream(ev.s, ev.err)
	case evWatch:
		e.checkLife(ev.inc)
	case evProbed:
		e.probed(ev.inc, ev.c)
	case evDrained:
		if e.draining && e.machine.State() == fsm.Serving {
			e.step(fsm.Input{Event: fsm.Close}, step{})
		}
	}
}

// step asks the machine, and performs what it answers.
func (e *Engine) step(in fsm.Input, s step) {
	tr, err := e.machine.Step(in)
	if err != nil {
		e.Counters.Illegal.Add(1)
		e.Logger.Error("illegal lifecycle event", "peer", e.Factory.Label, "err", err)
		return
	}
	if tr.Why == "" { // stale
		e.Counters.Stale.Add(1)
		return
	}
	moved := tr.From != tr.To
	if moved && e.OnTransition != nil { // before what its actions tell
		e.tell.do(func() { e.OnTransition(tr) })
	}
	s.do = tr.Do
	e.perform(s)
	if moved {
		e.wakeWatchers()
	}
}

// wakeWatchers tells WaitForStateChange, once all that follows from a change is
// done.
func (e *Engine) wakeWatchers() {
	e.watchMu.Lock()
	defer e.watchMu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// opened turns a successful opening exchange into an event. The gate is set first:
// whoever sees the state serving must not be refused.
func (e *Engine) opened(ev evOpened) {
	if now := e.machine.Snapshot(); now == (fsm.Snapshot{State: fsm.Starting, Gen: ev.inc.gen}) {
		e.calls.opening()
	}
	e.step(fsm.Input{Event: fsm.Up, Gen: ev.inc.gen}, step{inc: ev.inc, session: ev.session})
}

// ended turns the return of a Serve into an event.
func (e *Engine) ended(ev evEnded) {
	inc := ev.inc
	inc.startTimer.stop()
	inc.lifeTimer.stop()
	if e.draining && e.machine.State() == fsm.Serving {
		e.step(fsm.Input{Event: fsm.Close}, step{inc: inc, cause: ev.cause})
	}
	if e.machine.State() == fsm.Closed {
		if ev.cause != context.Cause(inc.ctx) { // it had to be killed, or died first
			e.log(slog.LevelWarn, "the server did not leave as it was asked to", "gen", inc.gen, "cause", ev.cause)
		}
		e.step(fsm.Input{Event: fsm.Spent, Gen: inc.gen}, step{})
		return
	}
	s := step{inc: inc, cause: ev.cause, at: ev.at}
	if !inc.servedAt.IsZero() {
		s.uptime = ev.at.Sub(inc.servedAt)
	}
	event := fsm.Lost
	if s.verdict = e.verdict(inc, s); !s.verdict.Respawn {
		event = fsm.Spent
	}
	if e.endedAt, e.endCause = ev.at, ev.cause; !inc.servedAt.IsZero() {
		e.refusal = ev.cause
	}
	if inc.servedAt.IsZero() { // a session that served is followed by another at once, as the client must
		s.verdict.Delay = max(s.verdict.Delay, wishOf(ev.cause, ev.at))
	}
	e.step(fsm.Input{Event: event, Gen: inc.gen}, s)
}

func (e *Engine) close() {
	switch e.machine.State() {
	case fsm.Serving:
		if e.draining {
			return
		}
		e.draining = true
		if e.calls.drain() || e.DrainTimeout <= 0 {
			e.handle(evDrained{})
			return
		}
		e.drain.t = e.after(e.DrainTimeout, evDrained{})
	case fsm.Closed:
	default:
		e.step(fsm.Input{Event: fsm.Close}, step{})
	}
}

// after posts ev when d is over. A delay of zero needs no timer, and a mocked
// clock never fires one.
func (e *Engine) after(d time.Duration, ev any) *clock.Timer {
	if d <= 0 {
		e.inbox.post(ev)
		return nil
	}
	return e.Clock.AfterFunc(d, func() { e.inbox.post(ev) })
}

func (e *Engine) panicked(p any) {
	e.Counters.Panics.Add(1)
	e.Logger.Error("a callback panicked", "peer", e.Factory.Label, "panic", p)
}

func (e *Engine) log(level slog.Level, msg string, args ...any) {
	e.Logger.Log(context.Background(), level, msg, append([]any{"peer", e.Factory.Label}, args...)...)
}

// terminal is the failure that whatever is pending ends with.
func (e *Engine) terminal(s step) *Failure {
	switch {
	case e.machine.State() == fsm.Closed:
		return &Failure{Kind: KindClosed, Cause: ErrClosed}
	case !e.begun():
		return &Failure{Kind: KindDied, Cause: s.cause}
	default:
		return &Failure{Kind: KindExhausted, Restarts: e.restarts, Cause: s.cause}
	}
}

// alarm returns a channel that closes when d is over (never, if d is not
// positive), and what releases it.
func (e *Engine) alarm(d time.Duration) (<-chan struct{}, func()) {
	ring := make(chan struct{})
	if d <= 0 {
		return ring, func() {}
	}
	t := e.Clock.AfterFunc(d, func() { close(ring) })
	return ring, func() { t.Stop() }
}
