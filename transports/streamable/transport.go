package streamable

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// Transport is one incarnation of a server: one session of the legacy era, or as
// long as the engine wants of the modern one. It is made by a [Config]'s Factory.
type Transport struct {
	s      *shared
	served atomic.Bool
	emit   func(transports.Event) // set before open
	ctx    context.Context        // of the exchanges; set before open
	cancel context.CancelFunc
	ready  chan struct{} // closed once Ready was emitted: nothing comes before it
	queued atomic.Int64  // bytes of frames that no connection has taken

	mu      sync.Mutex
	open    bool
	live    map[uint64]*exchange
	running sync.WaitGroup

	issued  string // the session id in force
	shown   string // one that an initialize answer showed and has not put in force
	version string // the legacy version of the last message, for DELETE
}

func newTransport(s *shared) *Transport {
	return &Transport{s: s, live: map[uint64]*exchange{}, ready: make(chan struct{})}
}

// Send starts an exchange and does not wait for it. A *HeaderError or
// ErrNoStream says that the message can't be sent, ever. See
// [transports.Transport].
func (t *Transport) Send(out transports.Outbound) error {
	if t.s.err != nil {
		return transports.ErrGone
	}
	h, err := t.s.headers(&out)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return transports.ErrGone
	}
	if n := t.queued.Load(); n > 0 && n+int64(len(out.Frame)) > transports.MaxQueued {
		return transports.ErrFull
	}
	if v := out.Header.Get(headerVersion); v != "" && v < firstModern && out.Method != methodInitialize {
		t.version = v
	}
	if old := t.live[out.Ref]; old != nil && out.Op != transports.OpMessage {
		// A stream that is open and silent is asked for again. What it brought
		// meanwhile is not to come twice.
		old.quit()
		if id := old.seen.Load(); id != nil && *id != "" {
			out.LastID, h[headerLastID] = *id, []string{*id}
		}
	}
	x := newExchange(t, out, h)
	x.queue()
	t.live[out.Ref] = x
	t.running.Go(x.run)
	return nil
}

// Cancel closes the exchange of an attempt, which is what cancels it in the
// modern era (2026-07-28, Cancellation). See [transports.Transport].
func (t *Transport) Cancel(ref uint64) (unsent bool) {
	t.mu.Lock()
	x := t.live[ref]
	delete(t.live, ref)
	t.mu.Unlock()
	return x != nil && x.quit() && x.out.Op == transports.OpMessage
}

// Serve takes messages until ctx is done and returns its cause, or a *ConfigError
// at once. Then each exchange is closed; of those of which nothing was sent, an
// Unsent says so. An initialize under way gets Config.OpeningWait to show its
// session id, and the session is ended by a DELETE, bounded by Config.DeleteWait
// (2025-11-25, Session Management), unless the cause is transports.ErrRetired.
func (t *Transport) Serve(ctx context.Context, emit func(transports.Event)) error {
	switch {
	case t.served.Swap(true):
		return ErrServed
	case t.s.err != nil:
		return t.s.err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	t.s.begin()
	defer t.s.end()
	t.emit = emit
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.mu.Lock()
	t.open = true
	t.mu.Unlock()
	emit(transports.Ready{})
	close(t.ready)
	<-ctx.Done()
	cause := context.Cause(ctx)
	retired := errors.Is(cause, transports.ErrRetired)
	t.stop(cause, retired)
	if !retired {
		t.endSession()
	}
	return cause
}

// stop ends all exchanges and waits until they have.
func (t *Transport) stop(cause error, retired bool) {
	t.mu.Lock()
	t.open = false
	left := t.live
	t.live = map[uint64]*exchange{}
	t.mu.Unlock()
	var opening []*exchange
	for _, x := range left {
		if x.answered != nil && !retired && x.mute(cause) {
			opening = append(opening, x)
		} else {
			x.stop(cause)
		}
	}
	if len(opening) > 0 {
		t.awaitOpening(opening)
	}
	t.cancel() // those too that have their answer and read on
	t.running.Wait()
}

// awaitOpening gives initializes under way time to show their sessions.
func (t *Transport) awaitOpening(opening []*exchange) {
	late := time.NewTimer(t.s.conf.OpeningWait)
	defer late.Stop()
	for _, x := range opening {
		select {
		case <-x.answered:
		case <-late.C:
			return
		}
	}
}

// endSession deletes the session. Whatever the server says to that, it is over
// for us.
func (t *Transport) endSession() {
	t.mu.Lock()
	t.issued = cmp.Or(t.issued, t.shown)
	id, version := t.issued, t.version
	t.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.s.conf.DeleteWait)
	defer cancel()
	h := t.s.base.Clone()
	if version != "" {
		h[headerVersion] = []string{version}
	}
	r := &request{t: t, method: http.MethodDelete, header: h}
	if resp, _, err := r.do(ctx); err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, int64(t.s.conf.MaxRefusal)))
		cancel() // before Close, which would wait on HTTP/2
		resp.Body.Close()
	}
}

// session is the session id in force, "" if there is none.
func (t *Transport) session() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.issued
}

// show notes the session id of an answer to initialize that is not known to be
// a success yet.
func (t *Transport) show(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown = id
}

// opened puts that id in force, or forgets it if the answer was no success
// (2025-11-25, Session Management, 1: the response containing the InitializeResult).
func (t *Transport) opened(success bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if success {
		t.issued = t.shown
	}
	t.shown = ""
}

// forget removes an exchange that is about to say how it ended. It reports
// whether anybody still wants to hear that.
func (t *Transport) forget(x *exchange) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[x.out.Ref] != x {
		return false
	}
	delete(t.live, x.out.Ref)
	return true
}
