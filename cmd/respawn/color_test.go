//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal: what is written to the second file is read
// from the first.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestColoursAreForATerminalThatWantsThem(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  string
		args []string
		want bool
	}{
		{"a terminal", "NO_COLOR=", nil, true},
		{"NO_COLOR", "NO_COLOR=1", nil, false},
		{"a dumb terminal", "TERM=dumb", nil, false},
		{"JSON", "NO_COLOR=", []string{"-json"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, theirs := terminal(t)
			r := prepare(t, append(append([]string{"drill"}, append(tc.args, "--")...), server(t)...)...)
			r.Env = append(r.Env, tc.env)
			r.Stdout = theirs
			r.start()
			theirs.Close()
			out, _ := io.ReadAll(ours) // it ends with an error: nobody has the terminal open
			if got := r.finish(); got.code != exitOK {
				t.Fatalf("exit %d: %s", got.code, got.err)
			}
			if got := strings.Contains(string(out), "\x1b["); got != tc.want {
				t.Errorf("colours: %v, want %v:\n%q", got, tc.want, out)
			}
		})
	}
}
