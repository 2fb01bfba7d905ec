//go:build linux

package peers

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proxy"
)

// callers is how many callers a server is killed under.
const callers = 20

// made is a call that was made, and what its tool knows of it.
type made struct {
	name  string
	later bool // it was made after the restart
	err   error
}

// TestHTTPPeersThatAreKilledUnderLoadComeBackOnTheSamePort kills each real server
// under concurrent calls of a tool that counts its executions.
func TestHTTPPeersThatAreKilledUnderLoadComeBackOnTheSamePort(t *testing.T) {
	for _, p := range webPeers() {
		t.Run(p.name, func(t *testing.T) {
			r := rigWeb(t, p, client.Config{WaitForReady: true, Cache: true})
			heard := r.listen(t)
			heard.again(t)
			before := r.toolNames(t)
			dir := t.TempDir()
			calls := r.killUnderLoad(t, dir, "later")

			want := slices.Clone(before)
			if !p.everything {
				want = append(want, "later")
			}
			slices.Sort(want)
			heard.again(t)
			if diff := cmp.Diff(want, slices.DeleteFunc(slices.Sorted(slices.Values(r.toolNames(t))), func(name string) bool {
				return name == "announced" && !slices.Contains(want, name)
			})); diff != "" {
				t.Errorf("the tools after the restart (-want +got):\n%s", diff)
			}
			r.checkSessions(t, 2)
			lost := 0
			for _, c := range calls {
				ran := r.ran(t, dir, c.name)
				outcome := client.OutcomeOf(c.err)
				if !allowed(outcome, ran) {
					t.Errorf("%s ran %d times, and the outcome is %q (%v)", c.name, ran, outcome, c.err)
				}
				if outcome == client.OutcomeUnknown {
					lost++
				}
				if c.later && c.err != nil {
					t.Errorf("%s was made after the restart: %v", c.name, c.err)
				}
			}
			if lost == 0 && !p.everything { // whose tools answer too soon
				t.Error("no call was in flight when the server was killed")
			}
		})
	}
}

// checkSessions checks that there were so many sessions, each of them begun by one
// initialize and, before anything else was sent on it, initialized; in the modern
// era none.
func (r *webRig) checkSessions(t *testing.T, want int) {
	t.Helper()
	if r.peer.era == "modern" {
		want = 0
	}
	inits, first := 0, map[string]string{}
	for _, x := range r.proxy.Exchanges() {
		if x.Method == "initialize" {
			inits++
		}
		if _, known := first[x.Session]; !known && x.Session != "" {
			first[x.Session] = x.Method
		}
	}
	if inits != want || len(first) != want {
		t.Errorf("%d initializes and %d sessions, want %d", inits, len(first), want)
	}
	for session, method := range first {
		if method != "notifications/initialized" {
			t.Errorf("session %s began with %s", session, method)
		}
	}
}

// killUnderLoad lets callers call, kills the server under them, starts it again,
// and lets each of them call some more.
func (r *webRig) killUnderLoad(t *testing.T, dir, tool string) []made {
	t.Helper()
	const before, after = 2, 3 // calls of each
	var (
		mu      sync.Mutex
		calls   []made
		warm    sync.WaitGroup
		all     sync.WaitGroup
		back    = make(chan struct{})
		callCtx = t.Context()
	)
	warm.Add(callers)
	for i := range callers {
		all.Go(func() {
			left := after
			for n := 0; left > 0; n++ {
				if n == before {
					warm.Done()
				}
				later := isClosed(back)
				c := made{name: fmt.Sprintf("%d-%d", i, n), later: later}
				c.err = r.count(callCtx, dir, c.name, i)
				mu.Lock()
				calls = append(calls, c)
				mu.Unlock()
				if later {
					left--
				}
			}
		})
	}
	warm.Wait()
	r.restart(t, tool)
	close(back)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	within(t, done, "the calls after the restart")
	return calls
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// count calls the tool that counts its executions under a name. Half of the
// callers' executions come early in the call, half late.
func (r *webRig) count(ctx context.Context, dir, name string, caller int) error {
	if r.peer.everything {
		return r.Call(ctx, "tools/call", &mcp.CallToolParams{
			Name: "echo", Arguments: map[string]any{"message": name},
		}, nil)
	}
	args := map[string]any{"file": filepath.Join(dir, name), "before": 20}
	if caller%2 == 0 {
		args["before"], args["after"] = 0, 20
	}
	return r.Call(ctx, "tools/call", &mcp.CallToolParams{Name: "count", Arguments: args}, nil)
}

// ran is how often the call of a name was executed: by the count of the tool, or,
// where the server has none, by the requests that it accepted.
func (r *webRig) ran(t *testing.T, dir, name string) int {
	t.Helper()
	if !r.peer.everything {
		return executions(t, filepath.Join(dir, name))
	}
	sent := func(x proxy.Exchange) bool { return x.Says(`"` + name + `"`) }
	if r.proxy.Count(sent) == 0 {
		return 0
	}
	// The proxy may know the answer later than the client.
	if _, err := r.proxy.Await(t.Context(), func(x proxy.Exchange) bool { return sent(x) && x.Over }); err != nil {
		t.Fatal(err)
	}
	return r.proxy.Count(func(x proxy.Exchange) bool { return sent(x) && x.Status/100 == 2 })
}

// hearing is a subscription to what a server can be asked to say.
type hearing struct {
	r    *webRig
	says chan client.Notification
	want string
}

// uri is a resource that every server-everything has.
const uri = "demo://resource/dynamic/text/1"

func (r *webRig) listen(t *testing.T) *hearing {
	t.Helper()
	h := &hearing{r: r, says: make(chan client.Notification, 1024), want: "notifications/tools/list_changed"}
	filter := client.Filter{Tools: true}
	if r.peer.everything {
		h.want, filter = "notifications/resources/updated", client.Filter{URIs: []string{uri}}
	}
	sub, err := r.Listen(t.Context(), filter, func(n client.Notification) {
		if n.Method == h.want {
			h.says <- n
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Acknowledged(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// again asks the server to say something until it is heard: what it says before
// its stream is open is said to nobody.
func (h *hearing) again(t *testing.T) {
	t.Helper()
	for len(h.says) > 0 {
		<-h.says
	}
	name := "announce"
	if h.r.peer.everything {
		name = "toggle-subscriber-updates"
	}
	deadline := time.After(patience)
	for {
		if err := h.r.Call(t.Context(), "tools/call", &mcp.CallToolParams{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-h.says:
			return
		case <-time.After(time.Second):
		case <-deadline:
			t.Fatalf("%s is not heard within %s", h.want, patience)
		}
	}
}
