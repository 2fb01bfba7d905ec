package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/respawn-mcp/respawn/transports"
)

func checkStop(r *rig) {
	r.serve()
	cause := errors.New("the cause")
	r.stop(cause)
	if err := r.ended(); !errors.Is(err, cause) {
		r.errorf("Serve returned %v, want its context's cause", err)
	}
}

func checkStopSilent(r *rig) {
	r.serve()
	r.send(r.request(0), r.notification(), r.request(100_000))
	r.stop(errStop)
	if err := r.ended(); !errors.Is(err, errStop) {
		r.errorf("Serve returned %v, want its context's cause", err)
	}
}

func checkStopWhileEmitWaits(r *rig) {
	waiting := make(chan struct{})
	var once sync.Once
	r.hook = func(e transports.Event) {
		if _, ok := e.(transports.Message); ok {
			once.Do(func() { close(waiting) })
			<-r.ctx.Done()
		}
	}
	r.serve()
	for range 20 {
		r.send(r.request(100))
	}
	if !r.within(waiting) {
		r.fatalf("no answer")
	}
	r.send(r.request(100)) // Send does not wait for emit
	r.stop(errStop)
	if err := r.ended(); !errors.Is(err, errStop) {
		r.errorf("Serve returned %v, want its context's cause", err)
	}
}

func checkStopBefore(r *rig) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the cause")
	cancel(cause)
	r.must("Serve with a context that is over", func() {
		if err := r.tr.Serve(ctx, r.emit); !errors.Is(err, cause) {
			r.errorf("Serve returned %v, want its context's cause", err)
		}
	})
	if events := r.seen(); len(events) > 0 && events[0] != transports.Event(transports.Ready{}) {
		r.errorf("the first event is %#v", events[0])
	}
}

func checkGone(r *rig) {
	r.must("Send before Serve", func() { _ = r.tr.Send(r.request(0)) })
	r.serve()
	r.stop(errStop)
	r.ended()
	out := r.request(0)
	var err error
	r.must("Send after Serve", func() { err = r.tr.Send(out) })
	if !errors.Is(err, transports.ErrGone) {
		r.errorf("Send after Serve returned %v, want ErrGone", err)
	}
	r.must("Cancel after Serve", func() { r.tr.Cancel(out.Ref) })
	if got := r.eventsOf(out.Ref); len(got) > 0 {
		r.errorf("an attempt that was not taken has the events %v", got)
	}
}

func checkDeath(r *rig) {
	r.serve()
	out := r.request(0)
	r.send(out)
	r.answer(out)
	r.peer.Kill()
	if err := r.ended(); err == nil {
		r.errorf("Serve returned nil, want the cause of death")
	}
	var err error
	r.must("Send after a death", func() { err = r.tr.Send(r.request(0)) })
	if !errors.Is(err, transports.ErrGone) {
		r.errorf("Send after a death returned %v, want ErrGone", err)
	}
}

func checkDeathUnderLoad(r *rig) {
	r.serve()
	warm := r.request(0)
	r.send(warm)
	r.answer(warm)
	var running sync.WaitGroup
	var mu sync.Mutex
	taken := map[uint64]bool{}
	for range 4 {
		running.Go(func() {
			for {
				out := r.request(1000)
				err := r.tr.Send(out)
				if errors.Is(err, transports.ErrGone) {
					return
				}
				if err != nil && !errors.Is(err, transports.ErrFull) {
					r.errorf("Send: %v", err)
					return
				}
				if err == nil {
					mu.Lock()
					taken[out.Ref] = true
					mu.Unlock()
				}
			}
		})
	}
	r.peer.Kill()
	r.ended()
	r.must("Send around a death", running.Wait)
	named := map[uint64]int{}
	for _, e := range r.seen() {
		named[refOf(e)]++
	}
	for ref := range r.unsent() {
		if !taken[ref] {
			r.errorf("Unsent for attempt %d, which was not taken", ref)
		}
		if named[ref] > 1 {
			r.errorf("attempt %d is Unsent and has the events %v", ref, r.eventsOf(ref))
		}
	}
}

// checkAbsent: where starting is what fails, Serve returns the error; where there
// is nothing to start, the attempt is what fails.
func checkAbsent(r *rig) {
	r.serving = true
	go func() {
		defer close(r.returned)
		r.err = r.tr.Serve(r.ctx, r.emit)
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
	}()
	if r.peer.Factory.Shape == transports.Pipe {
		if err := r.ended(); err == nil {
			r.errorf("Serve returned nil for a peer that can't be started")
		}
		return
	}
	r.await("Ready", func(e transports.Event) bool { return e == transports.Event(transports.Ready{}) })
	out := r.request(0)
	r.send(out)
	r.await("Unsent", func(e transports.Event) bool {
		u, ok := e.(transports.Unsent)
		return ok && u.Ref == out.Ref && u.Cause != nil
	})
}
