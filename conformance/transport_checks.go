package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/respawn-mcp/respawn/transports"
)

var transportChecks = []transportCheck{
	{"Ready comes first", PeerEcho, anyShape, checkReadyFirst},
	{"a factory starts nothing and gives each incarnation its own transport", PeerEcho, anyShape, checkFactory},
	{"requests are answered", PeerEcho, anyShape, checkAnswers},
	{"a received frame is the receiver's, a sent one the sender's", PeerEcho, anyShape, checkFrames},
	{"a pipe keeps the order of Send", PeerEcho, aPipe, checkOrder},
	{"many senders at once", PeerEcho, anyShape, checkConcurrent},
	{"Sent follows a notification, and nothing else does", PeerEcho, anyShape, checkSent},
	{"Send does not wait for a peer that reads nothing, and a queue ends", PeerDeaf, aPipe, checkFull},
	{"Cancel takes back what was not written", PeerDeaf, aPipe, checkCancelUnsent},
	{"Cancel of what was written, or never sent, is false", PeerEcho, anyShape, checkCancelWritten},
	{"no event follows a Cancel", PeerEcho, anyShape, checkCancelRace},
	{"what was not begun is Unsent before Serve returns", PeerDeaf, aPipe, checkUnsent},
	{"Serve returns the cause of its context", PeerEcho, anyShape, checkStop},
	{"Serve stops under a silent peer with requests in flight", PeerSilent, anyShape, checkStopSilent},
	{"Serve stops while emit waits for its context", PeerEcho, anyShape, checkStopWhileEmitWaits},
	{"Serve with a context that is over returns its cause", PeerEcho, anyShape, checkStopBefore},
	{"Send is refused once Serve returned, and does not wait before Serve", PeerEcho, anyShape, checkGone},
	{"a peer that dies ends Serve with an error", PeerEcho, aDeath, checkDeath},
	{"each attempt of a death is accounted for", PeerEcho, aDeath, checkDeathUnderLoad},
	{"a peer that is not there", PeerAbsent, anyShape, checkAbsent},
}

func checkReadyFirst(r *rig) {
	r.serve()
	if first := r.seen()[0]; first != transports.Event(transports.Ready{}) {
		r.errorf("the first event is %#v", first)
	}
	out := r.request(0)
	r.send(out)
	r.answer(out)
	ready := 0
	for _, e := range r.seen() {
		if e == transports.Event(transports.Ready{}) {
			ready++
		}
	}
	if ready != 1 {
		r.errorf("%d Ready events", ready)
	}
}

func checkFactory(r *rig) {
	if other := r.peer.Factory.New(); other == nil || other == r.tr {
		r.errorf("New returned %v again, or nil", other)
	}
	if r.peer.Left != nil && len(r.peer.Left()) > 0 {
		r.errorf("New started %v", r.peer.Left())
	}
	if len(r.seen()) > 0 {
		r.errorf("New emitted %v", r.seen())
	}
}

func checkAnswers(r *rig) {
	r.serve()
	// One after the other, and with sizes around those of pipes and buffers.
	for _, pad := range []int{0, 100, 4 << 10, 64<<10 - 100, 64 << 10, 1 << 20} {
		for range 3 {
			out := r.request(pad)
			r.send(out)
			r.answer(out)
		}
	}
}

func checkFrames(r *rig) {
	r.serve()
	var outs []transports.Outbound
	for range 50 {
		out := r.request(50)
		outs = append(outs, out)
		kept := slices.Clone(out.Frame)
		r.send(out)
		r.answer(out)
		if string(out.Frame) != string(kept) {
			r.errorf("the frame of attempt %d was changed after Send: %q", out.Ref, out.Frame)
		}
	}
	// Nobody else writes into a frame that was emitted, nor may a receiver that
	// appends to its frame write into another's.
	var frames [][]byte
	for _, e := range r.seen() {
		if m, ok := e.(transports.Message); ok {
			frames = append(frames, m.Frame)
		}
	}
	for i, out := range outs {
		if want, _ := EchoReply(out.Frame); string(frames[i]) != string(want) {
			r.fatalf("the answer to attempt %d changed after it was emitted, or shares memory with an earlier one: %q", out.Ref, frames[i])
		}
		clear(frames[i][:cap(frames[i])])
	}
	out := r.request(50)
	r.send(out)
	r.answer(out)
}

func checkOrder(r *rig) {
	r.serve()
	var outs []transports.Outbound
	for i := range 500 {
		outs = append(outs, r.request(i%7*1000))
	}
	r.send(outs...)
	r.answer(outs[len(outs)-1])
	var got []string
	for _, e := range r.seen() {
		if m, ok := e.(transports.Message); ok {
			got = append(got, string(m.Frame))
		}
	}
	for i, out := range outs {
		want, _ := EchoReply(out.Frame)
		if i >= len(got) || got[i] != string(want) {
			r.fatalf("answer %d is not that to request %d: frames arrived or left out of order", i, out.Ref)
		}
	}
}

