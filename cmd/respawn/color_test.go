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
	_, tty := terminal(t)
	t.Cleanup(func() { tty.Close() })
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	for _, tc := range []struct {
		name          string
		out           io.Writer
		noColor, term string
		want          bool
	}{
		{"a terminal", tty, "", "xterm", true},
		{"NO_COLOR", tty, "1", "xterm", false},
		{"a dumb terminal", tty, "", "dumb", false},
		{"a file", file, "", "xterm", false},
		{"no file at all", new(strings.Builder), "", "xterm", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tc.noColor)
			t.Setenv("TERM", tc.term)
			if got := inColor(tc.out); got != tc.want {
				t.Errorf("in colour: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestADrillOnATerminalIsInColour(t *testing.T) {
	ours, theirs := terminal(t)
	r := prepare(t, append([]string{"drill", "--"}, server(t)...)...)
	r.Stdout = theirs
	r.start()
	theirs.Close()
	out, _ := io.ReadAll(ours) // it ends with an error: nobody has the terminal open
	if got := r.finish(); got.code != exitOK {
		t.Fatalf("exit %d: %s", got.code, got.err)
	}
	for _, says := range []string{"\x1b[36mstate   \x1b[0m ", "\x1b[33mkill    \x1b[0m ", "\x1b[32mheld\x1b[0m  it serves"} {
		if !strings.Contains(string(out), says) {
			t.Errorf("the terminal does not show %q:\n%q", says, out)
		}
	}
}
