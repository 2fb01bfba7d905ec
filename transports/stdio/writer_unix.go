//go:build unix

package stdio

import (
	"os"
	"syscall"
)

// canTry says that a write to a full pipe fails at once instead of waiting: our
// ends are non-blocking under Go's poller.
const canTry = true

// pipe writes what the outbox has ready. Its owner is whoever holds the outbox's
// busy flag.
type pipe struct {
	out *outbox
	raw syscall.RawConn
	// The callbacks for raw are made once for all writes; failed is their error.
	once, all func(fd uintptr) bool
	failed    error
}

func (p *pipe) open(file *os.File, out *outbox) (err error) {
	p.out = out
	p.once = func(fd uintptr) bool {
		p.write(fd)
		return true
	}
	p.all = p.writeAll
	p.raw, err = file.SyscallConn()
	return err
}

// tryOnce makes one write and does not wait.
func (p *pipe) tryOnce() error { return p.run(p.once) }

// writeQueue writes until nothing is left, a Sent is due, or the stop has begun
// and the pipe takes no more. It waits for the pipe; closing the file ends that.
func (p *pipe) writeQueue() error { return p.run(p.all) }

func (p *pipe) run(callback func(uintptr) bool) error {
	if err := p.raw.Write(callback); err != nil {
		return err
	}
	err := p.failed
	p.failed = nil
	return err
}

type progress uint8

const (
	progressed progress = iota
	sentDue             // progressed, and a Sent is to be emitted
	full                // the pipe takes no more for now
	over                // nothing to write, or the write failed
)

func (p *pipe) write(fd uintptr) progress {
	chunk := p.out.compose()
	if chunk == nil {
		return over
	}
	for {
		n, err := syscall.Write(int(fd), chunk)
		switch err {
		case nil:
			if p.out.wrote(n) {
				return sentDue
			}
			return progressed
		case syscall.EINTR:
		case syscall.EAGAIN:
			return full
		default:
			p.failed = os.NewSyscallError("write", err)
			return over
		}
	}
}

// writeAll returns false to be called again when the pipe takes more.
func (p *pipe) writeAll(fd uintptr) bool {
	for {
		switch p.write(fd) {
		case progressed:
		case full:
			if !p.out.park() {
				return false
			}
			p.out.advance(shut)
			return true
		default:
			return true
		}
	}
}
