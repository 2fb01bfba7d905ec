package main

import (
	"io"
	"sync"
)

// stderr is shared by the server, whose bytes pass as they come, and by us, whose
// lines are lines of their own even where the server has not ended its last one.
type stderr struct {
	to io.Writer

	mu   sync.Mutex
	open bool // the last line was not ended
}

// Write writes what the server says.
func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.to.Write(b)
	if n > 0 {
		s.open = b[n-1] != '\n'
	}
	return n, err
}

// ourLines writes what we say: whole lines.
type ourLines struct{ *stderr }

func (s ourLines) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		if _, err := s.to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.open = false
	}
	return s.to.Write(b)
}
