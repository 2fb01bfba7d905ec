package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// death is that of a server while it worked on a request, and how that ended.
type death struct {
	*recovery
	result json.RawMessage
	err    error
	took   time.Duration // from the kill to the end of the request
}

// killDuring makes a request and kills the server's group once it reports that it
// works on it.
func (s *subject) killDuring(ctx context.Context, r client.Request, when string) (death, error) {
	var k *recovery
	var killErr error
	r.Progress = func(client.Progress) {
		if k == nil && killErr == nil {
			k, killErr = s.kill(true, when)
		}
	}
	resp, err := s.Do(ctx, r)
	if k == nil {
		return death{}, fmt.Errorf("no server was killed during %s: %w", r.Method, errors.Join(killErr, err))
	}
	return death{k, resp.Result, err, time.Since(k.at)}, nil
}

// inTheMiddle kills the server while it works on a call.
func (b *builtin) inTheMiddle(ctx context.Context, s *subject) error {
	k, err := s.killDuring(ctx, client.Request{Method: "tools/call", Params: call(toolSlow, "lost")}, "in the middle of a call")
	if err != nil {
		return err
	}
	b.d.told(toolSlow, nil, k.err)
	exit, n, err := b.afterwards(ctx, s, k.recovery, k.err, "lost")
	if err != nil {
		return err
	}
	b.d.prove(checkLost, client.OutcomeOf(k.err) == client.OutcomeUnknown && exit.PID == k.old && n == 1,
		"%s, %s, %s", client.OutcomeOf(k.err), exit.Status, ranTimes(n))
	return nil
}

// crash lets the server crash while it works on a call.
func (b *builtin) crash(ctx context.Context, s *subject) error {
	k := s.beforeDeath()
	_, lost := s.CallTool(ctx, call(toolCrash, "crash"))
	b.d.told(toolCrash, nil, lost)
	exit, n, err := b.afterwards(ctx, s, k, lost, "crash")
	if err != nil {
		return err
	}
	b.d.prove(checkCrash, client.OutcomeOf(lost) == client.OutcomeUnknown &&
		exit.PID == k.old && exit.Status == stdio.Status{Kind: stdio.ExitCode, Code: exitCode} && n == 1,
		"%s, %s, %s", client.OutcomeOf(lost), exit.Status, ranTimes(n))
	return nil
}

// afterwards waits until a replacement has answered another call, so that nothing
// of the lost one can come any more, and counts how often that one ran.
func (b *builtin) afterwards(ctx context.Context, s *subject, k *recovery, lost error, key string) (*stdio.ExitError, int, error) {
	exit, typed := new(stdio.ExitError), new(client.LostError)
	if !errors.As(lost, &typed) || !errors.As(lost, &exit) {
		return nil, 0, fmt.Errorf("the server died and the call ended with: %v", lost)
	}
	if _, err := k.serves(ctx); err != nil {
		return nil, 0, err
	}
	if err := b.count(ctx, s, "after "+key); err != nil {
		return nil, 0, err
	}
	n, _, err := b.ran(key)
	return exit, n, err
}

// read kills the server while it works on a read, which the client sends again.
func (b *builtin) read(ctx context.Context, s *subject) error {
	k, err := s.killDuring(ctx, client.Request{
		Method: "resources/read", Params: &mcp.ReadResourceParams{URI: resource},
	}, "in the middle of a read")
	if err != nil {
		return err
	}
	r, err := k.serves(ctx)
	if err != nil {
		return err
	}
	if k.err != nil {
		b.d.told("resources/read", nil, k.err)
		return nil // and the check stays unreached
	}
	result := &mcp.ReadResourceResult{}
	if err := json.Unmarshal(k.result, result); err != nil || len(result.Contents) != 1 {
		return fmt.Errorf("the answer to resources/read is %s: %w", k.result, err)
	}
	answer := result.Contents[0].Text
	b.d.say("answer", "resources/read: "+answer, field{"request", "resources/read"}, field{"answer", answer})
	reads, err := b.stage.find("read", resource)
	if err != nil {
		return err
	}
	pid := s.pid()
	again := len(reads) == 2 && reads[0].PID == k.old && reads[1].PID == pid && reads[0].ID == reads[1].ID
	b.d.prove(checkRead, again && r.Retried == 1 && answer == readBy(pid),
		"under its id to %d, which answered after %s", pid, millis(k.took))
	return nil
}
