package engine

import "sync"

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
	panicky func(any) // told of a panic; the next callback runs all the same
}

func (d *dispatcher) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
