package stdio

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"sync"

	"github.com/respawn-mcp/respawn/transports"
)

const (
	// readBuffer is what a pipe holds (Linux: 64 KiB), and as much again for the
	// beginning of a message that the last read cut.
	readBuffer = 128 << 10
	// keepBuffer is the largest buffer kept after a long message.
	keepBuffer = 1 << 20
)

// readBuffers are those that no reader needs at the moment, grown ones included.
var readBuffers = sync.Pool{New: func() any {
	b := make([]byte, readBuffer)
	return &b
}}

var bom = []byte("\xef\xbb\xbf")

// reader splits the server's stdout at the byte 0x0A and nothing else: a raw
// newline can't occur inside JSON, while U+2028 and its like can (2026-07-28
// basic/transports/stdio). A line whose first byte is { is a message, whatever
// is in it; anything else is noise, counted and otherwise without effect.
type reader struct {
	max  int
	emit func(transports.Event)
	// read, if not nil, hears how many messages one read brought.
	read func(messages int)

	held       *[]byte // where buf came from; nil: there is no buffer
	buf        []byte
	start, end int  // the unread part of buf
	scanned    int  // buf[start:scanned] has no newline
	skip       skip // of the line whose beginning was dropped already
}

// run reads r to its end and returns its error, nil for io.EOF.
func (d *reader) run(r io.Reader) error {
	from := newSource(r, d.room, d.release)
	defer d.release()
	for {
		n, err := from.read()
		d.end += n
		messages := d.split()
		if d.read != nil && n > 0 {
			d.read(messages)
		}
		if err != nil {
			d.last()
			if err == io.EOF {
				return nil
			}
			return err
		}
		d.makeRoom()
	}
}

// room is where the next read goes.
func (d *reader) room() []byte {
	if d.held == nil {
		d.held = readBuffers.Get().(*[]byte)
		d.buf, *d.held = *d.held, nil
	}
	return d.buf[d.end:]
}

// release gives the buffer back if nothing is in it.
func (d *reader) release() {
	if d.held == nil || d.start < d.end {
		return
	}
	if len(d.buf) >= readBuffer && cap(d.buf) <= keepBuffer {
		*d.held = d.buf
		readBuffers.Put(d.held)
	}
	d.held, d.buf = nil, nil
	d.start, d.end, d.scanned = 0, 0, 0
}

// split emits the lines that are complete.
func (d *reader) split() (messages int) {
	for {
		i := bytes.IndexByte(d.buf[d.scanned:d.end], '\n')
		if i < 0 {
			d.scanned = d.end
			return messages
		}
		line := d.buf[d.start : d.scanned+i]
		d.start = d.scanned + i + 1
		d.scanned = d.start
		if d.line(line) {
			messages++
		}
	}
}

// makeRoom prepares the buffer for the next read. A line that is noise already,
// or longer than max, is dropped while it comes, so that no line costs more
// memory than the longest message.
func (d *reader) makeRoom() {
	rest := d.end - d.start
	switch {
	case rest == 0:
		d.release()
		return
	case d.skip.bytes > 0 || rest > d.max || d.end == len(d.buf) && kindOf(d.buf[d.start:d.end]) == isNoise:
		d.skip.add(d.buf[d.start:d.end])
		rest = 0
		if len(d.buf) > keepBuffer {
			d.buf = make([]byte, readBuffer)
		}
	case d.end < len(d.buf):
		return
	case d.start > 0:
		copy(d.buf, d.buf[d.start:d.end])
	case rest == len(d.buf):
		size := min(2*len(d.buf), max(d.max+1, readBuffer))
		d.buf = append(make([]byte, 0, size), d.buf...)[:size]
	}
	d.start, d.end = 0, rest
	d.scanned = rest
}

// line handles one whole line without its newline, and reports whether it was a
// message. Bytes of noise include the newline, so that a blank line is 1.
func (d *reader) line(line []byte) (message bool) {
	if d.skip.bytes > 0 || len(line) > d.max {
		d.skip.add(line)
		d.emit(d.skip.noise(1))
		return false
	}
	if kindOf(line) != isMessage {
		d.emit(transports.Noise{Bytes: len(line) + 1, Sample: sample(line)})
		return false
	}
	if bytes.HasPrefix(line, bom) {
		d.emit(transports.Noise{Bytes: len(bom), Sample: "byte order mark"})
		line = line[len(bom):]
	}
	d.emit(transports.Message{Frame: d.own(bytes.TrimSpace(line))})
	return true
}

// own makes a message the receiver's: a copy, or the buffer itself if copying
// would hold a long one twice.
func (d *reader) own(msg []byte) []byte {
	if len(msg) < keepBuffer {
		return bytes.Clone(msg)
	}
	rest := d.buf[d.start:d.end]
	buf := make([]byte, max(readBuffer, 2*len(rest)))
	d.start, d.end, d.scanned = 0, copy(buf, rest), 0
	d.buf = buf
	return slices.Clip(msg)
}

// last handles what stands after the last newline: a message if it is a whole
// one, since a server that leaves may forget the newline; noise otherwise.
func (d *reader) last() {
	rest := d.buf[d.start:d.end]
	d.start = d.end
	switch {
	case len(rest) == 0 && d.skip.bytes == 0:
	case d.skip.bytes == 0 && kindOf(rest) == isMessage && len(rest) <= d.max && json.Valid(bytes.TrimPrefix(rest, bom)):
		d.line(rest)
	default:
		d.skip.add(rest)
		n := d.skip.noise(0)
		if n.Bytes <= d.max { // the end cut it, not its size: another server may give the answer
			n.ID = ""
		}
		d.emit(n)
	}
}

type kind uint8

const (
	undecided kind = iota // nothing but white space so far
	isMessage
	isNoise
)

// kindOf looks at the first byte that is not JSON white space.
func kindOf(line []byte) kind {
	if len(line) < len(bom) && bytes.HasPrefix(bom, line) {
		return undecided
	}
	for _, c := range bytes.TrimPrefix(line, bom) {
		switch c {
		case ' ', '\t', '\r':
		case '{':
			return isMessage
		default:
			return isNoise
		}
	}
	return undecided
}
