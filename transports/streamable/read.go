package streamable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/respawn-mcp/respawn/transports"
)

// trusted is how much memory an announced length alone gets; a longer body gets
// more as it comes.
const trusted = 1 << 20

// bodyBuffer holds most bodies whose length is not announced, so that what is kept
// of them is as long as they are.
const bodyBuffer = 128 << 10

var bodies = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}

// readJSON reads a body that is one JSON-RPC response. A body that is cut short,
// whatever way it was cut, is a break and no bad answer; one that goes on after
// its answer is not awaited.
func (x *exchange) readJSON(resp *http.Response) {
	limit, length := x.t.s.conf.MaxMessage, resp.ContentLength
	if length > int64(limit) {
		x.over(x.tooLarge(resp))
		return
	}
	const slack = 64 // room for a read that finds the end
	var frame []byte
	if length >= 0 {
		frame = make([]byte, 0, min(length, trusted)+slack)
	} else {
		scratch := bodies.Get().(*[bodyBuffer]byte)
		defer bodies.Put(scratch)
		frame = scratch[:0]
	}
	x.heard = time.Now() // a body that comes at once needs no sign of life
	for {
		if len(frame) == cap(frame) {
			frame = append(make([]byte, 0, 2*cap(frame)), frame...)
		}
		n, err := resp.Body.Read(frame[len(frame):cap(frame)])
		frame = frame[:len(frame)+n]
		if len(frame) > limit {
			x.over(x.tooLarge(resp))
			return
		}
		if err == io.EOF {
			x.wholeJSON(resp, frame)
			return
		}
		if err != nil {
			x.over(transports.Broken{Ref: x.out.Ref, Cause: err})
			return
		}
		if length < 0 || int64(len(frame)) == length {
			if looksWhole(frame) && x.deliverJSON(frame) {
				x.readOut(resp.Body)
				return
			}
		}
		if n > 0 {
			x.alive()
		}
	}
}

// looksWhole is a cheap no for most of what is not.
func looksWhole(frame []byte) bool {
	frame = bytes.TrimRight(frame, " \t\r\n")
	return len(frame) > 0 && frame[len(frame)-1] == '}'
}

// deliverJSON delivers a body that is the answer.
func (x *exchange) deliverJSON(frame []byte) bool {
	k, id := classify(frame)
	if !k.answers() || otherID(id, x.out.ID) {
		return false
	}
	if cap(frame) == bodyBuffer { // it goes back to the pool
		frame = bytes.Clone(frame)
	}
	x.deliver(frame, k)
	return true
}

// wholeJSON takes a body at its end. What has the form of the beginning of an
// object was cut, unless its length was announced.
func (x *exchange) wholeJSON(resp *http.Response, frame []byte) {
	if x.deliverJSON(frame) {
		return
	}
	k, id := classify(frame)
	if k == unfinished && resp.ContentLength < 0 {
		x.over(transports.Broken{Ref: x.out.Ref, Cause: io.ErrUnexpectedEOF})
		return
	}
	why := "the body is no JSON-RPC response"
	if k.answers() {
		why = fmt.Sprintf("it answers %.40s, and %.40s was asked", id, x.out.ID)
	}
	x.over(transports.Rejected{
		Ref: x.out.Ref, Status: resp.StatusCode, Header: resp.Header,
		Body: bytes.Clone(frame[:min(len(frame), x.t.s.conf.MaxRefusal)]), Session: x.req.session,
		Cause: x.misfit(resp, why),
	})
}

func (x *exchange) tooLarge(resp *http.Response) transports.Event {
	return transports.Rejected{
		Ref: x.out.Ref, Status: resp.StatusCode, Header: resp.Header, Session: x.req.session,
		Cause: &TooLargeError{Limit: x.t.s.conf.MaxMessage},
	}
}

// deliver emits the answer. A session is in force before its initialize answer
// is known to anybody.
func (x *exchange) deliver(frame []byte, k kind) {
	if x.answered != nil {
		x.t.opened(k == result)
	}
	x.over(transports.Message{Ref: x.out.Ref, Frame: frame})
}

// readOut reads what follows the answer, for a bounded time.
func (x *exchange) readOut(rest io.Reader) {
	if rest == http.NoBody {
		return
	}
	late := time.AfterFunc(x.t.s.conf.ReadOut, x.cancel)
	defer late.Stop()
	_, _ = io.Copy(io.Discard, rest) // whatever ends it
}

// readEvents reads an event stream to its end, or a little beyond the answer.
func (x *exchange) readEvents(resp *http.Response) {
	from := newEvents(resp.Body, x.t.s.conf.MaxMessage, x.out.LastID)
	defer from.release()
	from.idle = x.alive
	ref := x.out.Ref
	if x.out.Op == transports.OpListen {
		ref = 0
	}
	for over := false; ; x.saw(from) {
		ev, err := from.next()
		switch {
		case err == errTooLong && ref == 0:
			x.say(transports.Noise{Bytes: x.t.s.conf.MaxMessage, Sample: "an event over the size limit"})
		case err == errTooLong && !over:
			x.over(x.tooLarge(resp))
			return
		case err != nil:
			x.ended(from, over, err)
			return
		case ev.name != "" || len(ev.data) == 0:
		case ref == 0:
			from.fresh = false
			x.say(transports.Message{Frame: ev.data})
		case over:
			x.say(transports.Message{Ref: ref, Frame: ev.data})
		default:
			if over = x.take(from, ev.data); over {
				late := time.AfterFunc(x.t.s.conf.ReadOut, x.cancel)
				defer late.Stop()
			}
		}
	}
}

// take emits the data of an event of a request's own stream, and reports whether
// it was the answer.
func (x *exchange) take(from *events, data []byte) (over bool) {
	k, id := classify(data)
	if k <= unfinished {
		x.say(transports.Noise{Bytes: len(data), Sample: sample(data)})
		return false
	}
	from.fresh = false
	if !k.answers() || otherID(id, x.out.ID) {
		x.say(transports.Message{Ref: x.out.Ref, Frame: data})
		return false
	}
	x.deliver(data, k)
	return true
}

// saw notes the id of the last event, once it was emitted.
func (x *exchange) saw(from *events) {
	if len(from.lastID) == 0 && x.seen.Load() == nil || x.left.Load() {
		return
	}
	if last := x.seen.Load(); last == nil || *last != string(from.lastID) {
		id := from.resumeID()
		x.seen.Store(&id)
	}
}

// ended reports a stream that ended, unless it gave its answer before.
func (x *exchange) ended(from *events, over bool, err error) {
	if over {
		return
	}
	if errors.Is(err, io.EOF) {
		err = ErrEnded
	}
	x.over(transports.Broken{Ref: x.out.Ref, LastID: from.resumeID(), Retry: from.retry, Cause: err})
}

// aliveEvery is the contract's bound on Alive.
const aliveEvery = time.Second

// alive says that bytes came which are no message.
func (x *exchange) alive() {
	if now := time.Now(); now.Sub(x.heard) >= aliveEvery {
		x.heard = now
		x.say(transports.Alive{Ref: x.out.Ref})
	}
}

// sampleMax is how much of a noise event is shown.
const sampleMax = 120

func sample(data []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) { // it is shown in logs
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(data[:min(len(data), sampleMax)]), "\uFFFD"))
}
