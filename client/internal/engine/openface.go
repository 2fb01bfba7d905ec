package engine

import (
	"context"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/transports"
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
	o.Speaks(s.Era)
	t := o.inc.e.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inc == o.inc {
		o.inc.e.session.Store(s)
	}
}

// Withdraw takes back what its owner posted under an id.
func (o *Opening) Withdraw(id string) { o.inc.e.Withdraw(id) }

// Notify sends a notification past the gate.
func (o *Opening) Notify(method string, frame json.RawMessage) error {
	return o.inc.tr.Send(transports.Outbound{Ref: o.inc.e.ref(), Method: method, Frame: frame})
}

// Speaks tells the engine which era the incarnation speaks, as soon as that is
// known: a modern peer's requests are not answered.
func (o *Opening) Speaks(era Era) { o.inc.speaks.Store(uint32(era)) }
