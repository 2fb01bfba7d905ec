//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// The moments in the life of a call at which its server is told to die.
const (
	dieNever    = ""
	dieRead     = "read"     // it has read the call
	dieExecuted = "executed" // ... and run it
	dieAnswered = "answered" // ... and answered
)

// The moments at which the test kills the server itself.
const (
	killBefore  = "before"  // the call is made
	killUnread  = "unread"  // the server is stopped, the call is in its pipe
	killAnytime = "anytime" // within some milliseconds
)

// Real processes, killed at each step of a call's life, in an order drawn by
// chance. 10 runs, and 200 with RESPAWN_REAL=1.
func TestRealProcessesKilledAtEachStep(t *testing.T) {
	runs, seed := 10, uint64(time.Now().UnixNano())
	if os.Getenv("RESPAWN_REAL") != "" {
		runs = 200
	}
	command := buildLedger(t)
	t.Logf("seed %d", seed)
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			realRun(t, rand.New(rand.NewPCG(seed, uint64(i))), command)
		})
	}
}

// buildLedger builds the server of these tests: small, and without the race
// detector, since it is started more than a thousand times.
func buildLedger(t *testing.T) string {
	t.Helper()
	command := filepath.Join(t.TempDir(), "ledger")
	if out, err := exec.Command("go", "build", "-o", command, "./testdata/ledger").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return command
}

// realPeer is a server process over all its lives.
type realPeer struct {
	ledger string
	mu     sync.Mutex
	pids   []int
	queued chan struct{} // holds a token when a call was handed to the transport
	ended  chan uint64   // the lives that ended
}

// spy tells when a call is handed over.
type spy struct {
	transports.Transport
	p *realPeer
}

func (s spy) Send(out transports.Outbound) error {
	err := s.Transport.Send(out)
	if err == nil && (out.Method == "tools/call" || out.Method == "resources/read") {
		select {
		case s.p.queued <- struct{}{}:
		default:
		}
	}
	return err
}

func (p *realPeer) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pids[len(p.pids)-1]
}

// wrote counts lines of the ledger.
func (p *realPeer) wrote(t *testing.T, line string) (n int) {
	t.Helper()
	book, err := os.ReadFile(p.ledger)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(book), "\n") {
		if l == line {
			n++
		}
	}
	return n
}

func realRun(t *testing.T, r *rand.Rand, command string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := &realPeer{ledger: filepath.Join(t.TempDir(), "ledger"), queued: make(chan struct{}, 1), ended: make(chan uint64, 20)}
	era := []string{"modern", "legacy"}[r.IntN(2)]
	server := stdio.Config{
		Path: command, Args: []string{p.ledger, era},
		OnStart: func(pr stdio.Process) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pids = append(p.pids, pr.PID)
		},
	}
	budget, err := policy.Tumbling(1000, time.Minute, policy.Constant(time.Duration(r.IntN(3))*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &client.Config{
		Budget: budget, Logger: quiet(), WaitForReady: r.IntN(2) == 0, RetryLost: r.IntN(2) == 0,
		OnEnd: func(e client.Ended) { p.ended <- e.Gen },
	}
	factory := server.Factory()
	inner := factory.New
	factory.New = func() transports.Transport { return spy{inner(), p} }
	c, err := client.Connect(ctx, factory, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, pid := range p.pids { // the group of each life is gone
			if err := syscall.Kill(-pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d is left: %v", pid, err)
			}
		}
	}()
	if _, err := c.Listen(ctx, client.Filter{URIs: []string{"a"}}, func(client.Notification) {}); err != nil {
		t.Fatal(err)
	}
	moments := []string{dieNever, dieRead, dieExecuted, dieAnswered, killBefore, killUnread, killAnytime}
	r.Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
	for i, moment := range moments {
		method := []string{"tools/call", "resources/read"}[r.IntN(2)]
		realCall(t, ctx, c, p, r, method, i+1, moment, cfg)
	}
	// The last life was asked for the subscription before this call.
	resp, err := c.Do(ctx, client.Request{Method: "tools/call", Params: map[string]any{"n": 99}, Wait: client.WaitReady})
	if err != nil {
		t.Fatal(err)
	}
	var by struct{ Pid int }
	if err := json.Unmarshal(resp.Result, &by); err != nil {
		t.Fatal(err)
	}
	if n := p.wrote(t, fmt.Sprintf("%d subscribed", by.Pid)); n != 1 {
		t.Errorf("%s: life %d was asked %d times for the subscription", era, resp.Generation, n)
	}
	if int(resp.Generation) != len(moments) {
		t.Errorf("life %d answers after %d deaths", resp.Generation, len(moments)-1)
	}
}

// serving waits for a server.
func serving(t *testing.T, ctx context.Context, c *client.Client) {
	t.Helper()
	for state := c.State(); state != fsm.Serving; state = c.State() {
		if !c.WaitForStateChange(ctx, state) {
			t.Fatalf("it stays %s", state)
		}
	}
}

// realCall makes a call whose server dies at a moment, and checks what its caller
// is told against what the server wrote down.
func realCall(t *testing.T, ctx context.Context, c *client.Client, p *realPeer, r *rand.Rand, method string, n int, moment string, cfg *client.Config) {
	t.Helper()
	serving(t, ctx, c)
	pid := p.pid()
	kill := func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }
	killed := make(chan struct{})
	select {
	case <-p.queued:
	default:
	}
	switch moment {
	case killBefore:
		kill()
	case killUnread:
		_ = syscall.Kill(-pid, syscall.SIGSTOP)
		go func() {
			defer close(killed)
			<-p.queued
			_ = c.Notify(ctx, "notifications/x", nil) // it is written after the call
			kill()
		}()
	case killAnytime:
		time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, kill)
	}
	resp, err := c.Do(ctx, client.Request{Method: method, Params: map[string]any{"n": n, "die": moment}})
	if moment == killUnread {
		<-killed
	}
	if moment != dieNever { // one death, before the next call
		select {
		case <-p.ended:
		case <-ctx.Done():
			t.Fatal("nobody died")
		}
	}
	runs := p.wrote(t, fmt.Sprint("runs ", n))
	what := fmt.Sprintf("%s, killed %q, RetryLost %t, WaitForReady %t: ran %d times, %v", method, moment, cfg.RetryLost, cfg.WaitForReady, runs, err)
	retried := method == "resources/read" && cfg.RetryLost
	if runs > 1 && !retried || runs > 2 {
		t.Errorf("it ran twice: %s", what)
	}
	outcome := client.OutcomeOf(err)
	switch {
	case outcome == client.Answered && runs == 0, outcome == client.NotExecuted && runs > 0:
		t.Errorf("the outcome is wrong: %s", what)
	case err == nil:
		var got struct{ N int }
		if json.Unmarshal(resp.Result, &got) != nil || got.N != n {
			t.Errorf("it got the answer %s to another call: %s", resp.Result, what)
		}
	}
	want, certain := client.Answered, true
	switch moment {
	case killBefore, killAnytime:
		certain = false
	case dieRead, dieExecuted, killUnread:
		if !retried {
			want = client.OutcomeUnknown
		}
	}
	if certain && outcome != want {
		t.Errorf("the outcome is %s, want %s: %s", outcome, want, what)
	}
}
