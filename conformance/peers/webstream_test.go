//go:build linux

package peers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proxy"
)

// TestServerEverythingResumesAStreamAsOftenAsItBreaks breaks the stream of one
// long call, and the stream that resumes it. The server replays what was missed
// when it is asked, and says on that stream nothing else until it is asked again.
func TestServerEverythingResumesAStreamAsOftenAsItBreaks(t *testing.T) {
	var everything webPeer
	for _, p := range webPeers() {
		if p.everything {
			everything = p
		}
	}
	for _, do := range []proxy.Deed{proxy.Reset, proxy.End} {
		t.Run(do.String(), func(t *testing.T) {
			r := rigWeb(t, everything, client.Config{})
			long := func(x proxy.Exchange) bool { return x.Tool() == "trigger-long-running-operation" }
			resume := func(x proxy.Exchange) bool { return x.Verb == "GET" && x.LastID != "" }
			// Behind the headers (some 400 bytes) and the event that has only an id,
			// within the first progress.
			first := r.proxy.Break(proxy.Fault{When: long, At: 600, Do: do})
			second := r.proxy.Break(proxy.Fault{When: resume, At: 500, Do: do})
			var heard []float64
			_, err := r.Do(t.Context(), client.Request{
				Method:   "tools/call",
				Params:   map[string]any{"name": "trigger-long-running-operation", "arguments": map[string]any{"duration": 2, "steps": 4}},
				Progress: func(p client.Progress) { heard = append(heard, p.Progress) },
			})
			if err != nil {
				t.Fatal(err)
			}
			<-first.Done
			<-second.Done
			if want := []float64{1, 2, 3, 4}; !cmp.Equal(want, slices.Compact(heard)) {
				t.Errorf("progress %v, want %v", heard, want)
			}
			if got := r.proxy.Count(long); got != 1 {
				t.Errorf("the call was sent %d times", got)
			}
			if got := r.proxy.Count(resume); got < 2 {
				t.Errorf("%d resumes, want 2 or more", got)
			}
			r.checkSessions(t, 1) // none was lost
		})
	}
}

// TestHTTPPeersAreHeardAgainAfterEveryConnectionWasCut resets what is open of a
// client that waits: the stream of notifications, and idle connections.
func TestHTTPPeersAreHeardAgainAfterEveryConnectionWasCut(t *testing.T) {
	for _, p := range webPeers() {
		t.Run(p.name, func(t *testing.T) {
			r := rigWeb(t, p, client.Config{})
			heard := r.listen(t)
			heard.again(t)
			for range 2 {
				streams := r.streams()
				r.proxy.Cut()
				_, err := r.proxy.Await(t.Context(), func(proxy.Exchange) bool { return r.streams() > streams })
				if err != nil {
					t.Fatal(err)
				}
				heard.again(t)
			}
			r.checkSessions(t, 1) // none was lost
		})
	}
}

// streams is how many streams of notifications were opened.
func (r *webRig) streams() int {
	return r.proxy.Count(func(x proxy.Exchange) bool {
		return (x.Verb == "GET" || x.Method == "subscriptions/listen") && x.Status == 200
	})
}
