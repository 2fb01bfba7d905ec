package stdio

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// nursery is the one goroutine that starts children. The parent-death signal
// fires when the thread that forked ends (prctl(2), PR_SET_PDEATHSIG), so the
// thread must live as long as any child: the goroutine is locked to it, and ends
// when the last child was reaped.
var nursery struct {
	mu   sync.Mutex
	live int
	work chan func()
	done chan struct{}
}

// startWithUs starts a child that the kernel kills when we die. That reaches the
// child alone; its own children see the end of its stdin.
func startWithUs(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	n := &nursery
	n.mu.Lock()
	if n.live == 0 {
		n.work, n.done = make(chan func()), make(chan struct{})
		go nurse(n.work, n.done)
	}
	n.live++
	work := n.work
	n.mu.Unlock()

	started := make(chan error, 1)
	work <- func() { started <- cmd.Start() }
	err := <-started
	if err != nil {
		childGone()
	}
	return err
}

// childGone is called once for each start, when that child was reaped.
func childGone() {
	n := &nursery
	n.mu.Lock()
	n.live--
	var done chan struct{}
	if n.live == 0 {
		close(n.work)
		done = n.done
	}
	n.mu.Unlock()
	if done != nil {
		<-done
	}
}

func nurse(work chan func(), done chan struct{}) {
	defer close(done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := range work {
		start()
	}
}
