package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/respawn-mcp/respawn/transports"
)

// beyondBuffers is more than any buffer on the way to a deaf peer takes at once,
// so that what is queued behind such a frame is not begun.
const beyondBuffers = 8 << 20

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
