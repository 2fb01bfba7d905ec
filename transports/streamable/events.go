package streamable

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// errTooLong says that an event has more data than the limit. What is left of it
// is skipped.
var errTooLong = errors.New("streamable: an event is too long")

// eventBuffer is what one read takes at most: enough that a 64 KiB event costs
// few of them.
const eventBuffer = 32 << 10

var buffers = sync.Pool{New: func() any { return new([eventBuffer]byte) }}

// event is one event of a stream.
type event struct {
	name string // "" and "message" are the same
	data []byte // the receiver's to keep
}

// events reads an event stream as the HTML standard says, section 9.2.6
// (Interpreting an event stream). It keeps nothing but the data of one event, so
// comments and unknown fields of any length cost no memory and no part of the
// limit. The data is not decoded.
type events struct {
	from io.Reader
	max  int    // bytes of data of one event
	idle func() // called before a read if something came since the last message

	held    *[eventBuffer]byte
	buf     []byte
	at, end int // the unread part of buf
	started bool
	skipLF  bool // a CR ended the last line
	in      lineState
	fresh   bool // bytes came, and no message since

	data    []byte
	hasData bool
	tooLong bool
	name    string
	id      []byte        // of the last id field
	lastID  []byte        // as the last event that was complete left it
	retry   time.Duration // as the last retry field said; 0: none
}

// lineState is what is known of a line of which only the beginning has come.
type lineState uint8

const (
	atStart lineState = iota // nothing: it is still in the buffer
	inData                   // the value of a data field, taken so far
	skipped                  // of no interest
)

func newEvents(from io.Reader, limit int, lastID string) *events {
	e := &events{from: from, max: limit, held: buffers.Get().(*[eventBuffer]byte)}
	e.buf = e.held[:]
	if lastID != "" {
		e.id, e.lastID = []byte(lastID), []byte(lastID)
	}
	return e
}

// release gives the buffer back.
func (e *events) release() {
	buffers.Put(e.held)
	e.held, e.buf = nil, nil
}

// next returns the next event that has data, even if that is empty. An event
// that the end of the stream cuts is none. After errTooLong it may be called
// again.
func (e *events) next() (event, error) {
	for {
		ev, ok, err := e.scan()
		if ok || err != nil {
			return ev, err
		}
		if e.fresh && e.idle != nil {
			e.idle()
		}
		e.fresh = false
		if e.at == e.end {
			e.at, e.end = 0, 0
		} else if e.end == len(e.buf) {
			e.end = copy(e.buf, e.buf[e.at:e.end])
			e.at = 0
		}
		n, err := e.from.Read(e.buf[e.end:])
		e.end += n
		e.fresh = n > 0
		if n == 0 && err != nil {
			return event{}, err
		}
	}
}

// scan takes the lines in the buffer until one completes an event.
func (e *events) scan() (ev event, ok bool, err error) {
	if !e.started && !e.skipBOM() {
		return event{}, false, nil
	}
	for e.at < e.end {
		rest := e.buf[e.at:e.end]
		if e.skipLF {
			e.skipLF = false
			if rest[0] == '\n' {
				e.at++
				continue
			}
		}
		i := lineEnd(rest)
		if i < 0 {
			return event{}, false, e.partial(rest)
		}
		e.at += i + 1
		e.skipLF = rest[i] == '\r'
		if ev, ok, err = e.line(rest[:i]); ok || err != nil {
			return ev, ok, err
		}
	}
	return event{}, false, nil
}

var bom = []byte("\xef\xbb\xbf")

// skipBOM reports whether the beginning of the stream is known.
func (e *events) skipBOM() bool {
	begin := e.buf[e.at:e.end]
	if len(begin) < len(bom) && bytes.HasPrefix(bom, begin) {
		return false
	}
	if bytes.HasPrefix(begin, bom) {
		e.at += len(bom)
	}
	e.started = true
	return true
}

// lineEnd is the index of the first CR or LF.
func lineEnd(b []byte) int {
	n := bytes.IndexByte(b, '\n')
	if n >= 0 {
		b = b[:n]
	}
	if r := bytes.IndexByte(b, '\r'); r >= 0 {
		return r
	}
	return n
}

var fieldData = []byte("data:")

// partial takes what there is of a line without its end. The beginning stays in
// the buffer until it says which field it is.
func (e *events) partial(part []byte) error {
	if e.in == atStart {
		switch full := e.at == 0 && e.end == len(e.buf); {
		case part[0] == ':':
			e.in = skipped
		case len(part) > len(fieldData) && bytes.HasPrefix(part, fieldData):
			e.in = inData
			e.newDataLine()
			part = value(part[len(fieldData):])
		case full: // no field that means anything is that long
			if bytes.HasPrefix(part, []byte("id:")) {
				e.id = e.id[:0]
			}
			e.in = skipped
		default:
			return nil
		}
	}
	e.at = e.end
	if e.in == inData {
		return e.add(part)
	}
	return nil
}

// line takes a line, or the rest of one.
func (e *events) line(line []byte) (ev event, ok bool, err error) {
	switch e.in {
	case inData:
		e.in = atStart
		return event{}, false, e.add(line)
	case skipped:
		e.in = atStart
		return event{}, false, nil
	}
	if len(line) == 0 {
		ev, ok = e.dispatch()
		return ev, ok, nil
	}
	name, rest, _ := bytes.Cut(line, []byte{':'})
	rest = value(rest)
	switch string(name) {
	case "data":
		e.newDataLine()
		return event{}, false, e.add(rest)
	case "event":
		e.name = ""
		if string(rest) != "message" {
			e.name = string(rest)
		}
	case "id":
		if bytes.IndexByte(rest, 0) < 0 {
			e.id = append(e.id[:0], rest...)
		}
	case "retry":
		e.setRetry(rest)
	}
	return event{}, false, nil
}

// value drops the one space that may follow the colon.
func value(b []byte) []byte {
	if len(b) > 0 && b[0] == ' ' {
		return b[1:]
	}
	return b
}

func (e *events) newDataLine() {
	if e.hasData && !e.tooLong {
		e.data = append(e.data, '\n')
	}
	e.hasData = true
}

func (e *events) add(part []byte) error {
	switch {
	case e.tooLong:
		return nil
	case len(e.data)+len(part) > e.max:
		e.tooLong, e.data = true, nil
		return errTooLong
	case len(e.data) > 0 && len(e.data)+len(part) > cap(e.data): // double, to copy each byte about once
		e.data = slices.Grow(e.data, max(len(e.data), len(part)))
	}
	e.data = append(e.data, part...)
	return nil
}

// dispatch ends an event at its blank line.
func (e *events) dispatch() (ev event, ok bool) {
	e.lastID = append(e.lastID[:0], e.id...)
	ev, ok = event{e.name, e.data}, e.hasData && !e.tooLong
	e.name, e.data, e.hasData, e.tooLong = "", nil, false, false
	return ev, ok
}

// maxRetry is as good as for ever, and can be added to any time.
const maxRetry = 365 * 24 * time.Hour

// setRetry takes a retry field of digits alone.
func (e *events) setRetry(digits []byte) {
	ms := time.Duration(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return
		}
		ms = min(10*ms+time.Duration(c-'0'), maxRetry/time.Millisecond)
	}
	if len(digits) > 0 {
		e.retry = ms * time.Millisecond
	}
}

// resumeID is the id to resume the stream from; "" if it gave none, or one that
// no header can carry.
func (e *events) resumeID() string {
	id := string(e.lastID)
	if checkHeader(headerLastID, id) != nil {
		return ""
	}
	return id
}
