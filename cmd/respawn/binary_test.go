//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// running is the command under test, as a process, and all that it started.
type running struct {
	*exec.Cmd
	t    *testing.T
	mark string // the value of markVar in the environment of all of them
	out  bytes.Buffer
	err  bytes.Buffer
}

// prepare prepares a run of the built command. Nothing of it may be left after
// the test, in /proc or among the temporary files.
func prepare(t *testing.T, args ...string) *running {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Cmd: exec.Command(path, args...), t: t, mark: rand.Text()}
	tmp := t.TempDir()
	// The race detector sleeps for a second at the exit of each process, for the sake
	// of goroutines that still run; what these leave is looked for.
	r.Env = append(os.Environ(), markVar+"="+r.mark, "TMPDIR="+tmp, "NO_COLOR=", "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	r.Stdout, r.Stderr = &r.out, &r.err
	t.Cleanup(func() {
		for _, pid := range waitForNone(r.mark) {
			t.Errorf("process %d is left", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
			t.Errorf("files left: %v %v", files, err)
		}
	})
	return r
}

// finish waits for the end of the command and returns what it leaves behind.
func (r *running) finish() said {
	r.t.Helper()
	err := r.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return said{r.ProcessState.ExitCode(), r.out.String(), r.err.String()}
}

func (r *running) start() {
	r.t.Helper()
	if err := r.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// executed runs the built command to its end.
func executed(t *testing.T, args ...string) said {
	t.Helper()
	r := prepare(t, args...)
	r.start()
	return r.finish()
}
