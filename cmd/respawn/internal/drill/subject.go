package drill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// subject is a server under drill: its client, and all that the client's
// callbacks told.
type subject struct {
	*client.Client
	d *drill

	mu      sync.Mutex
	more    chan struct{} // closed and replaced whenever something was told
	pids    []int         // of the incarnations, in their order
	states  []fsm.Transition
	ends    []client.Ended
	returns []client.Reconnect
	heard   []client.Notification // of the subscription
}

// connect starts a server and waits until it serves.
func (d *drill) connect(ctx context.Context, server stdio.Config, cfg client.Config) (*subject, error) {
	s := &subject{d: d, more: make(chan struct{})}
	server.Env = append(server.Env, d.mark)
	server.OnStart = s.started
	return s.open(ctx, server.Factory(), cfg)
}

// attach connects to a server that runs already.
func (d *drill) attach(ctx context.Context, server transports.Factory, cfg client.Config) (*subject, error) {
	return (&subject{d: d, more: make(chan struct{})}).open(ctx, server, cfg)
}

func (s *subject) open(ctx context.Context, server transports.Factory, cfg client.Config) (*subject, error) {
	d := s.d
	cfg.StartTimeout, cfg.RequestTimeout = d.Timeout, d.Timeout
	cfg.OnTransition, cfg.OnEnd, cfg.OnReconnect = s.moved, s.ended, s.back
	cfg.Logger = slog.New(slog.DiscardHandler) // it would tell the same in other words
	var err error
	if s.Client, err = client.Connect(ctx, server, &cfg); err != nil {
		return nil, err
	}
	err = s.await(ctx, "the news that it serves", func() bool { return len(s.states) > 0 && s.last() == fsm.Serving })
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// last is the state that was told last. The lock is held.
func (s *subject) last() fsm.State { return s.states[len(s.states)-1].To }

// close ends the client, whatever became of the drill before.
func (s *subject) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.d.Timeout)
	defer cancel()
	return s.Close(ctx)
}

// note keeps something that was told and wakes whoever waits for it.
func (s *subject) note(keep func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep()
	close(s.more)
	s.more = make(chan struct{})
}

func (s *subject) started(p stdio.Process) {
	s.d.say("start", fmt.Sprintf("process %d", p.PID), field{"pid", p.PID})
	s.d.note(p.PID)
	s.note(func() { s.pids = append(s.pids, p.PID) })
}

func (s *subject) moved(t fsm.Transition) {
	s.mu.Lock()
	first := !slices.ContainsFunc(s.states, func(t fsm.Transition) bool { return t.To == fsm.Serving })
	s.mu.Unlock()
	if first && t.To.Terminal() {
		return // a first start that failed is Connect's error
	}
	s.d.say("state", fmt.Sprintf("%s → %s: %s", t.From, t.To, t.Why),
		field{"from", t.From.String()}, field{"to", t.To.String()}, field{"on", t.Event.String()}, field{"generation", t.Gen}, field{"why", t.Why})
	s.note(func() { s.states = append(s.states, t) })
}

func (s *subject) ended(e client.Ended) {
	text := fmt.Sprintf("generation %d, up %s: %v", e.Gen, millis(e.Uptime), e.Cause)
	if e.Verdict.Why != "" {
		text += "; " + e.Verdict.Why
	}
	if e.Verdict.Respawn {
		text += fmt.Sprintf(", in %s", millis(e.Verdict.Delay))
	}
	s.d.say("end", text, field{"generation", e.Gen}, field{"cause", fmt.Sprint(e.Cause)}, field{"uptimeMs", float(e.Uptime)},
		field{"respawn", e.Verdict.Respawn}, field{"delayMs", float(e.Verdict.Delay)}, field{"why", e.Verdict.Why}, field{"restarts", e.Restarts})
	s.note(func() { s.ends = append(s.ends, e) })
}

func (s *subject) back(r client.Reconnect) {
	s.d.say("back", fmt.Sprintf("generation %d serves, %s after the end; %d sent again, %d subscriptions opened again",
		r.Generation, millis(r.Downtime), r.Retried, r.Reopened),
		field{"generation", r.Generation}, field{"downtimeMs", float(r.Downtime)}, field{"retried", r.Retried},
		field{"reopened", r.Reopened}, field{"changed", r.Changed})
	s.note(func() { s.returns = append(s.returns, r) })
}

func (s *subject) hear(n client.Notification) {
	s.d.say("news", fmt.Sprintf("%s from generation %d", n.Method, n.Generation), field{"method", n.Method}, field{"generation", n.Generation})
	s.note(func() { s.heard = append(s.heard, n) })
}

// callbackWait is how long the callbacks of a client that has ended may lag: they
// run on a goroutine of their own and do nothing but print.
const callbackWait = time.Second

// await waits until ok holds of what was told. ok is asked under the lock.
func (s *subject) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.d.Timeout, fmt.Errorf("not within %s", s.d.Timeout))
	defer cancel()
	done, ending := s.Done(), (<-chan time.Time)(nil)
	for {
		s.mu.Lock()
		held, more := ok(), s.more
		s.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-more:
		case <-done: // what it told last may still be on its way
			done, ending = nil, time.After(callbackWait)
		case <-ending:
			return fmt.Errorf("waiting for %s: %w", what, s.Err())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// pid is the process of the newest incarnation.
func (s *subject) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[len(s.pids)-1]
}

// recovery is one death and what followed.
type recovery struct {
	s      *subject
	old    int // the process that died
	starts int // how many incarnations there were before
	ends   int // ... endings
	backs  int // ... recoveries
	at     time.Time
}

// beforeDeath notes how things are, for what follows.
func (s *subject) beforeDeath() *recovery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &recovery{s, s.pids[len(s.pids)-1], len(s.pids), len(s.ends), len(s.returns), time.Now()}
}

// kill ends the newest incarnation from outside: its leader alone, or with whole
// its group.
func (s *subject) kill(whole bool, when string) (*recovery, error) {
	if state := s.State(); state != fsm.Serving { // its number may be somebody else's by now
		return nil, fmt.Errorf("there is no server to kill: it is %s", state)
	}
	k := s.beforeDeath()
	what := "process"
	if whole {
		what = "process group"
	}
	s.d.say("kill", fmt.Sprintf("%s %d, %s", what, k.old, when), field{"pid", k.old}, field{"group", whole})
	if err := kill(k.old, whole); err != nil {
		return nil, fmt.Errorf("kill %d: %w", k.old, err)
	}
	return k, nil
}

// started waits for the process of the replacement.
func (k *recovery) started(ctx context.Context) error {
	return k.s.await(ctx, "the start of a replacement", func() bool {
		return len(k.s.pids) > k.starts && k.s.last() == fsm.Starting
	})
}

// serves waits until the replacement serves and returns what was told of it.
func (k *recovery) serves(ctx context.Context) (client.Reconnect, error) {
	err := k.s.await(ctx, "a replacement that serves", func() bool { return len(k.s.returns) > k.backs })
	if err != nil {
		return client.Reconnect{}, err
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.s.returns[k.backs], nil
}

// delay is what the budget made the replacement wait.
func (k *recovery) delay() time.Duration {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	return k.s.ends[k.ends].Verdict.Delay
}

func float(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func millis(d time.Duration) string {
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
