package drill

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

// betweenCalls kills the server's process alone: the helper in its group is the
// client's to end.
func (b *builtin) betweenCalls(ctx context.Context, s *subject) error {
	pid := s.pid()
	group := groupLeft(pid)
	k, err := s.kill(false, "between calls")
	if err != nil {
		return err
	}
	r, err := k.serves(ctx)
	if err != nil {
		return err
	}
	if err := b.count(ctx, s, "second"); err != nil {
		return err
	}
	recovered := time.Since(k.at)
	n, by, err := b.ran("second")
	if err != nil {
		return err
	}
	pid = s.pid()
	b.d.prove(checkReplaced, pid != k.old && by == pid && n == 1,
		"%d by %d, which answered after %s, %s of it the delay", k.old, pid, millis(recovered), millis(k.delay()))
	left := groupLeft(k.old)
	b.d.prove(checkOldGone, len(group) > 0 && len(left) == 0, "its group had %s, and has %d", plural(len(group), "process", "processes"), len(left))
	tools, err := listTools(ctx, s)
	if err != nil {
		return err
	}
	same, how := sameTools(b.tools, tools)
	b.d.prove(checkSameTools, same, "%s", how)
	return b.subscribed(ctx, s, k, r)
}

// subscribed shows that the changes made before and after the death were heard by
// the one subscription, and that both servers were asked for it.
func (b *builtin) subscribed(ctx context.Context, s *subject, k *recovery, r client.Reconnect) error {
	heard := map[uint64]int{}
	err := s.await(ctx, "news from both servers", func() bool {
		clear(heard)
		for _, n := range s.heard {
			heard[n.Generation]++
		}
		return heard[r.Generation-1] > 0 && heard[r.Generation] > 0
	})
	if err != nil {
		return err
	}
	opened, err := b.stage.find("opened", "stream")
	if err != nil {
		return err
	}
	pid := s.pid()
	asked := len(opened) == 2 && opened[0].PID == k.old && opened[1].PID == pid
	if b.era == "modern" { // on a pipe it keeps its id (2026-07-28, patterns/subscriptions, Graceful Closure)
		asked = asked && opened[0].ID == b.stream.ID() && opened[1].ID == b.stream.ID()
	}
	b.d.prove(checkSubscribed, asked && heard[r.Generation-1] == 1 && heard[r.Generation] == 1,
		"heard %s of %d, and %d of %d",
		plural(heard[r.Generation-1], "change", "changes"), k.old, heard[r.Generation], pid)
	return nil
}

// holdUp is for how long a call must be seen to wait.
const holdUp = 50 * time.Millisecond

// whileNobodyServes makes one call that may not wait, and one that may, while the
// replacement has started and does not answer.
func (b *builtin) whileNobodyServes(ctx context.Context, s *subject) error {
	if err := b.stage.tell(orderHold); err != nil {
		return err
	}
	k, err := s.kill(true, "and the next one will be slow to start")
	if err != nil {
		return err
	}
	if err := k.started(ctx); err != nil {
		return err
	}
	_, refusal := s.CallTool(ctx, call(toolCount, "refused"))
	b.d.told(toolCount, nil, refusal)

	waited, err := b.wait(ctx, s)
	if err != nil {
		return err
	}
	b.d.told(toolCount, waited.result, waited.err)
	if _, err := k.serves(ctx); err != nil {
		return err
	}

	n, _, err := b.ran("refused")
	if err != nil {
		return err
	}
	refused := new(client.NotServingError)
	b.d.prove(checkRefused, errors.As(refusal, &refused) && client.OutcomeOf(refusal) == client.NotExecuted && n == 0,
		"%s, %s", client.OutcomeOf(refusal), ranTimes(n))
	n, by, err := b.ran("waited")
	if err != nil {
		return err
	}
	pid := s.pid()
	b.d.prove(checkWaited, waited.err == nil && waited.madeIn != fsm.Serving && waited.long && n == 1 && by == pid,
		"made while %s, answered after %s, %s", waited.madeIn, millis(waited.took), ranTimes(n))
	return nil
}

// waited is a call that waited for a server.
type waited struct {
	madeIn fsm.State
	long   bool // it was not over while the server was held up
	took   time.Duration
	result *mcp.CallToolResult
	err    error
}

// wait makes a call that may wait, looks at it for a while, and lets the server
// go on.
func (b *builtin) wait(ctx context.Context, s *subject) (waited, error) {
	var w waited
	made, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		at := time.Now()
		w.madeIn = s.State()
		close(made)
		r, err := s.Do(ctx, client.Request{Method: "tools/call", Params: call(toolCount, "waited"), Wait: client.WaitReady})
		if w.took, w.err = time.Since(at), err; err == nil {
			w.err = json.Unmarshal(r.Result, &w.result)
		}
	}()
	<-made
	b.d.say("wait", toolCount+" waits for a server", field{"request", toolCount})
	long := true
	select {
	case <-over:
		long = false
	case <-time.After(holdUp):
	}
	err := b.stage.withdraw(orderHold)
	<-over
	w.long = long
	return w, err
}
