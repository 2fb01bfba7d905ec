package engine

import (
	"log/slog"
	"sync"
)

// inbox is the loop's queue. It is unbounded so that posting never blocks, which
// is what lets a transport's goroutine, a timer and a callback all post freely;
// what can be posted is bounded by incarnations, timers and calls.
type inbox struct {
	mu    sync.Mutex
	items []any
	wake  chan struct{} // holds one token while items may be non-empty
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) post(ev any) {
	b.mu.Lock()
	b.items = append(b.items, ev)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []any {
	<-b.wake
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// dispatcher runs callbacks in order, on a goroutine that exists only while there
// are any: an idle client costs none, and nothing has to wait for its end.
type dispatcher struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	full    bool      // the last that was offered was not taken
	panicky func(any) // told of a panic; the next callback runs all the same
}

func (d *dispatcher) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(f)
}

// offer is do unless so many wait already, and reports whether it was, or whether
// it is the first that was not since.
func (d *dispatcher) offer(f func()) (taken, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) >= maxOffered {
		first, d.full = !d.full, true
		return false, first
	}
	d.full = false
	d.add(f)
	return true, false
}

// add queues a callback. mu is held.
func (d *dispatcher) add(f func()) {
	d.queue = append(d.queue, f)
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.running = false
			d.mu.Unlock()
			return
		}
		f := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		guard(f, d.panicky)
	}
}

// guard runs f and hands a panic to told.
func guard(f func(), told func(any)) {
	defer func() {
		if p := recover(); p != nil {
			told(p)
		}
	}()
	f()
}

// Tell runs a callback of the owner after those before it.
func (e *Engine) Tell(f func()) { e.tell.do(f) }

// maxOffered is how many callbacks may wait before the peer's chatter is dropped: more
// than a burst, and bounded.
const maxOffered = 8 << 10

// Offer is Tell for what the peer says unasked, as often as it likes: it is dropped
// and counted while too many callbacks wait.
func (e *Engine) Offer(f func()) {
	taken, first := e.tell.offer(f)
	if taken {
		return
	}
	e.Counters.Untold.Add(1)
	if first {
		e.log(slog.LevelWarn, "the server says more than the callbacks can take, and some of it is dropped", "waiting", maxOffered)
	}
}
