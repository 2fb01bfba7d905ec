package stdio

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// stderrChunk is one read: half of what a pipe holds, so that the server can
// write on while we handle it.
const stderrChunk = 32 << 10

var stderrChunks = sync.Pool{New: func() any { return new([stderrChunk]byte) }}

// stderr drains the server's stderr whatever becomes of its words: a server that
// waits for room there is silent for ever. Output on it is no sign of an error
// (2026-07-28 basic/transports/stdio).
type stderr struct {
	emit    func(transports.Event)
	maxLine int
	sink    *sink // nil without Config.Stderr

	line []byte // the beginning of a line, at most maxLine and a bit
	long bool   // the rest of the line is dropped

	mu   sync.Mutex
	tail []byte
	keep int
}

func (s *stderr) run(r io.Reader) {
	var chunk *[stderrChunk]byte
	back := func() {
		if chunk != nil {
			stderrChunks.Put(chunk)
			chunk = nil
		}
	}
	defer back()
	from := newSource(r, func() []byte {
		if chunk == nil {
			chunk = stderrChunks.Get().(*[stderrChunk]byte)
		}
		return chunk[:]
	}, back)
	for {
		n, err := from.read()
		if n > 0 {
			s.take(chunk[:n])
		}
		if err != nil {
			s.flush()
			return
		}
	}
}

func (s *stderr) take(b []byte) {
	s.remember(b)
	if s.sink != nil {
		s.sink.put(b)
	}
	s.split(b)
}

// remember keeps the last keep bytes, moving them once per keep bytes at most.
func (s *stderr) remember(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b) >= s.keep {
		s.tail = append(s.tail[:0], b[len(b)-s.keep:]...)
		return
	}
	s.tail = append(s.tail, b...)
	if len(s.tail) > 2*s.keep {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-s.keep:]...)
	}
}

// last returns a copy of the kept bytes.
func (s *stderr) last() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.tail[max(0, len(s.tail)-s.keep):])
}

// split emits the lines that b completes. Blank lines say nothing, and a lone
// carriage return ends a line too.
func (s *stderr) split(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, "\r\n")
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if room := s.maxLine - len(s.line); len(part) > room {
			part, s.long = part[:room], true
		}
		s.line = append(s.line, part...)
		if i < 0 {
			return
		}
		s.flush()
		b = b[i+1:]
	}
}

func (s *stderr) flush() {
	if line := strings.TrimRight(sanitize(s.line, s.maxLine), " \t"); line != "" {
		if s.long && !strings.HasSuffix(line, "…") {
			line += "…"
		}
		s.emit(transports.Diagnostic{Line: line})
	}
	s.line, s.long = s.line[:0], false
}

const (
	// sinkChunks times stderrChunk is how much waits for a slow Config.Stderr: 1 MiB.
	sinkChunks = 32
	// sinkPatience is how long the server may wait for that writer. Our own
	// stderr may be a pipe that a host never reads.
	sinkPatience = 250 * time.Millisecond
	// sinkFlush is how long Serve waits for that writer at the end.
	sinkFlush = 250 * time.Millisecond
)

// oneAtATime lets one Write of several callers run at a time.
type oneAtATime struct {
	mu sync.Mutex
	to io.Writer
}

func (w *oneAtATime) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// sink passes bytes on to a writer that may be slow, or stuck.
type sink struct {
	chunks chan []byte
	done   chan struct{}
	stuck  bool
}

func newSink(w io.Writer) *sink {
	s := &sink{chunks: make(chan []byte, sinkChunks), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for b := range s.chunks {
			w.Write(b) // its errors are its owner's: the server must not feel them
		}
	}()
	return s
}

func (s *sink) put(b []byte) {
	b = bytes.Clone(b)
	select {
	case s.chunks <- b:
		s.stuck = false
		return
	default:
	}
	if s.stuck {
		return
	}
	t := time.NewTimer(sinkPatience)
	defer t.Stop()
	select {
	case s.chunks <- b:
	case <-t.C:
		s.stuck = true
	}
}

// close waits for the writer, but not for ever: one that never returns keeps its
// goroutine.
func (s *sink) close() {
	close(s.chunks)
	t := time.NewTimer(sinkFlush)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	}
}
