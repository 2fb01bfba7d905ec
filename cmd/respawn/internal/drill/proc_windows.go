package drill

import "os"

// kill ends a server's process at once; what it started ends with its job.
func kill(pid int, _ bool) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// groupLeft names a server that still runs. Its children can't be listed without
// its job.
func groupLeft(pid int) []int {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	defer p.Release()
	return []int{pid}
}
