//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// wrapped is a legacy server that stays whatever is asked of it, behind the
	// shell script "nest"; with the argument "mute" it never answers.
	roles["wrapped"] = func(args []string) {
		signal.Ignore(syscall.SIGTERM)
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				forever()
			}
			if len(args) == 0 {
				legacy(line)
			}
		}
	}
	// obedient is a legacy server that leaves with its stdin.
	roles["obedient"] = func([]string) {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			legacy(lines.Bytes())
		}
	}
	// oneburst serves the opening, collects its argument's number of requests,
	// answers them in one write and exits 0 at once.
	roles["oneburst"] = func(args []string) {
		var n int
		fmt.Sscan(args[0], &n)
		in := bufio.NewReader(os.Stdin)
		var out bytes.Buffer
		for n > 0 {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if json.Unmarshal(line, &m); m.Method != "ping" {
				legacy(line)
				continue
			}
			fmt.Fprintf(&out, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
			n--
		}
		os.Stdout.Write(out.Bytes())
	}
}

// legacy answers initialize, and any other request but the probe with {}.
func legacy(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(line, &m) != nil || m.ID == nil {
		return
	}
	switch m.Method {
	case "server/discover":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`+"\n", m.ID)
	case "initialize":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"t","version":"1"}}}`+"\n", m.ID)
	default:
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
	}
}

// nest runs the server as a child of a shell that waits for it, beside another
// child that holds stdout and ignores SIGTERM from its birth.
func nest(args string) stdio.Config {
	conf := shell(`trap '' TERM; (sleep 100000; :) & trap - TERM; ` + roleVar + `=wrapped "$SELF" ` + args)
	conf.StdinWait, conf.TermWait, conf.ReadWait = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	return conf
}

// leftBehind checks, when the test is over, what nest left.
func leftBehind(t *testing.T, conf *stdio.Config) {
	goroutines, fds, mark := goleak.IgnoreCurrent(), openFiles(t), rand.Text()
	conf.Env = append(conf.Env, markVar+"="+mark)
	t.Cleanup(func() {
		if left := marked(mark); len(left) > 0 {
			t.Errorf("processes left: %v", left)
		}
		goleak.VerifyNone(t, goroutines)
		if now := openFiles(t); len(now) != len(fds) {
			t.Errorf("open files: %v before, %v after", fds, now)
		}
	})
}

func TestB059_ThroughTheClientNothingIsLeft(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	t.Run("after Close", func(t *testing.T) {
		conf := nest("")
		leftBehind(t, &conf)
		c, err := client.Connect(ctx, conf.Factory(), &client.Config{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("after a crash, a restart and Close", func(t *testing.T) {
		conf := nest("")
		leftBehind(t, &conf)
		pids, back := make(chan int, 10), make(chan client.Reconnect, 1)
		conf.OnStart = func(p stdio.Process) { pids <- p.PID }
		c, err := client.Connect(ctx, conf.Factory(), &client.Config{
			Logger: quiet, Budget: policy.Patient(), OnReconnect: func(r client.Reconnect) { back <- r },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(<-pids, syscall.SIGKILL); err != nil { // the wrapper alone
			t.Fatal(err)
		}
		select {
		case r := <-back:
			var exit *stdio.ExitError
			if !errors.As(r.Cause, &exit) || len(exit.Killed) == 0 {
				t.Errorf("the cause %v does not name what the wrapper left", r.Cause)
			}
		case <-ctx.Done():
			t.Fatal("no reconnect")
		}
		if err := c.Call(ctx, "ping", nil, nil); err != nil {
			t.Errorf("a call to the replacement: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("after a handshake that timed out", func(t *testing.T) {
		conf := nest("mute")
		leftBehind(t, &conf)
		_, err := client.Connect(ctx, conf.Factory(), &client.Config{
			Logger: quiet, ProbeTimeout: 20 * time.Millisecond, StartTimeout: 100 * time.Millisecond,
		})
		if err == nil {
			t.Fatal("Connect succeeded with a server that never answers")
		}
	})
}

func TestB061_CloseIsBoundedAndTheLogNamesWhatWasKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conf := nest("")
	leftBehind(t, &conf)
	var log buffer
	c, err := client.Connect(ctx, conf.Factory(), &client.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %v, and its bounds add up to 2.2 s", took)
	}
	if !strings.Contains(log.String(), "killed") || !strings.Contains(log.String(), "(sh)") {
		t.Errorf("the log does not name what was killed:\n%s", log.String())
	}
}

func TestB066_ThroughTheClientEveryAnswerBeforeAnExitArrives(t *testing.T) {
	const n = 1000
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conf := role("oneburst", fmt.Sprint(n))
	leftBehind(t, &conf)
	c, err := client.Connect(ctx, conf.Factory(), &client.Config{Logger: slog.New(slog.DiscardHandler), Budget: policy.Never()})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		calls.Go(func() { errs <- c.Call(ctx, "ping", nil, nil) })
	}
	calls.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if err != nil {
			failed++
			t.Logf("%v", err)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d calls failed, and all were answered before the exit", failed, n)
	}
	<-c.Done()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestB066_OurOwnCloseLogsNoError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conf := role("obedient")
	leftBehind(t, &conf)
	var log buffer
	c, err := client.Connect(ctx, conf.Factory(), &client.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(ctx, "ping", nil, nil); err != nil {
		t.Error(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log complains:\n%s", log.String())
	}
}
