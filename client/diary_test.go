package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
)

// diary writes down, in one line each, what a client tells of its peer's lives.
type diary struct {
	mu    sync.Mutex
	lines []string
}

// of returns cfg with callbacks that write to d. Those that cfg has run first.
func (d *diary) of(cfg client.Config) client.Config {
	onEnd, onReconnect := cfg.OnEnd, cfg.OnReconnect
	cfg.OnEnd = func(e client.Ended) {
		if onEnd != nil {
			defer onEnd(e)
		}
		switch {
		case e.Withdrawn:
			d.write("%d is withdrawn: %v", e.Gen, e.Cause)
		case e.Verdict.Respawn:
			d.write("%d ended: %v; the next in %s", e.Gen, e.Cause, e.Verdict.Delay)
		case e.Verdict.Why != "":
			d.write("%d ended: %v; none follows", e.Gen, e.Cause)
		default:
			d.write("%d ended: %v", e.Gen, e.Cause)
		}
	}
	cfg.OnReconnect = func(r client.Reconnect) {
		if onReconnect != nil {
			defer onReconnect(r)
		}
		d.write("%d serves", r.Generation)
	}
	return cfg
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...)
}

// pass lets fake time go by and everything that it wakes come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start runs f, which takes the words of an error from [words], on a goroutine of
// its own.
func start(f func() string) (said <-chan string) {
	c := make(chan string, 1)
	go func() { c <- f() }()
	return c
}

// tool calls the tool x and puts what comes of it into words.
func tool(ctx context.Context, c *client.Client) string {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
	if err != nil {
		return words(err)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// words names an error's outcome and the documented type of its cause.
func words(err error) string {
	if err == nil {
		return "ok"
	}
	var (
		lost      *client.LostError
		peer      *client.PeerError
		exhausted *client.ExhaustedError
		down      *client.NotServingError
		timeout   *client.TimeoutError
	)
	switch {
	case errors.As(err, &lost):
		err = lost.Cause
		cause := ""
		switch {
		case errors.As(err, &exhausted):
			cause = fmt.Sprintf("exhausted after %d restarts", exhausted.Restarts)
		case errors.As(err, &down):
			cause = "nobody serves"
		case errors.As(err, &timeout):
			cause = timeout.Error()
		default:
			cause = fmt.Sprint(err)
		}
		return lost.Outcome.String() + ": " + cause
	case errors.As(err, &peer):
		return fmt.Sprintf("the peer says %d", peer.Code)
	}
	return "neither lost nor answered: " + err.Error()
}

// tumbling is a budget of limit restarts per minute, 100 ms apart.
func tumbling(t *testing.T, limit int) policy.Budget {
	t.Helper()
	b, err := policy.Tumbling(limit, time.Minute, policy.Constant(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sameError compares errors by what they say.
var sameError = cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })

// logbook is a logger, from level info, and what was logged without the times.
func logbook() (*bytes.Buffer, *slog.Logger) {
	var b bytes.Buffer
	return &b, slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// constant is a budget that forgives every death, each after the same delay.
func constant(t *testing.T, delay time.Duration) policy.Budget {
	t.Helper()
	b, err := policy.Tumbling(1000, time.Minute, policy.Constant(delay))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// defaultDelay is from a death to its replacement, under the default budget.
const defaultDelay = 100 * time.Millisecond

// sorted is a copy of lines whose order does not matter.
func sorted(lines []string) []string { return slices.Sorted(slices.Values(lines)) }
