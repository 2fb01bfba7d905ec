package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// child is the server's process in a job of its own, which dies with our handle.
type child struct {
	cmd    *exec.Cmd
	pid    int
	job    windows.Handle
	exited chan struct{}
	status Status
}

// startChild starts the process suspended, so that it can't start another before
// it is in the job.
func startChild(cmd *exec.Cmd) (*child, error) {
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		HideWindow:    true,
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
	}
	if err := startWithUs(cmd); err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	c := &child{cmd: cmd, pid: cmd.Process.Pid, job: job, exited: make(chan struct{})}
	if err := c.admit(); err != nil {
		cmd.Process.Kill()
		cmd.Process.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	go func() {
		defer close(c.exited)
		// The process object, and with it the number, lives until it is reaped.
		if h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(c.pid)); err == nil {
			windows.WaitForSingleObject(h, windows.INFINITE)
			windows.CloseHandle(h)
		}
	}()
	return c, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, os.NewSyscallError("SetInformationJobObject", err)
	}
	return job, nil
}

// admit puts the suspended process into the job and lets it run.
func (c *child) admit() error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE
	h, err := windows.OpenProcess(access, false, uint32(c.pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer windows.CloseHandle(h)
	if err := windows.AssignProcessToJobObject(c.job, h); err != nil {
		return os.NewSyscallError("AssignProcessToJobObject", err)
	}
	return resume(uint32(c.pid))
}

// resume starts the only thread of a process created suspended. os/exec keeps no
// handle of it, so it is looked up.
func resume(pid uint32) error {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return os.NewSyscallError("CreateToolhelp32Snapshot", err)
	}
	defer windows.CloseHandle(snap)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snap, &entry); err == nil; err = windows.Thread32Next(snap, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return os.NewSyscallError("OpenThread", err)
		}
		defer windows.CloseHandle(thread)
		_, err = windows.ResumeThread(thread)
		return os.NewSyscallError("ResumeThread", err)
	}
	return fmt.Errorf("no thread of process %d found", pid)
}

func (c *child) process() Process { return Process{PID: c.pid} }

// terminate is kill: Windows has no signal that asks.
func (c *child) terminate() { c.kill() }
func (c *child) kill()      { windows.TerminateJobObject(c.job, 1) }

// others lists the job's processes without the server itself.
func (c *child) others() []Process {
	var ps []Process
	for _, pid := range c.jobList() {
		if pid != c.pid {
			ps = append(ps, Process{PID: pid})
		}
	}
	return ps
}

// jobList is the numbers of the processes in the job, at most a page of them.
func (c *child) jobList() []int {
	var list struct {
		Assigned, InList uint32
		IDs              [500]uintptr
	}
	err := windows.QueryInformationJobObject(c.job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && err != windows.ERROR_MORE_DATA {
		return nil
	}
	var pids []int
	for _, id := range list.IDs[:list.InList] {
		pids = append(pids, int(id))
	}
	return pids
}

func (c *child) reap() {
	defer childGone()
	state, err := c.cmd.Process.Wait()
	if err == nil {
		c.status = Status{Kind: ExitCode, Code: state.ExitCode()}
	}
}

func (c *child) abandon() {
	go func() {
		<-c.exited
		c.cmd.Process.Wait()
		childGone()
	}()
}

// remains lists what is left of the job after the server was reaped.
func (c *child) remains() []Process { return c.others() }

// close ends the job, and with it whatever should still be in it.
func (c *child) close() { windows.CloseHandle(c.job) }

func explain(_ *exec.Cmd, err error) error { return err }

func holders(...*os.File) []Process { return nil }
