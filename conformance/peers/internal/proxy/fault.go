package proxy

import "time"

// Fault breaks one exchange, then it is used up.
type Fault struct {
	// When says which exchange; the first that it is true of.
	When func(Exchange) bool
	// Request breaks the request's bytes; false: the response's.
	Request bool
	// At is how many bytes pass before; fewer where the message is shorter. -1 is
	// all of it: whatever the peer sends after its message is not passed on.
	At int
	// Do is what happens then.
	Do Deed
	// For is how long a Delay lasts.
	For time.Duration
	// Done is closed once it happened.
	Done chan struct{}
}

// Deed is what a Fault does.
type Deed uint8

// What a Fault can do.
const (
	Reset Deed = iota // end both connections abruptly
	End               // end both as if the peer had finished: the message is truncated
	Hold              // pass nothing more on, and keep the client's connection open: a black hole
	Delay             // pass the rest on later
)

// String names the deed.
func (d Deed) String() string {
	return [...]string{"reset", "end", "hold", "delay"}[d]
}

// Break arms a fault and returns it.
func (p *Proxy) Break(f Fault) *Fault {
	f.Done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &f)
	return &f
}
