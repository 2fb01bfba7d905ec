package streamable

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// exchange is one HTTP exchange: a POST, or a GET stream. One goroutine runs it
// from its first try to the end of its response, so its events are in order.
type exchange struct {
	t      *Transport
	out    transports.Outbound
	req    request
	ctx    context.Context
	cancel context.CancelFunc

	left     atomic.Bool // nobody waits for it: no event follows
	stopped  atomic.Pointer[error]
	now      atomic.Pointer[attempt]
	dequeued atomic.Bool   // its frame is no part of what is queued
	answered chan struct{} // initialize: its session is known, or it is over

	seen  atomic.Pointer[string] // the id to resume from, as of what was emitted
	heard time.Time              // when Alive was last due
}

func newExchange(t *Transport, out transports.Outbound, h http.Header) *exchange {
	if out.Op == transports.OpMessage {
		out.LastID = "" // resumption is always by GET (2025-11-25, Resumability)
	}
	x := &exchange{t: t, out: out}
	x.ctx, x.cancel = context.WithCancel(t.ctx)
	x.req = request{t: t, method: http.MethodPost, header: h, frame: out.Frame, x: x}
	if out.Op != transports.OpMessage {
		x.req.method, x.req.frame = http.MethodGet, nil
	}
	if out.Method == methodInitialize {
		x.answered = make(chan struct{})
	}
	x.req.bare = isModern(&out) || out.Method == methodInitialize
	return x
}

// queue counts the frame among what no connection has taken yet.
func (x *exchange) queue() { x.t.queued.Add(int64(len(x.out.Frame))) }

func (x *exchange) dequeue() {
	if !x.dequeued.Swap(true) {
		x.t.queued.Add(-int64(len(x.out.Frame)))
	}
}

func (x *exchange) hand(a *attempt) {
	x.now.Store(a)
	if a != nil && (x.left.Load() || x.stopped.Load() != nil) {
		a.claim()
	}
}

// quit ends an exchange that nobody waits for and reports whether nothing of its
// frame was, or will be, sent.
func (x *exchange) quit() (unsent bool) {
	x.left.Store(true)
	a := x.now.Load()
	unsent = a == nil || a.claim()
	x.cancel()
	return unsent
}

// stop ends an exchange of an incarnation that ends.
func (x *exchange) stop(cause error) {
	x.stopped.Store(&cause)
	if a := x.now.Load(); a != nil {
		a.claim()
	}
	x.cancel()
}

// mute lets nobody hear of an initialize any more and reports whether it may
// still show a session: not if nothing of it was sent, and then nothing will be.
func (x *exchange) mute(cause error) (pending bool) {
	x.stopped.Store(&cause)
	a := x.now.Load()
	return a != nil && !a.claim()
}

func (x *exchange) run() {
	defer x.cancel()
	defer x.dequeue()
	<-x.t.ready
	resp, why, err := x.req.do(x.ctx)
	x.show(resp)
	if err != nil {
		x.failed(err)
		return
	}
	defer resp.Body.Close()
	defer x.cancel() // before Close, which waits for the peer on HTTP/2
	switch {
	case resp.StatusCode/100 != 2:
		x.rejected(resp, why)
	case x.out.Op != transports.OpMessage:
		x.openStream(resp)
	case x.out.ID == "":
		x.over(transports.Sent{Ref: x.out.Ref})
		x.readOut(resp.Body)
	default:
		x.answer(resp)
	}
}

// say emits an event of an exchange that goes on.
func (x *exchange) say(ev transports.Event) {
	if !x.left.Load() && x.stopped.Load() == nil {
		x.t.emit(ev)
	}
}

// over emits the last event of an exchange, whose ref is free from then on.
func (x *exchange) over(ev transports.Event) {
	if x.t.forget(x) && !x.left.Load() {
		x.t.emit(ev)
	}
}

// failed ends an exchange that got no response.
func (x *exchange) failed(err error) {
	none := new(noConnection)
	unsent := errors.As(err, &none)
	if unsent {
		err = none.err
	}
	if cause := x.stopped.Load(); cause != nil {
		// The transport has forgotten it already. What was begun counts as
		// written without an event, as on a pipe.
		if unsent && x.out.Op == transports.OpMessage && !x.left.Load() {
			x.t.emit(transports.Unsent{Ref: x.out.Ref, Cause: *cause})
		}
		return
	}
	if unsent {
		x.over(transports.Unsent{Ref: x.out.Ref, Cause: err})
		return
	}
	x.over(transports.Broken{Ref: x.out.Ref, LastID: x.out.LastID, Cause: err})
}

// rejected reports a refusal, or a response that can't be the answer.
func (x *exchange) rejected(resp *http.Response, cause error) {
	body := x.t.s.readRefusal(resp.Body, x.cancel)
	x.over(transports.Rejected{
		Ref: x.out.Ref, Status: resp.StatusCode, Header: resp.Header, Body: body, Session: x.req.session, Cause: cause,
	})
}

// unfit is rejected for a success that is none.
func (x *exchange) unfit(resp *http.Response, why string) {
	x.rejected(resp, x.misfit(resp, why))
}

func (x *exchange) misfit(resp *http.Response, why string) error {
	return &AnswerError{Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Why: why}
}

func (x *exchange) answer(resp *http.Response) {
	switch mediaType(resp) {
	case typeJSON:
		x.readJSON(resp)
	case typeEvents:
		x.readEvents(resp)
	default:
		x.unfit(resp, why(resp))
	}
}

func (x *exchange) openStream(resp *http.Response) {
	if mediaType(resp) != typeEvents || resp.StatusCode != http.StatusOK {
		x.unfit(resp, why(resp))
		return
	}
	x.say(transports.Opened{Ref: x.out.Ref})
	x.readEvents(resp)
}

const (
	typeOther = iota
	typeJSON
	typeEvents
)

// mediaType reads the content type without its parameters. A body that is still
// encoded, by a coding that nobody asked for, is neither.
func mediaType(resp *http.Response) int {
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return typeOther
	}
	name, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch name = strings.TrimSpace(name); {
	case strings.EqualFold(name, "application/json"):
		return typeJSON
	case strings.EqualFold(name, "text/event-stream"):
		return typeEvents
	}
	return typeOther
}

func why(resp *http.Response) string {
	if coding := resp.Header.Get("Content-Encoding"); coding != "" {
		return "it is encoded as " + coding + ", which was not asked for"
	}
	return "neither JSON nor an event stream"
}

// show notes what an answer to initialize says about the session.
func (x *exchange) show(resp *http.Response) {
	if x.answered == nil {
		return
	}
	if resp != nil && resp.StatusCode/100 == 2 {
		x.t.show(resp.Header.Get(headerSession))
	}
	close(x.answered)
}
