package stdio

import "io"

// source reads one of the server's outputs. It asks for a buffer only when there
// is something to read: a silent server, which most are most of the time, costs
// none.
type source struct {
	from io.Reader
	room func() []byte // the buffer to read into
	back func()        // there was nothing to read into it
	waiter
}

// maxLate is how much is read of what is in a pipe when the time is up: the most
// that a pipe holds (Linux, by default, of a user without privileges).
const maxLate = 1 << 20

func newSource(from io.Reader, room func() []byte, back func()) *source {
	s := &source{from: from, room: room, back: back}
	s.open()
	return s
}
