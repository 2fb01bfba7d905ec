package engine

import (
	"context"

	"github.com/respawn-mcp/respawn/fsm"
)

// Opening is an incarnation whose opening exchange runs, for an owner that runs it
// itself.
type Opening struct{ inc *incarnation }

// Gen is the incarnation's generation.
func (o *Opening) Gen() uint64 { return o.inc.gen }

// Exchange runs the engine's own exchange, from Options.Hello.
func (o *Opening) Exchange(ctx context.Context) (*Session, error) {
	return o.inc.openingExchange(ctx)
}

// Ask makes a request past the gate and waits for its answer, the peer's error
// included.
func (o *Opening) Ask(ctx context.Context, r Request) (Reply, error) {
	r.uncancelled = true
	c := &call{Request: r, id: r.ID, opened: o.inc, done: make(chan struct{})}
	o.inc.e.giveTo(o.inc, c)
	reply, fail := o.inc.e.await(ctx, c)
	if fail != nil {
		return Reply{}, fail
	}
	return reply, nil
}

// Post is Ask for a request that has Over: it does not wait. An initialize is never
// cancelled on the wire (2025-11-25, cancellation).
func (o *Opening) Post(r Request) {
	r.uncancelled = r.Method == methodInitialize
	o.inc.e.giveTo(o.inc, &call{Request: r, id: r.ID, opened: o.inc, done: make(chan struct{})})
}

// Renew notes that the owner has opened an incarnation, or opened it anew.
func (o *Opening) Renew(s *Session) {
	o.Speaks(s.Era, s.Version)
	o.inc.e.agreed.Store(true)
	if o.inc.e.machine.Snapshot() == (fsm.Snapshot{State: fsm.Serving, Gen: o.inc.gen}) { // else it is announced with it
		o.inc.e.session.Store(s)
	}
}

// Withdraw takes back what its owner posted under an id.
func (o *Opening) Withdraw(id string) { o.inc.e.Withdraw(id, nil) }

// Notify sends a notification past the gate and waits until it is accepted.
func (o *Opening) Notify(ctx context.Context, method string) error {
	return o.inc.accepted(ctx, method)
}

// StartGet opens the standalone stream of a legacy session over HTTP.
func (o *Opening) StartGet(ctx context.Context) { o.inc.startGet(ctx) }

// StartGet opens that of the incarnation that serves, whose opening its owner ran.
func (e *Engine) StartGet() {
	e.inbox.post(evStartGet{nil, make(chan struct{}), make(chan struct{})})
}

// Speaks tells the engine which era and version the incarnation speaks, as soon as
// that is known: a modern peer's requests are not answered.
func (o *Opening) Speaks(era Era, version string) { o.inc.speak(era, version) }
