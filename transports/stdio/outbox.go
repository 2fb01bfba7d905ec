package stdio

import (
	"slices"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// outbox is the queue of frames on their way to the server's stdin, in the order
// of the Sends. Its head may be begun: off bytes of it are in the pipe, and the
// rest will follow or the incarnation ends. Whoever holds the busy flag owns the
// descriptor: the writer goroutine, or a Send that found the pipe idle. Nobody
// waits for the pipe while holding mu.
type outbox struct {
	mu      sync.Mutex
	phase   phase
	busy    bool
	parked  bool // the writer waits until the pipe takes more
	queue   []item
	off     int // bytes written of queue[0], its newline included
	claimed int // items at the head that a write under way may be carrying
	bytes   int // what is still to be written of all items
	sent    []uint64
	wake    chan struct{} // the writer has something to do
	settled chan struct{} // closed once phase is shut and nobody is busy

	scratch []byte // the frames of one write, joined; owned with busy

	stall *stallWatch // nil without Config.WriteStall
}

type phase uint8

const (
	closed phase = iota // before Ready
	open
	flushing // told to stop: what the pipe takes at once is still written
	shut     // the end is known: no further byte
)

type item struct {
	ref       uint64
	frame     []byte
	id        string // "" for what is owed a Sent
	method    string
	cancelled bool // no event for it follows
}

func (i *item) size() int { return len(i.frame) + 1 }

// batch is the most that one write joins: what an empty pipe takes at once
// (Linux: 64 KiB).
const batch = 64 << 10

func newOutbox(stall *stallWatch) *outbox {
	return &outbox{wake: make(chan struct{}, 1), settled: make(chan struct{}), stall: stall}
}

// put takes a message over. direct says that the caller now owns the descriptor
// and should try one write.
func (o *outbox) put(out *transports.Outbound, mayWrite bool) (direct bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.phase != open {
		return false, transports.ErrGone
	}
	size := len(out.Frame) + 1
	if o.bytes > 0 && o.bytes+size > transports.MaxQueued {
		return false, transports.ErrFull
	}
	o.queue = append(o.queue, item{ref: out.Ref, frame: out.Frame, id: out.ID, method: out.Method})
	o.bytes += size
	if o.busy {
		return false, nil
	}
	if mayWrite && len(o.queue) == 1 && out.ID != "" {
		o.busy = true
		return true, nil
	}
	o.poke()
	return false, nil
}

// poke wakes the writer; a token that is there already does.
func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// cancel ends interest in ref and reports whether it was still whole in the queue.
func (o *outbox) cancel(ref uint64) (unsent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stall != nil {
		o.stall.forget(ref, time.Now())
	}
	for i := range o.queue {
		if o.queue[i].ref != ref {
			continue
		}
		if i < o.claimed || i == 0 && o.off > 0 {
			o.queue[i].cancelled = true
			return false
		}
		o.bytes -= o.queue[i].size()
		o.queue = slices.Delete(o.queue, i, i+1)
		if o.stall != nil && len(o.queue) == 0 {
			o.stall.moved(false, time.Time{})
		}
		return true
	}
	if i := slices.Index(o.sent, ref); i >= 0 {
		o.sent = slices.Delete(o.sent, i, i+1)
	}
	return false
}

// compose claims and returns the bytes of the next write: the rest of a long
// frame as it is, else as many frames as fit a batch, joined. It returns nil if
// there is nothing to write.
func (o *outbox) compose() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed, o.parked = 0, false
	if o.phase == shut || len(o.queue) == 0 {
		return nil
	}
	head := &o.queue[0]
	if rest := head.size() - o.off; rest > batch {
		// The end stays back for a joined write, so that the newline does not
		// cost the server a wake-up of its own.
		const back = 1 << 10
		o.claimed = 1
		return head.frame[o.off : len(head.frame)-back]
	}
	o.scratch = o.scratch[:0]
	for i := range o.queue {
		f, off := o.queue[i].frame, 0
		if i == 0 {
			off = o.off
		}
		if i > 0 && len(o.scratch)+len(f)+1 > batch {
			break
		}
		if off < len(f) {
			o.scratch = append(o.scratch, f[off:]...)
		}
		o.scratch = append(o.scratch, '\n')
		o.claimed = i + 1
	}
	return o.scratch
}

// wrote accounts for n bytes that the pipe took, and reports whether a Sent is due.
func (o *outbox) wrote(n int) (due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed = 0
	o.bytes -= n
	n += o.off
	done := 0
	for done < len(o.queue) && n >= o.queue[done].size() {
		it := &o.queue[done]
		n -= it.size()
		if it.id == "" && !it.cancelled {
			o.sent = append(o.sent, it.ref)
		}
		if o.stall != nil {
			o.stall.began(it)
		}
		done++
	}
	o.off = n
	o.drop(done)
	if o.stall != nil {
		o.stall.moved(o.off > 0, time.Now())
	}
	return len(o.sent) > 0
}

// drop removes the first n items without moving the rest more than once on
// average, and lets go of their frames.
func (o *outbox) drop(n int) {
	clear(o.queue[:n])
	if n == len(o.queue) {
		o.queue = o.queue[:0]
		return
	}
	o.queue = o.queue[n:]
}

// release gives the descriptor back.
func (o *outbox) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	o.claimed = 0
	if len(o.queue) > 0 || len(o.sent) > 0 {
		o.poke()
	}
	o.settleLocked()
}

// acquire takes the descriptor for the writer, if there is something to write
// and nobody has it.
func (o *outbox) acquire() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy || len(o.queue) == 0 || o.phase == shut {
		return false
	}
	o.busy = true
	return true
}

// park says that the pipe takes no more for now. giveUp means that the writer
// must not wait for it: the stop has begun and no frame has.
func (o *outbox) park() (giveUp bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claimed = 0
	if o.phase == shut || o.phase == flushing && o.off == 0 {
		return true
	}
	o.parked = true
	if o.stall != nil {
		o.stall.moved(true, time.Time{})
	}
	return false
}

// advance moves to a later phase, in which Sends are refused, and returns the
// phase then. There is nothing to flush into a pipe that takes no more.
func (o *outbox) advance(p phase) phase {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p == flushing && o.parked && o.off == 0 {
		p = shut
	}
	if p > o.phase {
		o.phase = p
		o.poke()
		o.settleLocked()
	}
	return o.phase
}

func (o *outbox) settleLocked() {
	if o.phase != shut || o.busy {
		return
	}
	select {
	case <-o.settled:
	default:
		close(o.settled)
	}
}

// state is the phase, and whether the queue is empty.
func (o *outbox) state() (p phase, empty bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.phase, len(o.queue) == 0
}

// takeSent returns one attempt whose Sent is due.
func (o *outbox) takeSent() (ref uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.sent) == 0 {
		return 0, false
	}
	ref = o.sent[0]
	o.sent = o.sent[1:]
	return ref, true
}

// takeUnsent returns one attempt of which nothing was written. It is called when
// settled is closed; one at a time, so that a Cancel in between still counts.
func (o *outbox) takeUnsent() (ref uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 {
		it, begun := o.queue[0], o.off > 0
		o.off = 0
		o.drop(1)
		if !begun && !it.cancelled {
			return it.ref, true
		}
	}
	o.bytes = 0
	return 0, false
}
