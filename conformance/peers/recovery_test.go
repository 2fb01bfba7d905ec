//go:build linux

package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proc"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// patience bounds each wait for an event of a real process. It is far above what
// the slowest of them needs (npx, 2 s), and only a failing test waits for it.
const patience = 60 * time.Second

// connection is a client of a real peer, and what a test must know about it.
type connection struct {
	*client.Client
	marker    string
	reconnect chan client.Reconnect
}

// connect starts the peer with a marker in its environment and closes it after
// the test, when nothing that carries the marker may be left.
func connect(t *testing.T, p peer, cfg client.Config) *connection {
	t.Helper()
	noLeaks := goleak.IgnoreCurrent()
	c := &connection{
		marker:    fmt.Sprintf("RESPAWN_PEER=%d/%s", os.Getpid(), t.Name()),
		reconnect: make(chan client.Reconnect, 100), // more than any test has restarts
	}
	command := stdio.Config{Path: p.argv[0], Args: p.argv[1:], Dir: p.dir(t), Env: append(os.Environ(), c.marker)}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.OnReconnect = func(r client.Reconnect) { c.reconnect <- r }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if c.Client, err = client.Connect(ctx, command.Factory(), &cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := c.processes(t); len(left) > 0 {
			t.Errorf("after close these processes are left: %v", left)
		}
		goleak.VerifyNone(t, noLeaks)
	})
	return c
}

func (c *connection) processes(t *testing.T) []proc.Process {
	t.Helper()
	found, err := proc.Marked(c.marker)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// tree is the live peer, leader first. It must be a tree, so that its leader and
// its last descendant differ.
func (c *connection) tree(t *testing.T) []proc.Process {
	t.Helper()
	found := c.processes(t)
	if len(found) < 2 || found[0].Parent != os.Getpid() || found[0].Group != found[0].PID {
		t.Fatalf("the peer is no tree in a group of its own: %v", found)
	}
	return found
}

func (c *connection) tools(t *testing.T) []*mcp.Tool {
	t.Helper()
	var tools []*mcp.Tool
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool)
	}
	return tools
}

// back waits until a replacement serves.
func (c *connection) back(t *testing.T) {
	t.Helper()
	select {
	case <-c.reconnect:
	case <-c.Done():
		t.Fatalf("no replacement: %v", c.Err())
	case <-time.After(patience):
		t.Fatalf("no replacement within %s; the state is %s", patience, c.State())
	}
}

// victims are the ways in which a tree of processes loses members.
var victims = []struct {
	name string
	kill func(tree []proc.Process) error
}{
	{"the group", func(tree []proc.Process) error { return syscall.Kill(-tree[0].Group, syscall.SIGKILL) }},
	{"only the leader", func(tree []proc.Process) error { return syscall.Kill(tree[0].PID, syscall.SIGKILL) }},
	{"only the last descendant", func(tree []proc.Process) error {
		if err := syscall.Kill(tree[len(tree)-1].PID, syscall.SIGKILL); err != nil {
			return err
		}
		// Whoever waits for it may be stopped, and has to go on to see its end.
		// Where nobody was stopped, all of them may be gone already.
		err := syscall.Kill(-tree[0].Group, syscall.SIGCONT)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}},
}

func names(tree []proc.Process) []string {
	var out []string
	for _, p := range tree {
		out = append(out, p.Name)
	}
	return out
}

func TestRealPeersComeBackWhoeverIsKilledAndWhenever(t *testing.T) {
	for _, p := range all() {
		for _, victim := range victims {
			for _, during := range []bool{false, true} {
				moment := map[bool]string{false: "between calls", true: "during a call"}[during]
				t.Run(strings.Join([]string{p.name, victim.name, moment}, "/"), func(t *testing.T) {
					c := connect(t, p, client.Config{})
					tools := c.tools(t)
					old := c.tree(t)
					if during {
						c.killDuringCall(t, p, old, victim.kill)
					} else if err := victim.kill(old); err != nil {
						t.Fatal(err)
					}
					c.back(t)
					if diff := cmp.Diff(tools, c.tools(t)); diff != "" {
						t.Errorf("the tools of the replacement (-before +after):\n%s", diff)
					}
					if err := c.Call(t.Context(), "tools/call", p.call, nil); err != nil {
						t.Errorf("a call after the recovery: %v", err)
					}
					now := c.tree(t)
					if diff := cmp.Diff(names(old), names(now)); diff != "" {
						t.Errorf("processes before and after (-before +after):\n%s", diff)
					}
					if now[0].PID == old[0].PID {
						t.Errorf("the leader is still %d", old[0].PID)
					}
				})
			}
		}
	}
}

