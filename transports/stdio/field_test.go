//go:build unix

package stdio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// frail is a legacy server that answers "pid" with its process id, ends at
	// "exit" as its argument says, without an answer, and at "leave" with a
	// grandchild left that holds stdout. It counts the signals that it gets and
	// the cancellations.
	roles["frail"] = func([]string) {
		signals, cancelled, pending := make(chan os.Signal, 8), 0, 0
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
				Params struct{ How string }
			}
			if json.Unmarshal(lines.Bytes(), &m) != nil {
				continue
			}
			switch m.Method {
			case "notifications/cancelled":
				cancelled++
			case "never":
				pending++
			case "pid":
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d,"signals":%d,"cancelled":%d,"pending":%d}}`+"\n", m.ID, os.Getpid(), len(signals), cancelled, pending)
			case "exit":
				end(m.Params.How)
			default:
				legacy(lines.Bytes())
			}
		}
	}
}

// end ends this process in one of the ways that servers do.
func end(how string) {
	switch how {
	case "signal":
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	case "leave":
		holder := exec.Command("sleep", "100000")
		holder.Stdout = os.Stdout
		_ = holder.Start()
	case "code":
		os.Exit(3)
	}
	os.Exit(0)
}

// alive is what a frail server says of itself.
type alive struct {
	PID       int `json:"pid"`
	Signals   int `json:"signals"`
	Cancelled int `json:"cancelled"`
	Pending   int `json:"pending"` // requests that it got and never answers
}

func ask(ctx context.Context, t *testing.T, c *client.Client) alive {
	t.Helper()
	var a alive
	if err := c.Call(ctx, "pid", nil, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// frail connects to such a server; back hears of each replacement.
func frail(ctx context.Context, t *testing.T, cfg client.Config) (c *client.Client, back chan client.Reconnect) {
	t.Helper()
	conf := role("frail")
	leftBehind(t, &conf)
	back = make(chan client.Reconnect, 16)
	cfg.Logger, cfg.OnReconnect = slog.New(slog.DiscardHandler), func(r client.Reconnect) { back <- r }
	c, err := client.Connect(ctx, conf.Factory(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c, back
}

func TestB052_ARealServerIsRestartedHoweverItEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, back := frail(ctx, t, client.Config{Budget: policy.Patient()})
	for _, tt := range []struct {
		how  string
		want stdio.Status
	}{
		{"code", stdio.Status{Kind: stdio.ExitCode, Code: 3}},
		{"signal", stdio.Status{Kind: stdio.ExitSignal, Signal: "killed"}},
		{"zero", stdio.Status{Kind: stdio.ExitCode}},
	} {
		before := ask(ctx, t, c)
		err := c.Call(ctx, "exit", map[string]string{"how": tt.how}, nil)
		exit := new(stdio.ExitError)
		if !errors.As(err, &exit) || client.OutcomeOf(err) != client.OutcomeUnknown {
			t.Fatalf("%s: the call ended with %v", tt.how, err)
		}
		if diff := cmp.Diff(tt.want, exit.Status); diff != "" {
			t.Errorf("%s: %s", tt.how, diff)
		}
		select {
		case <-back:
		case <-ctx.Done():
			t.Fatalf("%s: no replacement", tt.how)
		}
		if after := ask(ctx, t, c); after.PID == before.PID {
			t.Errorf("%s: the replacement is the same process %d", tt.how, after.PID)
		}
	}
}

func TestB026_ARealGrandchildOnStdoutDoesNotDisturbTheReplacement(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, back := frail(ctx, t, client.Config{})
	if err := c.Call(ctx, "exit", map[string]string{"how": "leave"}, nil); client.OutcomeOf(err) != client.OutcomeUnknown {
		t.Errorf("the call that it died in: %v", err)
	}
	select {
	case <-back:
	case <-ctx.Done():
		t.Fatal("no replacement")
	}
	first := ask(ctx, t, c)
	for range 3 {
		if now := ask(ctx, t, c); now != first {
			t.Errorf("the replacement %v became %v", first, now)
		}
	}
}

func TestT2_ARealServersLateEndLeavesItsReplacementAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, back := frail(ctx, t, client.Config{Budget: policy.Patient()})
	for range 3 { // each time the dead one's pipes end later than its exit
		_ = c.Call(ctx, "exit", map[string]string{"how": "leave"}, nil)
		select {
		case r := <-back:
			if now := ask(ctx, t, c); now.Signals != 0 {
				t.Errorf("generation %d got %d signals", r.Generation, now.Signals)
			}
		case <-ctx.Done():
			t.Fatal("no replacement")
		}
	}
	if n := c.Stats().IllegalEvents; n != 0 {
		t.Errorf("%d illegal events", n)
	}
}

func TestB028_ARealRecoveryThatCloseInterruptsLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conf := role("frail")
	leftBehind(t, &conf)
	spawned := make(chan stdio.Process, 4)
	conf.OnStart = func(p stdio.Process) { spawned <- p }
	c, err := client.Connect(ctx, conf.Factory(), &client.Config{Logger: slog.New(slog.DiscardHandler), Budget: policy.Patient()})
	if err != nil {
		t.Fatal(err)
	}
	<-spawned
	_ = c.Call(ctx, "exit", map[string]string{"how": "code"}, nil)
	<-spawned // the replacement runs, and has not served yet
	for range 2 {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := c.Call(ctx, "pid", nil, nil); !errors.Is(err, client.ErrClosed) || client.OutcomeOf(err) != client.NotExecuted {
		t.Errorf("a call after Close: %v", err)
	}
}

func TestB080_CancellingACallSendsARealServerNoSignal(t *testing.T) {
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connecting, connected := context.WithCancel(patient)
	c, _ := frail(connecting, t, client.Config{})
	connected() // Connect's context governs only connecting
	first := ask(patient, t, c)
	calling, giveUp := context.WithCancel(patient)
	over := make(chan error, 1)
	go func() { over <- c.Call(calling, "never", nil, nil) }()
	for ask(patient, t, c).Pending == 0 { // until the server has it
	}
	giveUp()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call: %v", err)
	}
	want := alive{PID: first.PID, Cancelled: 1, Pending: 1}
	if got := ask(patient, t, c); got != want {
		t.Errorf("the server says %+v, want %+v", got, want)
	}
}
