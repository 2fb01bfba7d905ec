package streamable

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/respawn-mcp/respawn/transports"
)

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
			if over = x.take(resp, from, ev.data); over {
				late := time.AfterFunc(x.t.s.conf.ReadOut, x.cancel)
				defer late.Stop()
			}
		}
	}
}

// take emits the data of an event of a request's own stream, and reports whether
// it was the answer, or what the server takes for one: nothing else will come.
func (x *exchange) take(resp *http.Response, from *events, data []byte) (over bool) {
	k, id := classify(data)
	if k <= unfinished {
		x.say(transports.Noise{Bytes: len(data), Sample: sample(data)})
		return false
	}
	from.fresh = false
	switch {
	case k == other, !transports.SameID(id, x.out.ID):
		x.say(transports.Message{Ref: x.out.Ref, Frame: data})
		return false
	case k == misfit:
		x.over(x.noAnswer(resp, data, notAResponse))
	default:
		x.deliver(data, k)
	}
	return true
}

const notAResponse = "it is no JSON-RPC response"

// noAnswer is the refusal of a request by a message that can't be its answer.
func (x *exchange) noAnswer(resp *http.Response, data []byte, why string) transports.Event {
	return transports.Rejected{
		Ref: x.out.Ref, Status: resp.StatusCode, Header: resp.Header,
		Body: bytes.Clone(data[:min(len(data), x.t.s.conf.MaxRefusal)]), Session: x.req.session,
		Cause: x.misfit(resp, why),
	}
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
