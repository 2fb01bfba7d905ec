//go:build linux

// Package proc looks at the processes of a peer from outside, through /proc, so
// that a test does not have to believe what the code under test says of them.
// A peer's processes are found by a marker in their environment, which every
// descendant inherits and which survives a change of parent or group.
package proc

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one live process that carries a marker.
type Process struct {
	PID, Parent, Group int
	Started            uint64 // clock ticks after boot
	Name               string
}

// Marked returns the live processes with that NAME=value in their environment,
// ancestors before their descendants. Zombies have ended and are left out.
func Marked(marker string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process that ends meanwhile is one that is not there.
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return string(v) == marker }) {
			continue
		}
		if p, ok := read(pid); ok {
			found = append(found, p)
		}
	}
	return sorted(found), nil
}

// Left waits until no live process carries the marker, and returns those that
// still do when the time is up. It is for processes that end by themselves soon
// after whoever started them, which no parent of ours can wait for.
func Left(marker string, timeout time.Duration) ([]Process, error) {
	for deadline := time.Now().Add(timeout); ; {
		found, err := Marked(marker)
		if err != nil || len(found) == 0 || !time.Now().Before(deadline) {
			return found, err
		}
		if err := awaitEnd(found[0].PID, deadline); err != nil {
			return found, err
		}
	}
}

// awaitEnd waits for the end of a process that is not our child.
func awaitEnd(pid int, deadline time.Time) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = readable(fd, int(max(time.Until(deadline), 0).Milliseconds()))
	return err
}

// readable waits until a descriptor can be read, and reports whether it could in
// time. The descriptor of a process can be when that has ended.
func readable(fd, timeoutMillis int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, timeoutMillis)
		if err != unix.EINTR {
			return n > 0, err
		}
	}
}

// read parses /proc/PID/stat (proc_pid_stat(5)): the name is in parentheses and
// may hold anything, so the fields are counted from its end.
func read(pid int) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	// Fields 3 (state), 4 (ppid), 5 (pgrp) and 22 (starttime).
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return Process{}, false
	}
	p := Process{PID: pid, Name: string(stat[open+1 : end])}
	p.Parent, _ = strconv.Atoi(fields[1])
	p.Group, _ = strconv.Atoi(fields[2])
	p.Started, _ = strconv.ParseUint(fields[19], 10, 64)
	return p, true
}

// sorted puts parents before children, elders before juniors.
func sorted(found []Process) []Process {
	byPID := map[int]Process{}
	for _, p := range found {
		byPID[p.PID] = p
	}
	depth := func(p Process) int {
		n := 0
		for ok := true; ok && n <= len(found); n++ {
			p, ok = byPID[p.Parent]
		}
		return n
	}
	slices.SortFunc(found, func(a, b Process) int {
		return cmp.Or(cmp.Compare(depth(a), depth(b)), cmp.Compare(a.Started, b.Started), cmp.Compare(a.PID, b.PID))
	})
	return found
}

// Unread waits until bytes are waiting in a process's stdin that it has not
// read, and returns how many. A stopped process reads nothing, so this tells
// when a frame was written to it. It fails after the time-out.
func Unread(pid int, timeoutMillis int) (int, error) {
	// Opening the link of a pipe gives another read end of the same pipe. It is
	// closed again before anything is killed, so that writers see the death.
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/0", pid), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("stdin of %d: %w", pid, err)
	}
	defer unix.Close(fd)
	ok, err := readable(fd, timeoutMillis)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("nothing was written to %d within %d ms", pid, timeoutMillis)
	}
	return unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD's name on Linux
}

// Stop stops a whole process group and waits until each of its marked members
// has really stopped, since the signal only asks for it.
func Stop(group int, members []Process) error {
	if err := unix.Kill(-group, unix.SIGSTOP); err != nil {
		return err
	}
	for _, p := range members {
		for state := ""; state != "T"; runtime.Gosched() { // nothing announces the stop of somebody else's child
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
			if err != nil {
				return err
			}
			state = strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
			if state == "Z" || state == "X" {
				return fmt.Errorf("%d ended instead of stopping", p.PID)
			}
		}
	}
	return nil
}
