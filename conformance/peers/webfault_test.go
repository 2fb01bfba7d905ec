//go:build linux

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proxy"
)

// asked are the requests that a broken connection concerns in different ways, by
// the tool that they call: a read, which calls none, a tool that promises nothing,
// and one that may run again.
var asked = []string{"", "count", "recount"}

// breakage is one fault, and what is known of it beforehand.
type breakage struct {
	request bool
	at      int // from the end where negative
	do      proxy.Deed
}

func (b breakage) String() string {
	of := "the response"
	if b.request {
		of = "the request"
	}
	return fmt.Sprintf("%s at %d of %s", b.do, b.at, of)
}

const (
	// pause is how long a delayed message waits: above what a scheduler does.
	pause = 300 * time.Millisecond
	// bound is the deadline of a call that a black hole swallows.
	bound = time.Second
	// grace is what a loaded machine may add to that.
	grace = 10 * time.Second
)

// breakages cover each part of an exchange: within the headers, at their end,
// before the answer, within it, behind it.
func breakages() []breakage {
	var all []breakage
	for _, at := range []int{0, 40, -120, -30, -1} {
		for _, do := range []proxy.Deed{proxy.Reset, proxy.End, proxy.Hold, proxy.Delay} {
			all = append(all, breakage{false, at, do})
		}
	}
	for _, at := range []int{0, 40, -1} {
		for _, do := range []proxy.Deed{proxy.Reset, proxy.End, proxy.Hold, proxy.Delay} {
			all = append(all, breakage{true, at, do})
		}
	}
	return all
}

// TestWhateverBreaksOnTheWayToHTTPPeersEachCallGetsWhatItMayHave breaks every kind
// of request at every part, all of them at once on one client.
func TestWhateverBreaksOnTheWayToHTTPPeersEachCallGetsWhatItMayHave(t *testing.T) {
	for _, p := range webPeers() {
		t.Run(p.name, func(t *testing.T) { breakAll(t, p, client.Config{}) })
		if p.era == "legacy" && !p.npm { // a config for reads is the same for all; the quick ones do
			t.Run(p.name+", reads are retried", func(t *testing.T) { breakAll(t, p, client.Config{RetryLost: true}) })
		}
	}
}

func breakAll(t *testing.T, p webPeer, cfg client.Config) {
	r := rigWeb(t, p, cfg)
	r.toolNames(t) // the evidence
	dir := t.TempDir()
	var all sync.WaitGroup
	for i, b := range breakages() {
		for k, tool := range asked {
			if p.everything && tool == "recount" {
				continue // it has no tool that counts, and none more than it needs
			}
			c := brokenCall{
				r: r, breakage: b, name: fmt.Sprintf("case-%d-%d", i, k), dir: dir, tool: tool,
				may: p.era == "modern" && tool != "count" || cfg.RetryLost && tool == "",
			}
			c.size(t)
			all.Go(func() { c.run(t) })
		}
	}
	all.Wait()
	r.checkSessions(t, 1) // none was lost
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// brokenCall is one call that a fault meets.
type brokenCall struct {
	breakage
	r    *webRig
	name string // stands in its parameters
	dir  string
	tool string // "" for a read
	may  bool   // be sent again

	whole int // bytes of the message that breaks, if nothing broke it
}

func (c *brokenCall) mine(x proxy.Exchange) bool { return x.Says(c.name + `"`) }

func (c *brokenCall) call(ctx context.Context, name string) error {
	if c.tool == "" {
		return c.r.Call(ctx, "tools/list", map[string]any{"case": name}, nil)
	}
	if c.r.peer.everything {
		return c.r.Call(ctx, "tools/call", &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": name}}, nil)
	}
	args := map[string]any{"file": filepath.Join(c.dir, name)}
	return c.r.Call(ctx, "tools/call", &mcp.CallToolParams{Name: c.tool, Arguments: args}, nil)
}

// size finds out how long the messages are, by a call whose names are as long.
func (c *brokenCall) size(t *testing.T) {
	t.Helper()
	for n := 0; c.whole == 0; n++ { // the end of a response need not come
		like := fmt.Sprintf("like%c%s", 'a'+n%26, c.name[5:])
		if err := c.call(t.Context(), like); err != nil {
			t.Fatal(err)
		}
		x, err := c.r.proxy.Await(t.Context(), func(x proxy.Exchange) bool { return x.Says(like+`"`) && x.Over })
		if err != nil {
			t.Fatal(err)
		}
		c.whole = x.Size
		if c.request {
			c.whole = x.Asked
		}
	}
}

func (c *brokenCall) run(t *testing.T) {
	at := c.at
	if at < 0 {
		at += c.whole
	}
	broke := c.r.proxy.Break(proxy.Fault{When: c.mine, Request: c.request, At: at, Do: c.do, For: pause})
	limit := patience
	if c.do == proxy.Hold {
		limit = bound
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	err := c.call(ctx, c.name)
	took := time.Since(start)
	<-broke.Done
	posts := c.r.proxy.Count(c.mine)
	ran := c.r.ran(t, c.dir, c.name)
	if problem := c.judge(err, posts, ran, took); problem != "" {
		t.Errorf("%s (%d of %d bytes), %s: %s; %d requests, %d executions, %s, error %v",
			c.breakage, at, c.whole, cmp.Or(c.tool, "read"), problem, posts, ran, took.Round(time.Millisecond), err)
	}
}

// resumable reports whether the event that gives a stream its id passed, and the
// answer did not: the event comes first (2025-11-25, transports, Sending Messages 6).
func (c *brokenCall) resumable() bool {
	return c.r.peer.resumes && !c.request && (c.at == -120 || c.at == -30)
}

// judge says what is wrong with what became of the call, "" if nothing is.
func (c *brokenCall) judge(err error, posts, ran int, took time.Duration) string {
	outcome := client.OutcomeOf(err)
	switch {
	case c.tool == "count" && !allowed(outcome, ran):
		return "the outcome does not go with the executions"
	case c.tool == "recount" && outcome == client.Answered && ran == 0:
		return "answered, and never executed"
	case !c.may && posts > 1:
		return "it was sent again"
	case posts > 2:
		return "it was sent more than twice"
	case c.do == proxy.Delay:
		if err != nil || posts != 1 {
			return "a delay is no fault"
		}
	case c.do == proxy.Hold:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) || took > bound+grace {
			return "it has to end at its deadline"
		}
	case c.may:
		if err != nil {
			return "sent again, it is answered"
		}
		if c.at != -1 && posts != 2 && !c.resumable() {
			return "it was not sent again"
		}
	case c.resumable():
		if err != nil {
			return "its stream had an id, and was not resumed"
		}
	case err == nil && c.at != -1:
		return "nobody can have answered"
	case err != nil && outcome != client.OutcomeUnknown:
		return "the outcome can't be known"
	}
	return ""
}
