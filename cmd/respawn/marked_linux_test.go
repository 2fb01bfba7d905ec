package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// waitForNone waits until no process carries a mark, and returns those that stay.
// Whoever ends them has done so before the test asks; a moment is for the kernel,
// which takes a killed process apart after the kill.
func waitForNone(mark string) (left []int) {
	for range 100 {
		if left = marked(mark); len(left) == 0 {
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
	return left
}

// marked lists the live processes that carry a test's mark in their environment.
func marked(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, []byte(markVar+"="+mark)) {
			continue // zombies have none
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
