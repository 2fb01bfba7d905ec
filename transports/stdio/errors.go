package stdio

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
)

var (
	// ErrStalled is the reason of an end by Config.WriteStall.
	ErrStalled = errors.New("stdio: the server does not read its stdin")
	// ErrClosedStdout is the reason of an end whose first sign was the end of
	// the server's stdout.
	ErrClosedStdout = errors.New("stdio: the server closed its stdout")
	// ErrServed is returned by a second Serve of one transport.
	ErrServed = errors.New("stdio: a transport is used once")
)

// ConfigError says which field of a [Config] has no meaning.
type ConfigError struct{ Field, Value, Why string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("stdio: Config.%s %s: %s", e.Field, e.Value, e.Why)
}

// Permanent is true: trying again changes nothing.
func (e *ConfigError) Permanent() bool { return true }

// StartError says that the program at Path could not be started; nothing of it
// runs. errors.Is finds fs.ErrNotExist for a missing program or directory (also
// where a name is not in PATH), fs.ErrPermission for one that we may not run.
type StartError struct {
	Path string
	Err  error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("stdio: cannot start %q: %v", e.Path, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// Is makes a name that is not in PATH fs.ErrNotExist, which os/exec does not.
func (e *StartError) Is(target error) bool {
	return target == fs.ErrNotExist && errors.Is(e.Err, exec.ErrNotFound)
}

// Permanent is true if permission was denied: no replacement will fare better.
func (e *StartError) Permanent() bool { return errors.Is(e.Err, fs.ErrPermission) }

// Process is a process as a report names it. The name is what the system calls
// it now, "" if it could not be read.
type Process struct {
	PID  int
	Name string
}

func (p Process) String() string {
	if p.Name == "" {
		return fmt.Sprint(p.PID)
	}
	return fmt.Sprintf("%d (%s)", p.PID, p.Name)
}

// ExitKind says how a process ended.
type ExitKind uint8

const (
	ExitUnknown ExitKind = iota // somebody else reaped it, or it can't be killed
	ExitCode                    // Status.Code holds its exit code
	ExitSignal                  // Status.Signal names the signal that killed it
)

// Status is how the server's process ended.
type Status struct {
	Kind   ExitKind
	Code   int
	Signal string
}

func (s Status) String() string {
	switch s.Kind {
	case ExitCode:
		return fmt.Sprintf("exit code %d", s.Code)
	case ExitSignal:
		return "signal: " + s.Signal
	default:
		return "unknown exit"
	}
}

// ExitError is the cause of death of a server that was started.
type ExitError struct {
	Label  string
	PID    int
	Status Status
	// Reason is the first sign of the end if it was not the exit itself:
	// ErrClosedStdout, ErrStalled, an error of a write, or the cause of the
	// context that told Serve to stop. Unwrap returns it.
	Reason error
	// Stderr is the last bytes of the server's stderr, as they came.
	Stderr []byte
	// Killed are the processes that we had to kill with a signal: the server
	// itself if it did not leave when asked, and what it left in its group.
	Killed []Process
	// Escaped are processes that outlived the end: they left the group (setsid)
	// and hold one of our pipes, or could not be killed.
	Escaped []Process
}

// tailShown is how much of the stderr tail the one line of Error shows: what fits
// a log line next to the rest.
const tailShown = 300

func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stdio: %s (pid %d) ended: %s", e.Label, e.PID, e.Status)
	if e.Reason != nil {
		fmt.Fprintf(&b, "; %v", e.Reason)
	}
	list := func(what string, ps []Process) {
		for i, p := range ps {
			if i == 0 {
				fmt.Fprintf(&b, "; %s %s", what, p)
				continue
			}
			fmt.Fprintf(&b, ", %s", p)
		}
	}
	list("killed", e.Killed)
	list("out of reach", e.Escaped)
	if last := lastWords(e.Stderr, tailShown); last != "" {
		fmt.Fprintf(&b, "; stderr: %s", last)
	}
	return b.String()
}

func (e *ExitError) Unwrap() error { return e.Reason }

// ExitCode is the process's exit code, or -1 if it did not end by one.
func (e *ExitError) ExitCode() int {
	if e.Status.Kind != ExitCode {
		return -1
	}
	return e.Status.Code
}
