package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// birth names the moment when a process started, in ticks since boot; "?" if it
// can't be read.
func birth(pid int) string {
	started, ok := readBirth(pid)
	if !ok {
		return "?"
	}
	return started
}

// stillOurs reports whether a group is the one whose leader started at born. Its
// number is given to another process only after the leader was reaped and nobody
// is in the group any more, and then that process started later. Without a leader
// the group is what ours left: it was reaped a moment ago, by whoever reaps
// orphans.
func stillOurs(group int, born string) bool {
	started, ok := readBirth(group)
	return !ok || started == born
}

// readBirth reads field 22 of /proc/PID/stat (proc_pid_stat(5)). The name, field 2,
// may hold anything, so the last parenthesis counts.
func readBirth(pid int) (string, bool) {
	const started = 22 - 3 // counted from the state, which follows the name
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) <= started {
		return "", false
	}
	return fields[started], true
}
