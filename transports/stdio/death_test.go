//go:build unix

package stdio_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// lastwords says one line on stderr, and leaves at the first request with as many
	// as its argument says.
	roles["lastwords"] = func(args []string) {
		var n int
		fmt.Sscan(args[0], &n)
		fmt.Fprintln(os.Stderr, "one")
		os.Stdin.Read(make([]byte, 1))
		os.Stderr.WriteString(strings.Repeat("a line of words\n", n))
	}
	// burst answers its argument's number of requests in one write and leaves.
	roles["burst"] = func(args []string) {
		var n int
		fmt.Sscan(args[0], &n)
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{}}\n", i+1)
		}
		io.WriteString(os.Stdout, b.String())
	}
	// mute closes its stdout and stays until its stdin ends, or for good.
	roles["mute"] = func(args []string) {
		signal.Ignore(syscall.SIGTERM)
		os.Stdout.Close()
		if len(args) > 0 {
			forever()
		}
		io.Copy(io.Discard, os.Stdin)
	}
	// unplugged closes its stdin and stays.
	roles["unplugged"] = func([]string) {
		os.Stdin.Close()
		fmt.Println(`{"jsonrpc":"2.0","method":"up"}`)
		forever()
	}
}

// deadly makes each sign of an end come first, with a server that ends by nothing
// else.
var deadly = []struct {
	sign string
	conf func() stdio.Config
	die  func(r *run)
	want error // the reason, nil for an exit of its own
}{
	{"exit", func() stdio.Config { return role("echo") }, func(r *run) { r.signal(syscall.SIGKILL) }, nil},
	{"stdout ends", func() stdio.Config { return role("mute", "for good") }, func(*run) {}, stdio.ErrClosedStdout},
	{"a write fails", func() stdio.Config { return role("unplugged") }, func(r *run) {
		r.heard("up")
		r.mustRequest(0)
	}, syscall.EPIPE},
	{"a write stalls", func() stdio.Config {
		conf := role("deaf")
		conf.WriteStall = 20 * time.Millisecond
		return conf
	}, func(r *run) {
		r.heard("up")
		r.mustRequest(1 << 20)
	}, stdio.ErrStalled},
}

func TestS6_WhicheverSignOfTheEndComesFirst(t *testing.T) {
	for _, tt := range deadly {
		t.Run(tt.sign, func(t *testing.T) {
			conf := tt.conf()
			conf.ExitWait = 50 * time.Millisecond
			r := start(t, conf).ready()
			tt.die(r)
			err := r.ended()
			var exit *stdio.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("Serve returned %v, want an *ExitError", err)
			}
			if tt.want == nil && exit.Reason != nil || !errors.Is(err, tt.want) && tt.want != nil {
				t.Errorf("reason %v, want %v", exit.Reason, tt.want)
			}
			if tt.want != nil && (len(exit.Killed) != 1 || exit.Killed[0].PID != r.pid()) {
				t.Errorf("killed %v, want the server, which stayed", exit.Killed)
			}
			want := stdio.Status{Kind: stdio.ExitSignal, Signal: syscall.SIGKILL.String()}
			if diff := cmp.Diff(want, exit.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if _, err := r.request(0); err != transports.ErrGone {
				t.Errorf("Send returned %v, want ErrGone", err)
			}
		})
	}
}

// The server stays for ever after the first sign, so Serve is still running when
// Send refuses.
func TestS6_SendsAreRefusedFromTheFirstSign(t *testing.T) {
	for _, tt := range deadly {
		if tt.sign == "exit" { // nothing comes between it and the end of Serve
			continue
		}
		t.Run(tt.sign, func(t *testing.T) {
			conf := tt.conf()
			conf.ExitWait = patience
			r := start(t, conf).ready()
			tt.die(r)
			for {
				if _, err := r.request(0); err == transports.ErrGone {
					break
				}
				select {
				case <-r.done:
					t.Fatal("Serve returned before Send refused anything")
				default:
					runtime.Gosched()
				}
			}
			select {
			case <-r.done:
				t.Error("Serve returned, and its server runs")
			default:
			}
			r.signal(syscall.SIGKILL)
			r.ended()
		})
	}
}

