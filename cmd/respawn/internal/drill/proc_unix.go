//go:build unix

package drill

import "syscall"

// kill ends a server at once: its process, or with whole its process group, which
// has the same number.
func kill(pid int, whole bool) error {
	if whole {
		pid = -pid
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// groupGone reports that a process group has no member, not even a zombie.
func groupGone(pgid int) bool { return syscall.Kill(-pgid, 0) == syscall.ESRCH }
