package drill

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// The checks of the built-in server, in the order in which they are reached.
const (
	checkOpens      = "it serves in its era"
	checkReplaced   = "a killed server is replaced"
	checkOldGone    = "nothing is left of the killed one"
	checkSameTools  = "its tools are the same afterwards"
	checkSubscribed = "a subscription survives"
	checkRefused    = "a call while nobody serves is refused"
	checkWaited     = "a call that may wait runs once"
	checkLost       = "a call lost in the middle is not run again"
	checkCrash      = "a crash in the middle is told with its code"
	checkRead       = "a read lost in the middle is sent again"
	checkLoop       = "a crash loop exhausts the budget"
	checkAfter      = "after that a call fails at once"
	checkLegal      = "no event was illegal"
)

var builtinChecks = []string{
	checkOpens, checkReplaced, checkOldGone, checkSameTools, checkSubscribed, checkRefused, checkWaited,
	checkLost, checkCrash, checkRead, checkLoop, checkAfter, checkLegal, checkLeft,
}

// builtin drills the built-in servers in both eras, on a pipe and behind HTTP.
func (d *drill) builtin(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"modern", func(ctx context.Context) error { return d.era(ctx, exe, "modern") }},
		{"legacy", func(ctx context.Context) error { return d.era(ctx, exe, "legacy") }},
		{"modern-http", d.modernWeb},
		{"legacy-http", d.legacyWeb},
	} {
		if d.only != "" && part.name != d.only {
			continue
		}
		d.begin(part.name)
		if err := part.run(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *drill) era(ctx context.Context, exe, era string) error {
	d.expect(builtinChecks...)
	before := look()
	dir, err := os.MkdirTemp("", "respawn-drill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &builtin{d: d, era: era, exe: exe, stage: stage(dir)}
	d.run(ctx, b.lives)
	d.run(ctx, b.loop)
	d.prove(checkLegal, b.illegal == 0 && b.lived > 0, "%d, in %d lives", b.illegal, b.lived)
	d.left(before, 0)
	return nil
}

// builtin is the drill of the built-in server in one era.
type builtin struct {
	d        *drill
	era, exe string
	stage    stage
	tools    []string // as they were listed first
	stream   *client.Subscription
	illegal  uint64
	lived    int // incarnations
}

// restartDelay is the default one.
const restartDelay = 100 * time.Millisecond

// start starts a server of this stage.
func (b *builtin) start(ctx context.Context, cfg client.Config) (*subject, error) {
	return b.d.connect(ctx, stdio.Config{
		Path: b.exe, Label: "drill server", Env: append(os.Environ(), roleVar+"="+roleServer),
		Args: []string{"-era", b.era, "-fault", b.d.fault, "-stage", string(b.stage)},
	}, cfg)
}

// end closes a subject and keeps what is judged after it.
func (b *builtin) end(s *subject) error {
	err := s.close()
	b.illegal += s.Stats().IllegalEvents
	s.mu.Lock()
	defer s.mu.Unlock()
	b.lived += len(s.pids)
	return err
}

// lives drills one client through the deaths that its server survives.
func (b *builtin) lives(ctx context.Context) error {
	budget, err := policy.Tumbling(2*len(builtinChecks), time.Minute, policy.Constant(restartDelay)) // more than this part kills
	if err != nil {
		return err
	}
	s, err := b.start(ctx, client.Config{Budget: budget, RetryLost: true})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *subject) error{
		b.opens, b.betweenCalls, b.whileNobodyServes, b.inTheMiddle, b.crash, b.read,
	} {
		if err = step(ctx, s); err != nil {
			break
		}
	}
	if endErr := b.end(s); err == nil {
		err = endErr
	}
	return err
}

// opens makes the first listing, the first call and the subscription.
func (b *builtin) opens(ctx context.Context, s *subject) error {
	server := s.Server()
	var err error
	if b.tools, err = listTools(ctx, s); err != nil {
		return err
	}
	b.stream, err = s.Listen(ctx, client.Filter{URIs: []string{resource}}, s.hear)
	if err != nil {
		return err
	}
	agreed, err := b.stream.Acknowledged(ctx)
	if err != nil {
		return err
	}
	b.d.say("listen", fmt.Sprintf("subscription %s to %v", b.stream.ID(), agreed.URIs), field{"id", b.stream.ID()}, field{"uris", agreed.URIs})
	pid := s.pid()
	if err := b.count(ctx, s, "first"); err != nil {
		return err
	}
	first, err := b.stage.find("ran", "first")
	b.d.prove(checkOpens, server.Era == b.era && len(b.tools) > 0 && len(first) == 1 && first[0].PID == pid,
		"%s, %s", server.Version, plural(len(b.tools), "tool", "tools"))
	return err
}

// count makes a call of the tool that answers at once.
func (b *builtin) count(ctx context.Context, s *subject, key string) error {
	result, err := s.CallTool(ctx, call(toolCount, key))
	b.d.told(toolCount, result, err)
	return err
}

func call(tool, key string) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: tool, Arguments: map[string]string{"key": key}}
}

// told prints how a request ended.
func (d *drill) told(what string, result *mcp.CallToolResult, err error) {
	if err != nil {
		d.say("lost", fmt.Sprintf("%s: %v", what, err),
			field{"request", what}, field{"outcome", client.OutcomeOf(err).String()}, field{"error", err.Error()})
		return
	}
	answer := ""
	if len(result.Content) > 0 {
		if t, ok := result.Content[0].(*mcp.TextContent); ok {
			answer = t.Text
		}
	}
	d.say("answer", what+": "+answer, field{"request", what}, field{"answer", answer})
}

// ran counts the executions of a call, and names the process of the last one.
func (b *builtin) ran(key string) (n, pid int, err error) {
	entries, err := b.stage.find("ran", key)
	if len(entries) > 0 {
		pid = entries[len(entries)-1].PID
	}
	return len(entries), pid, err
}

func ranTimes(n int) string { return "ran " + plural(n, "time", "times") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
