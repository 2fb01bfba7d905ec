package drill

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// groupLeft lists the processes of a group that still run.
func groupLeft(pgid int) []int {
	if groupGone(pgid) {
		return nil
	}
	return running(func(pid, group int) bool { return group == pgid })
}

// marked lists the running processes whose environment holds NAME=value, and
// reports whether the system tells at all.
func marked(mark string) (pids []int, ok bool) {
	return running(func(pid, _ int) bool {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), mark)
	}), true
}

// running lists the processes for which is holds. Zombies have ended: a container
// without an init keeps those of orphans for ever.
func running(is func(pid, group int) bool) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// PID (NAME) STATE PPID PGRP …, where the name may hold anything (proc_pid_stat(5)).
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		if group, err := strconv.Atoi(fields[2]); err == nil && is(pid, group) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// openFiles counts our descriptors, and reports whether the system tells.
func openFiles() (n int, ok bool) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err == nil
}