func checkConcurrent(r *rig) {
	const senders, each = 16, 25
	r.serve()
	var running sync.WaitGroup
	var mu sync.Mutex
	var outs []transports.Outbound
	for range senders {
		running.Go(func() {
			for range each {
				out := r.request(200)
				if err := r.tr.Send(out); err != nil {
					r.errorf("Send: %v", err)
					return
				}
				mu.Lock()
				outs = append(outs, out)
				mu.Unlock()
			}
		})
	}
	r.must("Send from several goroutines", running.Wait)
	for _, out := range outs {
		r.answer(out)
	}
	answers := 0
	for _, e := range r.seen() {
		if _, ok := e.(transports.Message); ok {
			answers++
		}
	}
	if answers != senders*each {
		r.errorf("%d answers to %d requests", answers, senders*each)
	}
}

func checkSent(r *rig) {
	r.serve()
	request, first, second := r.request(0), r.notification(), r.notification()
	r.send(request, first, second)
	r.await("Sent", func(e transports.Event) bool { return e == transports.Event(transports.Sent{Ref: second.Ref}) })
	r.await("Sent", func(e transports.Event) bool { return e == transports.Event(transports.Sent{Ref: first.Ref}) })
	r.answer(request)
	for _, out := range []transports.Outbound{first, second} {
		if got := r.eventsOf(out.Ref); len(got) != 1 {
			r.errorf("a notification has the events %v, want one Sent", got)
		}
	}
	for _, e := range r.eventsOf(request.Ref) {
		if _, ok := e.(transports.Sent); ok {
			r.errorf("a request has a Sent: its answer is what tells")
		}
	}
}

// beyondBuffers is more than any buffer on the way to a deaf peer takes at once,
// so that what is queued behind such a frame is not begun.
const beyondBuffers = 16 << 20

func checkFull(r *rig) {
	r.serve()
	out := r.request(1 << 20)
	taken := 0
	for ; ; taken += len(out.Frame) {
		out.Ref++ // the frame may be the same: nobody reads it
		var err error
		r.must("Send", func() { err = r.tr.Send(out) })
		if errors.Is(err, transports.ErrFull) {
			break
		}
		if err != nil {
			r.fatalf("Send: %v", err)
		}
		if taken > transports.MaxQueued+beyondBuffers {
			r.fatalf("%d bytes were taken without ErrFull, and the peer reads nothing", taken)
		}
	}
	if taken < transports.MaxQueued-len(out.Frame) {
		r.errorf("ErrFull after %d bytes, %d may be queued", taken, transports.MaxQueued)
	}
	r.stop(errStop)
	r.ended()
	if n := r.unsent()[out.Ref]; n != 0 {
		r.errorf("an attempt that was not taken is Unsent")
	}
}

func checkCancelUnsent(r *rig) {
	r.serve()
	head, gone, kept := r.request(beyondBuffers), r.request(0), r.request(0)
	r.send(head, gone, kept)
	var unsent bool
	r.must("Cancel", func() { unsent = r.tr.Cancel(gone.Ref) })
	if !unsent {
		r.errorf("Cancel of an attempt that was not begun returned false")
	}
	r.stop(errStop)
	r.ended()
	n := r.unsent()
	if n[gone.Ref] != 0 {
		r.errorf("a cancelled attempt has an Unsent")
	}
	if n[kept.Ref] != 1 {
		r.errorf("the attempt behind a cancelled one has %d Unsent, want 1", n[kept.Ref])
	}
}

func checkCancelWritten(r *rig) {
	r.serve()
	out := r.request(0)
	r.send(out)
	r.answer(out)
	if r.tr.Cancel(out.Ref) {
		r.errorf("Cancel of an answered attempt says that nothing was written")
	}
	if never := r.request(0); r.tr.Cancel(never.Ref) {
		r.errorf("Cancel of an attempt that was never sent is true")
	}
}

func checkCancelRace(r *rig) {
	r.serve()
	var running sync.WaitGroup
	cancelled := make([][]transports.Outbound, 8)
	for i := range cancelled {
		running.Go(func() {
			for range 50 {
				out := r.request(2000)
				if err := r.tr.Send(out); err != nil {
					r.errorf("Send: %v", err)
					return
				}
				if r.tr.Cancel(out.Ref) {
					cancelled[i] = append(cancelled[i], out)
				}
			}
		})
	}
	r.must("Send or Cancel", running.Wait)
	last := r.request(0)
	r.send(last)
	r.answer(last)
	r.stop(errStop)
	r.ended()
	for _, out := range slices.Concat(cancelled...) {
		start := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,`, out.ID)
		for _, e := range r.seen() {
			m, ok := e.(transports.Message)
			if refOf(e) == out.Ref || ok && strings.HasPrefix(string(m.Frame), start) {
				r.errorf("%T for attempt %s, whose Cancel said that nothing was and will be written", e, out.ID)
			}
		}
	}
}

func checkUnsent(r *rig) {
	r.serve()
	outs := []transports.Outbound{r.request(beyondBuffers)}
	for range 20 {
		outs = append(outs, r.request(10), r.notification())
	}
	r.send(outs...)
	r.stop(errStop)
	r.ended()
	n := r.unsent()
	for _, out := range outs[1:] {
		if n[out.Ref] != 1 {
			r.errorf("attempt %d, which was not begun, has %d Unsent, want 1", out.Ref, n[out.Ref])
		}
	}
	for _, e := range r.seen() {
		if _, ok := e.(transports.Sent); ok {
			r.errorf("%#v, and nothing was read", e)
		}
	}
}

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
