//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guard is the parent's end of the guard: what it writes to the pipe is remembered,
// and the end of the pipe is the parent's death.
type guard struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	pipe *os.File
}

const (
	// guardWait bounds what a guard that was stopped or is starved can cost: a
	// write to it, and the wait for its end.
	guardWait = 100 * time.Millisecond
	guardPipe = 3 // the first of exec.Cmd.ExtraFiles
)

// startGuard starts the guard in a session of its own: what is sent to our group or
// our terminal must not reach it.
func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(self, guardArg)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Dir = "/" // it must keep no file system busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	return &guard{cmd: cmd, pipe: ours}, nil
}

// watch tells the guard which group to kill, in place of the one before.
func (g *guard) watch(group int) { g.tell(fmt.Sprintf("%d %s\n", group, birth(group))) }

// forget tells it that there is none.
func (g *guard) forget() { g.tell("\n") }

func (g *guard) tell(line string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardWait))
	_, _ = g.pipe.WriteString(line) // a guard that somebody killed guards nothing
}

// close ends the guard. A group that it still watches is killed: it was left behind
// by a stop that ran out of time.
func (g *guard) close() {
	if g == nil {
		return
	}
	g.pipe.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = g.cmd.Wait()
	}()
	select {
	case <-gone:
	case <-time.After(guardWait):
	}
}

// isGuard makes this process a guard if it was started as one, and says so when it
// has done its duty.
func isGuard(args []string) bool {
	if len(args) != 1 || args[0] != guardArg {
		return false
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	var group int
	var born string
	in := bufio.NewReader(os.NewFile(guardPipe, "guarded"))
	for {
		line, err := in.ReadString('\n')
		if err != nil { // a line without its end is not one
			break
		}
		group, born = 0, ""
		_, _ = fmt.Sscan(strings.TrimSpace(line), &group, &born)
	}
	if group > 1 && stillOurs(group, born) {
		for errors.Is(syscall.Kill(-group, syscall.SIGKILL), syscall.EINTR) {
		}
	}
	return true
}
