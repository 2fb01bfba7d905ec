package stdio

import "golang.org/x/sys/unix"

// zombie is SZOMB of <sys/proc.h>.
const zombie = 5

// groupMembers lists the processes of a group that are not zombies.
func groupMembers(pgid int) []Process { return kinfo("kern.proc.pgrp", pgid) }

// processName is "" for a process that has exited.
func processName(pid int) string {
	for _, p := range kinfo("kern.proc.pid", pid) {
		return p.Name
	}
	return ""
}

func kinfo(name string, id int) []Process {
	infos, err := unix.SysctlKinfoProcSlice(name, id)
	if err != nil {
		return nil
	}
	var ps []Process
	for _, k := range infos {
		if k.Proc.P_stat != zombie {
			ps = append(ps, Process{PID: int(k.Proc.P_pid), Name: unix.ByteSliceToString(k.Proc.P_comm[:])})
		}
	}
	return ps
}
