package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// trusted is how much memory an announced length alone gets; a longer body gets
// more as it comes.
const trusted = 1 << 20

// bodyBuffer holds most bodies whose length is not announced, so that what is kept
// of them is as long as they are.
const bodyBuffer = 128 << 10

var bodies = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}

// jsonBody is a body that should be one JSON-RPC response, as far as it has come.
type jsonBody struct {
	frame  []byte
	judged int // how much of it was classified, as
	kind   kind
	id     []byte
}

// judge classifies what there is, once.
func (b *jsonBody) judge() kind {
	if b.judged != len(b.frame) || b.judged == 0 {
		b.judged = len(b.frame)
		b.kind, b.id = classify(b.frame)
	}
	return b.kind
}

// isWhole says cheaply no to most of what is not.
func (b *jsonBody) isWhole() bool {
	text := bytes.TrimRight(b.frame, " \t\r\n")
	return len(text) > 0 && text[len(text)-1] == '}' && b.judge() >= misfit
}

// readJSON reads a body that is one JSON-RPC response. It is delivered at its end,
// when its connection is free for the next request; the end of one that is whole
// is not awaited for long.
func (x *exchange) readJSON(resp *http.Response) {
	limit, length := x.t.s.conf.MaxMessage, resp.ContentLength
	if length > int64(limit) {
		x.over(x.tooLarge(resp))
		return
	}
	const slack = 64 // room for a read that finds the end
	var b jsonBody
	if length >= 0 {
		b.frame = make([]byte, 0, min(length, trusted)+slack)
	} else {
		scratch := bodies.Get().(*[bodyBuffer]byte)
		defer bodies.Put(scratch)
		b.frame = scratch[:0]
	}
	x.heard = time.Now() // a body that comes at once needs no sign of life
	var late *time.Timer
	for {
		if len(b.frame) == cap(b.frame) {
			b.frame = append(make([]byte, 0, 2*cap(b.frame)), b.frame...)
		}
		n, err := resp.Body.Read(b.frame[len(b.frame):cap(b.frame)])
		b.frame = b.frame[:len(b.frame)+n]
		switch {
		case len(b.frame) > limit:
			x.over(x.tooLarge(resp))
			return
		case err != nil:
			x.endJSON(resp, &b, err)
			return
		case n == 0 || late != nil:
		case b.isWhole():
			late = time.AfterFunc(x.t.s.conf.ReadOut, x.cancel)
			defer late.Stop()
		default:
			x.alive()
		}
	}
}

// endJSON takes a body at its end. An answer that is whole is one, whatever ended
// it. What has the form of the beginning of an object was cut, whatever way it
// was, unless its length was announced.
func (x *exchange) endJSON(resp *http.Response, b *jsonBody, err error) {
	k := b.judge()
	why := "the body is no JSON-RPC response"
	switch own := transports.SameID(b.id, x.out.ID); {
	case k.answers() && own:
		if cap(b.frame) == bodyBuffer { // it goes back to the pool
			b.frame = bytes.Clone(b.frame)
		}
		x.deliver(b.frame, k)
		return
	case k.answers():
		why = fmt.Sprintf("it answers %.40s, and %.40s was asked", b.id, x.out.ID)
	case k == misfit:
	case err != io.EOF:
		x.over(transports.Broken{Ref: x.out.Ref, Cause: err})
		return
	case k == unfinished && resp.ContentLength < 0:
		x.over(transports.Broken{Ref: x.out.Ref, Cause: io.ErrUnexpectedEOF})
		return
	}
	x.over(x.noAnswer(resp, b.frame, why))
}
