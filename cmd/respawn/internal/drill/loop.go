package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

// loopRestarts is the default budget's number; its window is what no loop of this
// speed fills.
const loopRestarts = 3

// atOnce is when a call that waits for nothing has failed, on any machine.
const atOnce = time.Second

// loop lets a server that has served exit at each further start.
func (b *builtin) loop(ctx context.Context) error {
	budget, err := policy.Tumbling(loopRestarts, time.Minute, policy.Constant(restartDelay))
	if err != nil {
		return err
	}
	s, err := b.start(ctx, client.Config{Budget: budget})
	if err != nil {
		return err
	}
	err = b.exhaust(ctx, s)
	return errors.Join(err, b.end(s))
}

func (b *builtin) exhaust(ctx context.Context, s *subject) error {
	if err := b.stage.tell(orderExit); err != nil {
		return err
	}
	k, err := s.kill(true, "and each further one exits at start")
	if err != nil {
		return err
	}
	var exhaustedAt time.Time
	if err := s.await(ctx, "exhaustion, and an end for each start", func() bool {
		if s.last() == fsm.Exhausted && exhaustedAt.IsZero() {
			exhaustedAt = time.Now()
		}
		return !exhaustedAt.IsZero() && len(s.ends) >= len(s.pids)
	}); err != nil {
		return err
	}
	took := exhaustedAt.Sub(k.at)
	<-s.Done() // follows the state: nothing runs any more
	b.d.say("over", fmt.Sprint(s.Err()), field{"error", fmt.Sprint(s.Err())})

	started, err := b.stage.find("started", "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	pids, ends := slices.Clone(s.pids), len(s.ends)
	s.mu.Unlock()
	started = slices.DeleteFunc(started, func(e entry) bool { return !slices.Contains(pids, e.PID) })
	exhausted := new(client.ExhaustedError)
	b.d.prove(checkLoop, errors.As(s.Err(), &exhausted) && exhausted.Restarts == loopRestarts &&
		len(started) == 1+loopRestarts && len(pids) == len(started) && ends == len(started),
		"%d restarts, %s, over after %s", exhausted.Restarts, plural(len(started), "start", "starts"), millis(took))

	at := time.Now()
	_, lost := s.CallTool(ctx, call(toolCount, "too late"))
	took = time.Since(at)
	b.d.told(toolCount, nil, lost)
	n, _, err := b.ran("too late")
	b.d.prove(checkAfter, err == nil && errors.As(lost, &exhausted) && client.OutcomeOf(lost) == client.NotExecuted && n == 0 && took < atOnce,
		"%s, %s, after %s", client.OutcomeOf(lost), ranTimes(n), millis(took))
	return err
}
