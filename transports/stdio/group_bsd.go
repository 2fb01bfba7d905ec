//go:build unix && !linux

package stdio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exitWatch tells when a process has exited, by kqueue. (waitid with WNOWAIT
// returns for a process that only stopped on macOS.)
type exitWatch struct{ kq int }

// newExitWatch is called before the start, so that a lack of descriptors is an
// error of the start.
func newExitWatch() (exitWatch, error) {
	kq, err := unix.Kqueue()
	if err != nil {
		return exitWatch{}, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(kq)
	return exitWatch{kq}, nil
}

func (w exitWatch) close() { unix.Close(w.kq) }

// await returns when the process has exited, and leaves it to be reaped, so that
// its number stays its own.
func (w exitWatch) await(pid int) {
	var change unix.Kevent_t
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change.Fflags = unix.NOTE_EXIT
	changes, events := []unix.Kevent_t{change}, make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(w.kq, changes, events, nil)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) { // ESRCH: it has exited already
			return
		}
	}
}

// holders can't be found here without privileges.
func holders(...*os.File) []Process { return nil }