// A server that ends its stdout and leaves by itself is waited for: its exit code
// is told.
func TestS6_AnExitThatFollowsIsTold(t *testing.T) {
	r := start(t, shell("exec >&- 2>&-; cat >/dev/null; exit 7"))
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) || exit.Reason != nil {
		t.Fatalf("Serve returned %v, want an *ExitError without another reason", err)
	}
	if diff := cmp.Diff(stdio.Status{Kind: stdio.ExitCode, Code: 7}, exit.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// Somebody else in the process waits for any child and takes the exit status.
func TestS6_AnExitStatusThatIsNotKnownIsUnknown(t *testing.T) {
	r := start(t, role("echo")).ready()
	r.signal(syscall.SIGSTOP) // it can't be reaped before the thief waits for it
	stolen := make(chan error)
	go func() {
		_, err := syscall.Wait4(r.pid(), nil, 0, nil)
		stolen <- err
	}()
	r.signal(syscall.SIGKILL)
	thief := <-stolen
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) {
		t.Fatalf("Serve returned %v, want an *ExitError", err)
	}
	want := stdio.Status{Kind: stdio.ExitUnknown}
	if thief != nil { // Serve was faster
		want = stdio.Status{Kind: stdio.ExitSignal, Signal: syscall.SIGKILL.String()}
	}
	if exit.Status != want {
		t.Errorf("status %v, want %v (the thief got %v)", exit.Status, want, thief)
	}
}

func TestS8_NothingOfAnIncarnationIsLeftForTheNext(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		conf := role("echo")
		for range 3 {
			r := start(t, conf).ready()
			r.heard(answerTo(r.mustRequest(0)))
			r.signal(how)
			r.ended()
			if left := marked(r.mark); len(left) > 0 { // start looks for the rest
				t.Errorf("left when Serve returned: %v", left)
			}
		}
	}
}

// start fails a test whose transport emits after Serve returned. Here the server
// goes on to write while it is stopped.
func TestS9_NothingIsEmittedAfterServeReturned(t *testing.T) {
	conf := shell(`while echo '{"jsonrpc":"2.0","method":"more"}'; do :; done`)
	conf.StdinWait = 1
	r := start(t, conf)
	r.heard("more")
	r.stop(errTestOver)
	r.ended()
}

func TestS12_TheCauseHasStatusAndLastWords(t *testing.T) {
	conf := shell("echo first >&2; printf 'panic: \\033[31mred\\033[0m\\nat main.go:7' >&2; exit 3")
	conf.StderrTail = 35
	r := start(t, conf)
	err := r.ended()
	var exit *stdio.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("Serve returned %v, want an *ExitError", err)
	}
	all := "first\npanic: \x1b[31mred\x1b[0m\nat main.go:7"
	if got, want := string(exit.Stderr), all[len(all)-35:]; got != want {
		t.Errorf("tail %q, want the last 35 bytes %q", got, want)
	}
	want := fmt.Sprintf("stdio: sh (pid %d) ended: exit code 3; stderr: st | panic: red | at main.go:7", exit.PID)
	if err.Error() != want {
		t.Errorf("error\n%q, want\n%q", err, want)
	}
}

func TestB066_WhatWasWrittenBeforeAnExitIsDelivered(t *testing.T) {
	const n = 1000
	r := start(t, role("burst", fmt.Sprint(n)))
	for range n {
		r.request(0) // those that come too late are refused, and that is fine
	}
	if err := r.ended(); err == nil {
		t.Error("Serve returned nil")
	}
	var got, want []string
	for _, e := range r.all() {
		if m, ok := e.(transports.Message); ok {
			got = append(got, string(m.Frame))
		}
	}
	for i := range n {
		want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i+1))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%.500s", diff)
	}
}

// On a machine that is busy with others the time to read may be over before
// anything was read.
func TestB066_WhatIsInThePipesWhenTheTimeIsUpIsDelivered(t *testing.T) {
	const n = 3000 // lines: more than one read brings, and less than a pipe holds
	conf := role("lastwords", fmt.Sprint(n))
	conf.ReadWait = 1
	gone := make(chan struct{})
	r := start(t, conf, func(e transports.Event) {
		if e == (transports.Diagnostic{Line: "one"}) {
			<-gone // nothing more is read
		}
		for range 1000 { // as on a machine that is busy
			runtime.Gosched()
		}
	})
	r.until("a line", func(e transports.Event) bool { return e == transports.Diagnostic{Line: "one"} })
	r.mustRequest(0)
	for syscall.Kill(r.pid(), 0) == nil { // until it is reaped
		runtime.Gosched()
	}
	close(gone)
	r.ended()
	got := 0
	for _, e := range r.all() {
		if e == (transports.Diagnostic{Line: "a line of words"}) {
			got++
		}
	}
	if got != n {
		t.Errorf("%d lines of %d", got, n)
	}
}

func TestB066_ANormalStopIsNoError(t *testing.T) {
	r := start(t, role("echo")).ready()
	for range 100 {
		r.mustRequest(10)
	}
	r.stop(errTestOver)
	if err := r.ended(); err != errTestOver {
		t.Errorf("Serve returned %v, want the cause and nothing else", err)
	}
	for _, e := range r.all() {
		if d, ok := e.(transports.Diagnostic); ok {
			t.Errorf("the server complained: %s", d.Line)
		}
	}
}