// killDuringCall kills between the write of a call and its answer: the peer is
// stopped, so that it can't answer, and killed once the frame is in its stdin.
func (c *connection) killDuringCall(t *testing.T, p peer, tree []proc.Process, kill func([]proc.Process) error) {
	t.Helper()
	if err := proc.Stop(tree[0].Group, tree); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Call(t.Context(), "tools/call", p.call, nil) }()
	if _, err := proc.Unread(tree[0].PID, int(patience.Milliseconds())); err != nil {
		t.Fatal(err)
	}
	if err := kill(tree); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		lost := new(client.LostError)
		if !errors.As(err, &lost) || lost.Outcome != client.OutcomeUnknown {
			t.Errorf("the call that was in flight ended with %v; want a LostError, outcome unknown", err)
		}
	case <-time.After(patience):
		t.Fatalf("the call that was in flight still hangs after %s", patience)
	}
}

// TestACountedToolNeverRunsTwiceForOneCall kills a real server around a tool that
// counts its executions in a file, and holds the outcome against the count.
func TestACountedToolNeverRunsTwiceForOneCall(t *testing.T) {
	const kills = 20 // at each point
	points := []struct {
		name string
		die  bool // the server kills itself after the execution
		kill func(t *testing.T, c *connection, call func() error) error
	}{
		{"before the write", false, func(t *testing.T, c *connection, call func() error) error {
			killGroup(t, c)
			return call()
		}},
		{"after the write", false, func(t *testing.T, c *connection, call func() error) error {
			tree := c.tree(t)
			if err := proc.Stop(tree[0].Group, tree); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- call() }()
			if _, err := proc.Unread(tree[0].PID, int(patience.Milliseconds())); err != nil {
				t.Fatal(err)
			}
			killGroup(t, c)
			return <-ended
		}},
		{"after the execution", true, func(_ *testing.T, _ *connection, call func() error) error {
			return call()
		}},
		{"after the answer", false, func(t *testing.T, c *connection, call func() error) error {
			err := call()
			killGroup(t, c)
			return err
		}},
	}
	for _, point := range points {
		t.Run(point.name, func(t *testing.T) {
			budget, err := policy.Tumbling(kills, time.Hour, policy.Constant(0))
			if err != nil {
				t.Fatal(err)
			}
			c := connect(t, peer{argv: shell("sdkserver")}, client.Config{Budget: budget})
			dir := t.TempDir()
			for n := range kills {
				file := filepath.Join(dir, fmt.Sprint(n))
				err := point.kill(t, c, func() error {
					return c.Call(t.Context(), "tools/call", &mcp.CallToolParams{
						Name: "count", Arguments: map[string]any{"file": file, "die": point.die},
					}, nil)
				})
				c.back(t)
				ran := executions(t, file)
				outcome := client.OutcomeOf(err)
				if !allowed(outcome, ran) {
					t.Errorf("kill %d: it ran %d times, and the outcome is %q (%v)", n, ran, outcome, err)
				}
			}
		})
	}
}

// allowed says which counts an outcome may go with.
func allowed(o client.Outcome, ran int) bool {
	switch o {
	case client.Answered:
		return ran == 1
	case client.NotExecuted:
		return ran == 0
	}
	return ran <= 1
}

func executions(t *testing.T, file string) int {
	t.Helper()
	lines, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(lines), "\n")
}

func killGroup(t *testing.T, c *connection) {
	t.Helper()
	if err := syscall.Kill(-c.tree(t)[0].Group, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
