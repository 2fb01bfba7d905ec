package engine

import (
	"bytes"
	"log/slog"
	"slices"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

// message takes one frame of the peer, on the transport's goroutine. The pure
// table says whether anybody may still hear this incarnation.
func (inc *incarnation) message(frame []byte) {
	e := inc.e
	if !inc.audible() {
		e.Counters.Stale.Add(1)
		return
	}
	var env Envelope
	if err := Parse(frame, &env); err != nil {
		e.malformed(inc, frame, err.Error())
		e.unreadable(inc, frame, err)
		return
	}
	inc.receive(&env, frame)
}

// unreadable ends the call whose answer can't be read, as far as it can be told.
// Asking again would bring the same, and waiting nothing.
func (e *Engine) unreadable(inc *incarnation, frame []byte, why error) {
	if why == errTrailing || why != errDepth && json.Valid(frame) { // JSON, but no message: the answer is still to come
		return
	}
	s := Salvage(frame)
	if e.Factory.Shape == transports.Posts || !s.Answers || s.Method != "" || s.ID == "" {
		return
	}
	if c := e.calls.find(inc, []byte(s.ID)); c != nil {
		e.drop(c, &Failure{Kind: KindUnreadable, Gen: inc.gen, Cause: why}, "")
	}
}

// audible reports whether anybody may still hear this incarnation.
func (inc *incarnation) audible() bool {
	_, do, err := fsm.Lifecycle.Step(inc.e.machine.Snapshot(), fsm.Input{Event: fsm.Message, Gen: inc.gen})
	if err != nil {
		inc.e.Counters.Illegal.Add(1)
	}
	return slices.Contains(do, fsm.Deliver)
}

// receive takes a parsed message that somebody may still hear.
func (inc *incarnation) receive(env *Envelope, frame []byte) {
	e := inc.e
	switch env.Kind() {
	case Response:
		if e.Factory.Shape == transports.Posts { // an answer comes on its own exchange alone
			e.Counters.Unmatched.Add(1)
			return
		}
		e.answer(inc, env, frame)
	case AskedFor:
		inc.asked(env, frame)
	case Notification:
		if *env.Method == methodProgress && e.progress(inc, env.Params) {
			return
		}
		if m := (Incoming{Method: *env.Method, Params: env.Params, Frame: frame}); !inc.route(m) {
			e.Face.Take(inc.ctx, inc.gen, m, nil)
		}
	default:
		e.malformed(inc, frame, "no JSON-RPC message")
	}
}

func (e *Engine) malformed(inc *incarnation, frame []byte, why string) {
	e.Counters.Malformed.Add(1)
	e.log(slog.LevelWarn, "a line of the server is no message", "gen", inc.gen, "why", why, "bytes", len(frame))
}

// answer completes the call that a response names. An error without an id is
// not a response, and concerns nobody (see malformed).
func (e *Engine) answer(inc *incarnation, env *Envelope, frame []byte) {
	t := e.calls
	t.mu.Lock()
	c := t.byID[string(env.ID)]
	if c == nil {
		if c = t.spelled(inc, env.ID); c != nil {
			e.Counters.LooseIDs.Add(1)
		}
	}
	if c == nil || c.inc != inc || c.Notify {
		t.mu.Unlock()
		e.Counters.Unmatched.Add(1)
		return
	}
	e.complete(c, c.replyOf(inc, env, frame))
	t.mu.Unlock()
	c.tell()
}

// replyOf is the answer to a call.
func (c *call) replyOf(inc *incarnation, env *Envelope, frame []byte) Reply {
	reply := replyOf(inc, env, frame)
	reply.Frame = c.known(env, frame)
	return reply
}

// known is the frame of an answer to a call, under the id that its owner knows it by.
func (c *call) known(env *Envelope, frame []byte) []byte {
	if c.ID == "" || c.ID == string(env.ID) {
		return frame
	}
	frame = withID(frame, env, c.ID)
	if c.stream != nil {
		frame = underHandle(frame, c.ID)
	}
	return frame
}

func replyOf(inc *incarnation, env *Envelope, frame []byte) Reply {
	reply := Reply{Gen: inc.gen, Result: env.Result, Frame: frame}
	if len(env.Error) > 0 && !bytes.Equal(env.Error, null) {
		reply.Err, reply.Result = errorOf(env.Error), nil
	}
	return reply
}

// errorOf reads an error object. Each member counts for itself: a code that is
// written as -32602.0, or a message that is none, is no reason to lose the rest.
func errorOf(raw json.RawMessage) *RPCError {
	var o struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if Decode(raw, &o) != nil {
		return &RPCError{Message: "unreadable error object: " + string(raw)}
	}
	e := &RPCError{Data: o.Data}
	e.Code, _ = integer(string(o.Code))
	if json.Unmarshal(o.Message, &e.Message) != nil {
		e.Message = string(o.Message)
	}
	return e
}

// complete gives a call its answer. mu is held.
func (e *Engine) complete(c *call, reply Reply) {
	e.calls.withdraw(c)
	if c.opened != nil {
		c.opened.answered.Store(true)
	}
	if reply.Err == nil {
		e.state.learn(c)
		if c.inc.leaving.Load() && c.stream == nil && c.opened == nil && kept(c.Method) {
			e.inbox.post(evKept{c}) // its session ends, and the next may have been told all else already
		}
	}
	c.phase, c.reply = over, reply
	e.release(c)
}

const methodProgress = "notifications/progress"

// progress moves the idle bound of the call that it names and tells its caller.
// It reports whether the notification was about a call of that incarnation.
func (e *Engine) progress(inc *incarnation, params json.RawMessage) bool {
	var p struct {
		Token json.RawMessage `json:"progressToken"`
		Progress
	}
	if Decode(params, &p) != nil {
		return false
	}
	t := e.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tokens[string(p.Token)]
	if c == nil && len(t.tokens) > 0 {
		c = t.tokens[IDKey(p.Token)[1:]] // ours are numbers
	}
	if c == nil || c.inc != inc {
		return false
	}
	e.extend(c)
	if len(c.progress) == maxProgress {
		c.progress = c.progress[1:]
	}
	c.progress = append(c.progress, p.Progress)
	select {
	case c.news <- struct{}{}:
	default:
	}
	return true
}

// asked takes a request of the peer. A modern server has none to make
// (2026-07-28, stdio, Receiving Messages), so none is answered.
func (inc *incarnation) asked(env *Envelope, frame []byte) {
	e := inc.e
	if Era(inc.speaks.Load()) == Modern {
		e.Counters.Unanswered.Add(1)
		e.log(slog.LevelWarn, "a modern server sent a request", "gen", inc.gen, "method", *env.Method)
		return
	}
	id := env.ID
	reply := func(a Answer) { inc.reply(id, a) }
	if *env.Method == methodPing && e.Open == nil {
		reply(Answer{})
		return
	}
	e.Face.Take(inc.ctx, inc.gen, Incoming{ID: id, Method: *env.Method, Params: env.Params, Frame: frame}, reply)
}

// reply answers a request of this incarnation; once it is gone the answer is for
// nobody. Replies bypass the gate.
func (inc *incarnation) reply(id json.RawMessage, a Answer) {
	frame, err := a.Frame, error(nil)
	if frame == nil {
		frame, err = appendReply(nil, id, a)
	}
	if err == nil && inc.leaving.Load() { // whoever asked is gone, though its transport is not yet
		err = transports.ErrGone
	}
	if err == nil {
		err = inc.tr.Send(transports.Outbound{Ref: inc.e.ref(), Header: inc.headers(), Frame: frame})
	}
	if err != nil {
		inc.e.Counters.Stale.Add(1)
	}
}

// sent completes a notification.
func (e *Engine) sent(ref uint64) {
	t := e.calls
	t.mu.Lock()
	c := t.byRef[ref]
	if c == nil || !c.Notify {
		t.mu.Unlock()
		return
	}
	t.withdraw(c)
	c.phase = over
	e.release(c)
	t.mu.Unlock()
	c.tell()
}

// unsent notes that nothing of an attempt was written. On a pipe its incarnation
// is about to end, and the ending decides what that means.
func (e *Engine) unsent(ref uint64) {
	t := e.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byRef[ref]; c != nil {
		c.unsent = true
	}
}

// oversized ends the call whose answer was dropped for its size. Asking again would
// bring the same.
func (e *Engine) oversized(inc *incarnation, id string, bytes int) {
	if c := e.calls.find(inc, []byte(id)); c != nil {
		e.drop(c, &Failure{Kind: KindTooLarge, Cause: &SizeError{Bytes: bytes}}, "")
	}
}
