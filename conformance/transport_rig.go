package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/transports"
)

// rig is one incarnation under a check, and what it emitted.
type rig struct {
	patience time.Duration
	peer     TransportPeer
	tr       transports.Transport
	stop     context.CancelCauseFunc
	ctx      context.Context
	serving  bool
	returned chan struct{}
	err      error // of Serve; read after returned

	// hook, if set before serve, is called within emit.
	hook func(transports.Event)

	mu       sync.Mutex
	events   []transports.Event
	over     bool // Serve has returned
	more     chan struct{}
	problems []string
	nextRef  uint64
}

var errStop = errors.New("the check is over")

// verify runs one check and returns what is wrong with the transport.
func (c transportCheck) verify(patience time.Duration, newPeer func() TransportPeer) (problems []string, skipped string) {
	before := goleak.IgnoreCurrent()
	r := &rig{patience: patience, peer: newPeer(), returned: make(chan struct{}), more: make(chan struct{}, 1)}
	if r.peer.Close != nil {
		defer r.peer.Close()
	}
	switch {
	case r.peer.Factory.New == nil:
		return nil, fmt.Sprintf("no %s peer", c.kind)
	case c.needs == aPipe && r.peer.Factory.Shape != transports.Pipe:
		return nil, "of a Pipe"
	case c.needs == aDeath && r.peer.Kill == nil:
		return nil, "the peer has no Kill"
	}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.tr = r.peer.Factory.New()
	done := make(chan struct{})
	go func() { // of its own, so that fatal can leave it
		defer close(done)
		c.run(r)
	}()
	<-done
	r.finish(before)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems, ""
}

// finish stops the incarnation, whatever the check left of it, and looks for
// what still runs.
func (r *rig) finish(before goleak.Option) {
	r.stop(errStop)
	if r.serving && !r.within(r.returned) {
		r.errorf("Serve does not return within %v of its context's end", r.patience)
		return // what runs is known
	}
	if r.peer.Close != nil {
		r.peer.Close()
		r.peer.Close = nil
	}
	if r.peer.Left != nil {
		for _, left := range r.peer.Left() {
			r.errorf("left after Serve returned: %s", left)
		}
	}
	if err := goleak.Find(before); err != nil {
		r.errorf("left after Serve returned: %v", err)
	}
}

// serve runs Serve. The check goes on when it is ready, or has returned.
func (r *rig) serve() {
	r.serving = true
	go func() {
		defer close(r.returned)
		r.err = r.tr.Serve(r.ctx, r.emit)
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
	}()
	r.await("Ready", func(e transports.Event) bool { return e == transports.Event(transports.Ready{}) })
}

func (r *rig) emit(e transports.Event) {
	r.mu.Lock()
	if r.over {
		r.problems = append(r.problems, fmt.Sprintf("%T emitted after Serve returned", e))
	}
	r.events = append(r.events, e)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	if r.hook != nil {
		r.hook(e)
	}
}

func (r *rig) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// fatalf ends the check. It is called on the check's own goroutine.
func (r *rig) fatalf(format string, args ...any) {
	r.errorf(format, args...)
	runtime.Goexit()
}

func (r *rig) within(c <-chan struct{}) bool {
	t := time.NewTimer(r.patience)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// must bounds a call that may not block.
func (r *rig) must(what string, call func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	if !r.within(done) {
		r.fatalf("%s blocks", what)
	}
}

// await waits for an event.
func (r *rig) await(what string, ok func(transports.Event) bool) transports.Event {
	timeout := time.NewTimer(r.patience)
	defer timeout.Stop()
	for from, last := 0, false; ; {
		events := r.seen()
		for _, e := range events[from:] {
			if ok(e) {
				return e
			}
		}
		from = len(events)
		if last {
			r.fatalf("Serve returned (%v) without %s", r.err, what)
		}
		select {
		case <-r.more:
		case <-r.returned:
			last = true
		case <-timeout.C:
			r.fatalf("no %s within %v", what, r.patience)
		}
	}
}

// seen returns the events so far.
func (r *rig) seen() []transports.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// ended waits for Serve to return.
func (r *rig) ended() error {
	if !r.within(r.returned) {
		r.fatalf("Serve does not return within %v", r.patience)
	}
	return r.err
}

// request makes an attempt with a padding, whose id is its ref.
func (r *rig) request(pad int) transports.Outbound {
	r.mu.Lock()
	r.nextRef++
	ref := r.nextRef
	r.mu.Unlock()
	return transports.Outbound{
		Ref: ref, ID: fmt.Sprint(ref), Method: "check/echo",
		Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"check/echo","params":{"n":%d,"pad":"%s"}}`,
			ref, ref, strings.Repeat("x", pad)),
	}
}

func (r *rig) notification() transports.Outbound {
	out := r.request(0)
	out.ID, out.Method = "", "notifications/check"
	out.Frame = []byte(`{"jsonrpc":"2.0","method":"notifications/check"}`)
	return out
}

// send sends what must be taken.
func (r *rig) send(outs ...transports.Outbound) {
	for _, out := range outs {
		var err error
		r.must("Send", func() { err = r.tr.Send(out) })
		if err != nil {
			r.fatalf("Send: %v", err)
		}
	}
}

// answer waits for the answer to an attempt and checks it.
func (r *rig) answer(out transports.Outbound) {
	want, _ := EchoReply(out.Frame)
	start := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,`, out.ID)
	e := r.await("the answer to "+out.ID, func(e transports.Event) bool {
		m, ok := e.(transports.Message)
		return ok && strings.HasPrefix(string(m.Frame), start)
	})
	m := e.(transports.Message)
	if string(m.Frame) != string(want) {
		r.errorf("answer to %s: %.200q, want %.200q", out.ID, m.Frame, want)
	}
	wantRef := out.Ref
	if r.peer.Factory.Shape == transports.Pipe {
		wantRef = 0
	}
	if m.Ref != wantRef {
		r.errorf("answer to attempt %d names attempt %d, want %d on %s", out.Ref, m.Ref, wantRef, r.peer.Factory.Shape)
	}
}

// eventsOf returns the events that name an attempt.
func (r *rig) eventsOf(ref uint64) []transports.Event {
	var of []transports.Event
	for _, e := range r.seen() {
		if refOf(e) == ref {
			of = append(of, e)
		}
	}
	return of
}

// unsent counts the Unsent events of each attempt.
func (r *rig) unsent() map[uint64]int {
	n := map[uint64]int{}
	for _, e := range r.seen() {
		if u, ok := e.(transports.Unsent); ok {
			n[u.Ref]++
			if u.Cause == nil {
				r.errorf("Unsent of %d has no cause", u.Ref)
			}
		}
	}
	return n
}

// refOf is the attempt that an event names, 0 for none.
func refOf(e transports.Event) uint64 {
	switch e := e.(type) {
	case transports.Message:
		return e.Ref
	case transports.Sent:
		return e.Ref
	case transports.Unsent:
		return e.Ref
	case transports.Rejected:
		return e.Ref
	case transports.Opened:
		return e.Ref
	case transports.Broken:
		return e.Ref
	case transports.Alive:
		return e.Ref
	default:
		return 0
	}
}
