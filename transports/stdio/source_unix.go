//go:build unix

package stdio

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// waiter waits until a pipe has something, by Go's poller.
type waiter struct {
	raw syscall.RawConn // nil: not a file
	try func(fd uintptr) bool
	// The outcome of try, which is made once for all reads.
	n   int
	err error

	late int // bytes read after the time for it was up
}

func (s *source) open() {
	if file, ok := s.from.(*os.File); ok {
		s.raw, _ = file.SyscallConn()
		s.try = s.tryRead
	}
}

// read is one read; io.EOF is the end.
func (s *source) read() (int, error) {
	if s.raw == nil {
		return s.from.Read(s.room())
	}
	switch err := s.raw.Read(s.try); {
	case err == nil:
		return s.n, s.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.readLate()
	default:
		if _, told := s.from.Read(nil); told != nil {
			err = told // that it is closed, in package os's words
		}
		return 0, err
	}
}

// readLate is read when the time is up: it takes what is there and waits for no
// more. On a machine that is too busy to let us read, the time says nothing about
// the server.
func (s *source) readLate() (int, error) {
	read := false
	err := s.raw.Control(func(fd uintptr) { read = s.late < maxLate && s.tryRead(fd) })
	if err != nil || !read {
		return 0, os.ErrClosed
	}
	s.late += s.n
	return s.n, s.err
}

// tryRead returns false to be called again when there is something.
func (s *source) tryRead(fd uintptr) bool {
	room := s.room()
	for {
		switch s.n, s.err = syscall.Read(int(fd), room); s.err {
		case nil:
			if s.n == 0 {
				s.err = io.EOF
			}
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.back()
			return false
		default:
			s.n, s.err = 0, os.NewSyscallError("read", s.err)
		}
		return true
	}
}
