package engine

import (
	"bytes"
	"log/slog"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// What the inbox carries about exchanges on Posts. Each names one attempt, and
// settles it whatever the generation.
type (
	evRejected struct {
		inc *incarnation
		transports.Rejected
	}
	evBroken struct {
		inc *incarnation
		transports.Broken
	}
	evUnsent struct {
		inc *incarnation
		transports.Unsent
	}
)

// exchange takes a message of an attempt's own response. An answer settles the
// attempt, whatever became of its incarnation; the rest is for whoever may still
// hear that one.
func (inc *incarnation) exchange(ev transports.Message) {
	e := inc.e
	var env Envelope
	if err := Parse(ev.Frame, &env); err != nil {
		e.malformed(inc, ev.Frame, err.Error())
		return
	}
	t := e.calls
	t.mu.Lock()
	c := t.byRef[ev.Ref]
	if c == nil {
		t.mu.Unlock()
		e.Counters.Unmatched.Add(1)
		return
	}
	e.extend(c)
	e.resumeBrought(inc, c)
	if env.Kind() != Response && !env.orphan() {
		t.mu.Unlock()
		e.reachedBy(c)
		inc.aside(&env, ev.Frame)
		return
	}
	if !e.answers(c, env.ID) {
		t.mu.Unlock()
		e.Counters.Unmatched.Add(1)
		e.log(slog.LevelWarn, "an exchange was answered with another's id", "gen", inc.gen, "id", string(env.ID), "method", c.Method)
		return
	}
	reply := c.replyOf(inc, &env, ev.Frame)
	if c.Method == methodListTools { // long enough to read that nobody else should wait
		t.mu.Unlock()
		e.learnTools(inc, c, &reply)
		t.mu.Lock()
	}
	if t.byRef[ev.Ref] != c {
		t.mu.Unlock()
		return
	}
	e.complete(c, reply)
	t.mu.Unlock()
	c.tell()
}

// aside takes a message of an attempt's response that is no answer. Progress is
// about one request, so it counts whatever became of the incarnation.
func (inc *incarnation) aside(env *Envelope, frame []byte) {
	switch {
	case inc.audible():
		inc.receive(env, frame)
	case env.Kind() == Notification && *env.Method == methodProgress && inc.e.progress(inc, env.Params):
	default:
		inc.e.Counters.Stale.Add(1)
	}
}

// answers reports whether an answer on a call's own exchange is its answer. By
// HTTP it can be nobody else's, so an id that is null, 0 or spelled differently is
// a defect that is counted; one that names another call is not taken. mu is held.
func (e *Engine) answers(c *call, id json.RawMessage) bool {
	if string(id) == c.id {
		return true
	}
	if !transports.SameID(id, c.id) {
		return false
	}
	e.Counters.LooseIDs.Add(1)
	return true
}

// extend moves the idle bound of a call: its stream lives. mu is held.
func (e *Engine) extend(c *call) {
	if c.Idle > 0 {
		c.idleAt = e.Clock.Now().Add(c.Idle)
	}
}

// alive notes bytes that are no message on an attempt's stream.
func (e *Engine) alive(ref uint64) {
	t := e.calls
	t.mu.Lock()
	c := t.byRef[ref]
	if c != nil {
		e.extend(c)
	}
	t.mu.Unlock()
	if c != nil {
		e.reachedBy(c)
	}
}

// landed returns the call of an attempt that a fact names, or nil. The fact may
// overtake the return of Send. mu is held.
func (t *table) landed(ref uint64) (c *call, stopped *Failure) {
	if c = t.byRef[ref]; c != nil && c.phase == sending {
		c.phase, stopped, c.stopped = sent, c.stopped, nil
	}
	return c, stopped
}

// rejected takes an HTTP answer that is no answer: the session may be gone, or the
// request alone is concerned.
func (e *Engine) rejected(inc *incarnation, ev transports.Rejected) {
	if e.getRejected(inc, ev) || e.resumeRejected(inc, ev) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	if c != nil {
		c.turned = true
	}
	t.mu.Unlock()
	if c == nil {
		return
	}
	e.reachedBy(c)
	switch {
	case stopped != nil:
		e.drop(c, stopped, c.reason)
	case c.opened != nil, c.settles():
		e.refuse(c, ev)
	default:
		e.judge(inc, c, ev)
	}
}

// settles reports whether a call is what a suspicion or a header mismatch waits
// for, so that its own refusal raises none.
func (c *call) settles() bool {
	switch c.then.(type) {
	case evVerified, evRelisted:
		return true
	}
	return false
}

// judge asks policy what a refusal says about the session, or about the era.
func (e *Engine) judge(inc *incarnation, c *call, ev transports.Rejected) {
	r := policy.Refusal{ID: c.id, Issued: ev.Session != "", Status: ev.Status, Body: ev.Body, Era: policy.Legacy, Uncredentialed: uncredentialed(ev.Status, ev.Cause)}
	if Era(inc.speaks.Load()) == Modern {
		r.Era = policy.Modern
	}
	if c.Notify {
		r.Exchange = policy.NotificationPOST
	} else if c.Method == methodInitialize {
		r.Exchange = policy.InitializePOST
	}
	signal := policy.Judge(r).Signal
	s := suspect{c, ev, signal == policy.SuspectAnswered}
	switch doubt := s.answered || signal == policy.Suspect; {
	case signal == policy.Gone, doubt && inc.retired:
		inc.suspects = append(inc.suspects, s)
		e.sessionGone(inc, ev)
	case doubt:
		e.suspect(inc, s)
	case e.headerMismatch(inc, c, ev):
	default:
		e.refuse(c, ev)
	}
}

// refuse ends a call by a refusal that concerns it alone: by the peer's own error,
// if the body is one for this request, else as rejected.
func (e *Engine) refuse(c *call, ev transports.Rejected) {
	t := e.calls
	t.mu.Lock()
	if t.byRef[ev.Ref] != c { // it was settled, or sent again, meanwhile
		t.mu.Unlock()
		return
	}
	reply, ok := replyIn(c, ev)
	if !ok {
		t.mu.Unlock()
		e.drop(c, rejection(ev), "")
		return
	}
	e.complete(c, reply)
	t.mu.Unlock()
	c.tell()
}

// replyIn reads the JSON-RPC error in the body of a refusal, if it has one for the
// request or for none.
func replyIn(c *call, ev transports.Rejected) (Reply, bool) {
	var env Envelope
	if Parse(ev.Body, &env) != nil || env.Version != "2.0" || len(env.Error) == 0 || bytes.Equal(env.Error, null) ||
		!env.settles() || c.Notify {
		return Reply{}, false
	}
	if id := string(env.ID); id != c.id && id != "" && id != "null" && transports.LooseID(env.ID) != c.id {
		return Reply{}, false
	}
	return Reply{Err: errorOf(env.Error), Status: ev.Status, Header: ev.Header, Frame: c.known(&env, ev.Body), Gen: c.inc.gen}, true
}

// withID is a response under another id, also where it had none.
func withID(frame []byte, env *Envelope, id string) []byte {
	if len(env.ID) > 0 {
		return Splice(frame, env.ID, id)
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	if len(env.Error) > 0 && !bytes.Equal(env.Error, null) {
		return append(append(append(b, `,"error":`...), env.Error...), '}')
	}
	return append(append(append(b, `,"result":`...), env.Result...), '}')
}

// refused takes a proof that a request did not run: its session is gone. It is
// sent again once, on a newer incarnation.
func (e *Engine) refused(inc *incarnation, c *call, ev transports.Rejected) {
	t := e.calls
	t.mu.Lock()
	if t.byRef[ev.Ref] != c || c.phase != sent {
		t.mu.Unlock()
		return
	}
	d := e.Rules.Decide(e.loss(c, policy.Refused))
	c.unsent = true // whatever the peer had of it, it did not run
	f := rejection(ev)
	f.Kind, f.Gen = KindSession, inc.gen
	switch {
	case c.probe, c.stream != nil: // the next incarnation is asked anew
		t.mu.Unlock()
		e.drop(c, f, "")
	case d.CursorLost || c.Pin != 0:
		t.mu.Unlock()
		e.drop(c, &Failure{Kind: KindPinned, Gen: inc.gen, Cause: f.Cause}, "")
	case d.Action == policy.Fail:
		_, answered := replyIn(c, ev)
		t.mu.Unlock()
		if answered {
			e.refuse(c, ev)
			return
		}
		e.drop(c, f, "")
	default:
		c.resent = true
		e.again(c, inc, d.Action, f)
	}
}

// again sends a call once more if action says so: at once, if an incarnation other
// than the one it must not go back to serves, or when one does. Otherwise it ends
// with f. t.mu is held, and released.
func (e *Engine) again(c *call, never *incarnation, do policy.Action, f *Failure) {
	t := e.calls
	next := t.inc
	if resends(do) && t.gate == gateOpen && next != never {
		e.part(c, do)
		t.renew(c)
		t.give(c, next, e.ref())
		t.mu.Unlock()
		e.send(c, next)
		return
	}
	f = e.retain(c, do, f)
	if f == nil && t.gate == gateEnded {
		f = t.terminal
	}
	t.mu.Unlock()
	if f != nil {
		e.drop(c, f, "")
		return
	}
	e.inbox.post(evUse{}) // not at once: an ending may be half performed
}
