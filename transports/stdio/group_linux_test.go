package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// escape starts a process in a session of its own that plays the second argument's
	// role and keeps the first one's pipe of ours ("stdout", "stderr") open, says its
	// pid, and leaves with its stdin.
	roles["escape"] = func(args []string) {
		conf := role(args[1])
		cmd := exec.Command(conf.Path)
		cmd.Env = conf.Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		switch args[0] {
		case "stdout":
			cmd.Stdout = os.Stdout
		case "stderr":
			cmd.Stderr = os.Stderr
		}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Printf("{\"escaped\":%d}\n", cmd.Process.Pid)
		io.Copy(io.Discard, os.Stdin)
	}
	roles["forever"] = func([]string) { forever() }
	// flooding writes to its stdout until that breaks.
	roles["flooding"] = func([]string) {
		for err := error(nil); err == nil; {
			_, err = fmt.Println(`{"jsonrpc":"2.0","method":"flood"}`)
		}
	}
	// parent serves a server that nothing but SIGKILL ends, says its pid, and
	// stays.
	roles["parent"] = func([]string) {
		conf := role("stubborn")
		conf.OnStart = func(p stdio.Process) { fmt.Printf("{\"child\":%d}\n", p.PID) }
		conf.Factory().New().Serve(context.Background(), func(transports.Event) {})
	}
}

// pidfd names a process that is not our child for as long as we hold it.
func pidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// awaitDeath waits for the process behind a pidfd to end.
func awaitDeath(t *testing.T, fd int) {
	t.Helper()
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			t.Fatal(err)
		case n == 0:
			t.Fatal("the process lives on")
		default:
			return
		}
	}
}

func (r *run) number(name string) (n int) {
	r.t.Helper()
	if _, err := fmt.Sscanf(r.heard(name), `{"`+name+`":%d}`, &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// A process that left the group can't be killed. Serve returns all the same, with
// our ends closed, and names it.
func TestB061_AProcessThatLeftTheGroupIsNamed(t *testing.T) {
	for _, tt := range []struct {
		pipe string
		end  func(*run)
	}{
		{"stdout", func(r *run) { r.stop(errTestOver) }},
		{"stderr", func(r *run) { r.stop(errTestOver) }},
		{"stdout", func(r *run) { r.signal(syscall.SIGKILL) }},
	} {
		t.Run(tt.pipe, func(t *testing.T) {
			conf := role("escape", tt.pipe, "forever")
			conf.ReadWait = 50 * time.Millisecond
			r := start(t, conf)
			escaped := r.number("escaped")
			fd := pidfd(t, escaped)
			tt.end(r)
			var exit *stdio.ExitError
			err := r.ended()
			if !errors.As(err, &exit) {
				t.Fatalf("Serve returned %v, want an *ExitError", err)
			}
			if diff := cmp.Diff([]stdio.Process{{PID: escaped, Name: exit.Escaped[0].Name}}, exit.Escaped); diff != "" {
				t.Errorf("escaped (-want +got):\n%s", diff)
			}
			if len(exit.Killed) > 0 {
				t.Errorf("killed %v, want nobody", exit.Killed)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("out of reach %d (", escaped)) {
				t.Errorf("%q does not name %d", err, escaped)
			}
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
				t.Fatal(err)
			}
			awaitDeath(t, fd)
		})
	}
}

// Whatever such a process writes, we stop reading.
func TestB061_AProcessThatLeftTheGroupAndFloodsStdoutKeepsNobody(t *testing.T) {
	conf := role("escape", "stdout", "flooding")
	conf.ReadWait = 50 * time.Millisecond
	r := start(t, conf)
	fd := pidfd(t, r.number("escaped"))
	r.stop(errTestOver)
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) || len(exit.Escaped) != 1 {
		t.Errorf("Serve returned %v, want an *ExitError with what escaped", err)
	}
	awaitDeath(t, fd) // its stdout is broken
}

// A process that left the group and holds none of our pipes is a daemon of its
// own: it delays nothing.
func TestAProcessThatLeftTheGroupAndOurPipesIsNoBusinessOfOurs(t *testing.T) {
	r := start(t, role("escape", "none", "forever"))
	fd := pidfd(t, r.number("escaped"))
	r.stop(errTestOver)
	if err := r.ended(); err != errTestOver {
		t.Errorf("Serve returned %v, want the bare cause", err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	awaitDeath(t, fd)
}

func TestTheChildDiesWithUs(t *testing.T) {
	r := start(t, role("parent"))
	fd := pidfd(t, r.number("child"))
	r.signal(syscall.SIGKILL)
	awaitDeath(t, fd)
	r.ended()
}

// The parent-death signal belongs to the thread that forked. Threads that end, as
// those of locked goroutines do, must not take a child with them.
func TestTheChildOutlivesOurThreads(t *testing.T) {
	r := start(t, role("echo")).ready()
	var ending sync.WaitGroup
	all := make(chan struct{})
	for i := range 64 {
		ending.Go(func() {
			runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
			if i == 63 {
				close(all)
			}
			<-all
		})
	}
	ending.Wait()
	for range 20 {
		r.heard(answerTo(r.mustRequest(0)))
	}
}

// Where we are the reaper of orphans, as the first process of a container is, what
// a server left in its group falls to us and leaves no zombie.
func TestOrphansThatFallToUsAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	conf := shell(tree)
	conf.ReadWait = 50 * time.Millisecond
	r := start(t, conf)
	r.heard("up")
	r.signal(syscall.SIGKILL)
	r.ended()
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-r.pid(), &status, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("process %d of the group was left to us (%v)", pid, err)
	}
}
