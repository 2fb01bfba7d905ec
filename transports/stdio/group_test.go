//go:build unix

package stdio_test

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// tree is a wrapper with a child that ignores SIGTERM and the end of stdin, and a
// grandchild that does too and holds stdout open. The wrapper itself leaves when
// its stdin ends. When it says that it is up, all three ignore SIGTERM: they are
// born so.
const tree = `
trap '' TERM
(sleep 100000 >/dev/null 2>&1; :) &
((sleep 100000; :) & echo '{"jsonrpc":"2.0","method":"up"}'; wait) &
trap - TERM
cat >/dev/null`

func TestB059_TheWholeGroupIsGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(r *run)
	}{
		{"after a stop", func(r *run) {
			r.heard("up")
			r.stop(errTestOver)
		}},
		{"after a crash of the wrapper", func(r *run) {
			r.heard("up")
			r.signal(syscall.SIGKILL)
		}},
		{"after a stop before it said anything", func(r *run) { r.stop(errTestOver) }},
		{"after a stop while the wrapper was suspended", func(r *run) {
			r.heard("up")
			r.signal(syscall.SIGSTOP)
			r.stop(errTestOver)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conf := shell(tree)
			conf.StdinWait, conf.TermWait = 50*time.Millisecond, 50*time.Millisecond
			conf.ReadWait = 50 * time.Millisecond
			r := start(t, conf).ready()
			tt.end(r)
			err := r.ended()
			if left := marked(r.mark); len(left) > 0 {
				t.Errorf("left when Serve returned: %v", left)
			}
			t.Log(err)
		})
	}
}

func TestB059_TheReportNamesWhatWasLeftInTheGroup(t *testing.T) {
	conf := shell(tree)
	conf.ReadWait = 50 * time.Millisecond
	r := start(t, conf)
	r.heard("up")
	r.signal(syscall.SIGKILL)
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) {
		t.Fatalf("Serve returned %v, want an *ExitError", err)
	}
	if slices.ContainsFunc(exit.Killed, func(p stdio.Process) bool { return p.PID == exit.PID }) {
		t.Errorf("killed %v, and the server %d was not ours to kill", exit.Killed, exit.PID)
	}
	if canList := marked(r.mark) != nil || len(openFiles(t)) > 0; canList && len(exit.Killed) < 3 {
		t.Errorf("killed %v, want the child, the grandchild and their sleeps", exit.Killed)
	}
	if len(exit.Escaped) > 0 {
		t.Errorf("escaped: %v, want none", exit.Escaped)
	}
}

// A server that does what SIGTERM asks is not killed.
func TestS26_SIGTERMComesBeforeSIGKILL(t *testing.T) {
	conf := role("polite")
	conf.StdinWait = 1
	conf.TermWait = patience
	r := start(t, conf)
	r.heard("up")
	r.stop(errTestOver)
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) || !errors.Is(err, errTestOver) {
		t.Fatalf("Serve returned %v, want an *ExitError that wraps the cause", err)
	}
	if want := (stdio.Status{Kind: stdio.ExitCode, Code: 5}); exit.Status != want {
		t.Errorf("status %v, want %v", exit.Status, want)
	}
	r.heard("bye") // what it said last was read
}

func TestS26_ASuspendedServerHearsSIGTERM(t *testing.T) {
	conf := role("deaf")
	conf.StdinWait, conf.TermWait = 1, patience
	r := start(t, conf)
	r.heard("up")
	r.signal(syscall.SIGSTOP)
	r.stop(errTestOver)
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) {
		t.Fatalf("Serve returned %v, want an *ExitError", err)
	}
	if want := (stdio.Status{Kind: stdio.ExitSignal, Signal: syscall.SIGTERM.String()}); exit.Status != want {
		t.Errorf("status %v, want %v", exit.Status, want)
	}
}

func TestS26_StdinEndsBeforeAnySignal(t *testing.T) {
	conf := shell(`trap 'exit 6' TERM; cat >/dev/null; echo '{"jsonrpc":"2.0","method":"bye"}'`)
	conf.StdinWait = patience
	r := start(t, conf).ready()
	r.stop(errTestOver)
	if err := r.ended(); err != errTestOver {
		t.Errorf("Serve returned %v, want the bare cause: nobody had to be killed", err)
	}
	r.heard("bye")
}

func TestS26_AStopThatHangsIsBounded(t *testing.T) {
	conf := role("stubborn")
	conf.StdinWait, conf.TermWait, conf.KillWait, conf.ReadWait = 100*time.Millisecond, 100*time.Millisecond, time.Second, 100*time.Millisecond
	r := start(t, conf)
	r.heard("up")
	began := time.Now()
	r.stop(errTestOver)
	r.ended()
	const slack = 5 * time.Second // of a busy machine
	if took, bound := time.Since(began), 1300*time.Millisecond; took > bound+slack {
		t.Errorf("the stop took %v, its bounds add up to %v", took, bound)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("the stop took %v: it did not wait after the end of stdin and after SIGTERM", took)
	}
}

func TestB061_AStopIsBoundedAndSaysWhatItKilled(t *testing.T) {
	conf := role("stubborn")
	conf.StdinWait, conf.TermWait = 1, 1
	r := start(t, conf)
	r.heard("up")
	r.stop(os.ErrDeadlineExceeded)
	err := r.ended()
	var exit *stdio.ExitError
	if !errors.As(err, &exit) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Serve returned %v, want an *ExitError that wraps the cause", err)
	}
	if len(exit.Killed) != 1 || exit.Killed[0].PID != exit.PID {
		t.Errorf("killed %v, want the server %d", exit.Killed, exit.PID)
	}
}

// The context that ends while the server is dying changes nothing: the death was
// first.
func TestS6_AStopDuringADeathIsThatDeath(t *testing.T) {
	conf := role("mute", "for good")
	conf.ExitWait = 100 * time.Millisecond
	r := start(t, conf).ready()
	for {
		if _, err := r.request(0); err == transports.ErrGone { // the end of stdout was seen
			break
		}
	}
	r.stop(errTestOver)
	if err := r.ended(); errors.Is(err, errTestOver) || !errors.Is(err, stdio.ErrClosedStdout) {
		t.Errorf("Serve returned %v, want the death that came first", err)
	}
}
