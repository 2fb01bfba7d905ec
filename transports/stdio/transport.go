package stdio

import (
	"context"
	"sync/atomic"

	"github.com/respawn-mcp/respawn/transports"
)

// Transport is one incarnation of a server: one process, from its start to the
// end of its group. It is made by a [Config]'s Factory.
type Transport struct {
	conf   Config
	served atomic.Bool
	out    *outbox
	stdin  *stdin // set before the outbox opens
	burst  atomic.Int32
}

func newTransport(c Config) *Transport {
	t := &Transport{conf: c}
	var stall *stallWatch
	if c.WriteStall > 0 {
		stall = newStallWatch()
	}
	t.out = newOutbox(stall)
	return t
}

// Send queues a message in call order, or writes it at once if the pipe is idle
// and takes it; it never waits. See [transports.Transport].
func (t *Transport) Send(out transports.Outbound) error {
	direct, err := t.out.put(&out, canTry && t.burst.Load() <= 1)
	if direct {
		t.stdin.tryOnce()
	}
	return err
}

// Cancel takes a message out of the queue if nothing of it was written. See
// [transports.Transport].
func (t *Transport) Cancel(ref uint64) (unsent bool) { return t.out.cancel(ref) }

// Serve starts the server and returns when its process group is gone:
//
//   - a *ConfigError or *StartError if nothing was started (no event then);
//   - context.Cause(ctx) if told to stop and the server left when its stdin was
//     closed; if more than that was needed, an *ExitError that wraps the cause and
//     names what was killed;
//   - an *ExitError if the server ended by itself.
func (t *Transport) Serve(ctx context.Context, emit func(transports.Event)) error {
	if t.served.Swap(true) {
		return ErrServed
	}
	defer t.out.advance(shut)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	conf, err := t.conf.withDefaults()
	if err != nil {
		return err
	}
	l, err := begin(conf, t, emit)
	if err != nil {
		return err
	}
	return l.run(ctx)
}
