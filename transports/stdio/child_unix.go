//go:build unix

package stdio

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// child is the server's process, the leader of a group of its own.
type child struct {
	cmd    *exec.Cmd
	pid    int
	exited chan struct{} // closed when it has exited; it is not reaped then
	status Status        // valid after reap
}

func startChild(cmd *exec.Cmd) (*child, error) {
	watch, err := newExitWatch()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startWithUs(cmd); err != nil {
		watch.close()
		return nil, err
	}
	c := &child{cmd: cmd, pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		defer watch.close()
		watch.await(c.pid)
	}()
	return c, nil
}

// close lets go of what the child held of ours: nothing here.
func (c *child) close() {}

func (c *child) process() Process { return Process{PID: c.pid, Name: processName(c.pid)} }

// terminate and kill signal the whole group. The leader must not be reaped yet:
// until then its number can't belong to another group. That the group is empty,
// or not ours to signal, shows in what is left of it.
func (c *child) terminate() {
	_ = syscall.Kill(-c.pid, syscall.SIGTERM)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT) // a suspended process hears SIGTERM only then
}
func (c *child) kill() { _ = syscall.Kill(-c.pid, syscall.SIGKILL) }

// others lists the group without its leader and without zombies.
func (c *child) others() []Process {
	members := groupMembers(c.pid)
	for i, p := range members {
		if p.PID == c.pid {
			return append(members[:i:i], members[i+1:]...)
		}
	}
	return members
}

// reap takes the exit status, after exited was closed. Without one, somebody
// else in our process was faster (a wait for any child).
func (c *child) reap() {
	defer childGone()
	state, err := c.cmd.Process.Wait()
	if err != nil {
		c.cmd.Process.Release() // a Wait that failed keeps its descriptor
		return
	}
	ws := state.Sys().(syscall.WaitStatus)
	switch {
	case ws.Exited():
		c.status = Status{Kind: ExitCode, Code: ws.ExitStatus()}
	case ws.Signaled():
		c.status = Status{Kind: ExitSignal, Signal: ws.Signal().String()}
	}
}

// abandon leaves a process that can't be killed (state D) to be reaped whenever
// the kernel lets it go.
func (c *child) abandon() {
	go func() {
		<-c.exited
		c.cmd.Process.Wait()
		childGone()
	}()
}

// remains lists what is left of the group after the leader was reaped. Signal 0
// hurts nobody should the number have been given out again, and the list of
// members settles whether only zombies are left, which a container without an
// init keeps for ever. Orphans that fell to us (we may be that init) are reaped,
// after the list: who is not on it has ended.
func (c *child) remains() []Process {
	if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
		return nil
	}
	left := groupMembers(c.pid)
	for {
		pid, err := syscall.Wait4(-c.pid, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return left
		}
	}
}

// explain makes "no such file" say which one, where it is not the program: its
// working directory, or the interpreter that a script names.
func explain(cmd *exec.Cmd, err error) error {
	if !errors.Is(err, syscall.ENOENT) || cmd.Err != nil {
		return err
	}
	if cmd.Dir != "" {
		if _, dirErr := os.Stat(cmd.Dir); dirErr != nil {
			return &os.PathError{Op: "chdir", Path: cmd.Dir, Err: syscall.ENOENT}
		}
	}
	if _, statErr := os.Stat(cmd.Path); statErr == nil {
		return &os.PathError{Op: "exec (the interpreter in its first line is missing)", Path: cmd.Path, Err: syscall.ENOENT}
	}
	return err
}
