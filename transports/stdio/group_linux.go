package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitWatch tells when a process has exited.
type exitWatch struct{}

func newExitWatch() (exitWatch, error) { return exitWatch{}, nil }

func (exitWatch) close() {}

// await returns when the process has exited, and leaves it to be reaped, so that
// its number stays its own.
func (exitWatch) await(pid int) {
	if awaitPolled(pid) {
		return
	}
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// awaitPolled waits by Go's poller, which costs no thread for each server. It
// reports false where the kernel can't (before Linux 5.10, and some sandboxes).
func awaitPolled(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	exited := false
	err = raw.Read(func(uintptr) bool {
		var info unix.Siginfo // its signal stays 0 while nothing is to be told
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		exited = err == nil && info.Signo != 0
		return exited || err != nil && !errors.Is(err, unix.EINTR)
	})
	return err == nil && exited
}

// groupMembers lists the processes of a group that are not zombies.
func groupMembers(pgid int) []Process {
	var members []Process
	for pid := range processes() {
		if st, ok := readStat(pid); ok && st.group == pgid && st.state != 'Z' && st.state != 'X' {
			members = append(members, Process{PID: pid, Name: st.name})
		}
	}
	return members
}

func processName(pid int) string {
	st, _ := readStat(pid)
	return st.name
}

// processes yields the numbers in /proc.
func processes() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer dir.Close()
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && !yield(pid) {
				return
			}
		}
	}
}

type stat struct {
	name  string
	state byte
	group int
}

// readStat reads the first fields of /proc/PID/stat: pid (name) state ppid pgrp.
// The name may hold spaces and parentheses, so the last parenthesis counts.
func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 0 || to < from {
		return stat{}, false
	}
	fields := strings.Fields(string(b[to+1:]))
	if len(fields) < 3 {
		return stat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	return stat{name: string(b[from+1 : to]), state: fields[0][0], group: group}, err == nil
}

// holders lists the processes other than us that have an end of one of the pipes
// open, as far as we may look.
func holders(pipes ...*os.File) []Process {
	want := map[string]bool{}
	for _, f := range pipes {
		if fi, err := f.Stat(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				want[fmt.Sprintf("pipe:[%d]", st.Ino)] = true
			}
		}
	}
	var found []Process
	for pid := range processes() {
		if pid != os.Getpid() && holdsAny(pid, want) {
			found = append(found, Process{PID: pid, Name: processName(pid)})
		}
	}
	return found
}

func holdsAny(pid int, want map[string]bool) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && want[target] {
			return true
		}
	}
	return false
}
