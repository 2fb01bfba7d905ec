package conformance

import (
	"slices"
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
	for _, pad := range []int{0, 100, 100, 100, 4 << 10, 64<<10 - 100, 64 << 10, 64 << 10, 1 << 20} {
		out := r.request(pad)
		r.send(out)
		r.answer(out)
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
