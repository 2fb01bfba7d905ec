package engine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/fsm"
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
	evResume struct { // the delay before a resume is over
		inc *incarnation
		c   *call
		ref uint64
		n   int // which resume it would be
	}
)

// RejectedError is an HTTP answer that is no answer to the request.
type RejectedError struct {
	Status int
	Header http.Header
	Body   []byte // clipped
	Cause  error  // what was wrong with a 2xx
}

// maxShown is how much of a body an error shows: enough for a sentence, not for a
// page of HTML.
const maxShown = 256

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.Status, http.StatusText(e.Status))
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	if body := bytes.TrimSpace(e.Body); len(body) > 0 {
		text += fmt.Sprintf(": %.*q", maxShown, body)
	}
	return text
}

func (e *RejectedError) Unwrap() error { return e.Cause }

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
	c.resumes = 0
	if env.Kind() == Response || env.orphanError() {
		if !e.answers(c, env.ID) {
			t.mu.Unlock()
			e.Counters.Unmatched.Add(1)
			e.log(slog.LevelWarn, "an exchange was answered with another's id", "gen", inc.gen, "id", string(env.ID), "method", c.Method)
			return
		}
		reply := replyOf(inc, &env, ev.Frame)
		if c.ID != "" && c.ID != string(env.ID) && len(env.ID) > 0 {
			reply.Frame = Splice(ev.Frame, env.ID, c.ID)
		}
		e.complete(c, reply)
		t.mu.Unlock()
		c.tell()
		return
	}
	stream := c.stream
	t.mu.Unlock()
	if stream != nil && env.Kind() == Notification {
		stream.take(Incoming{Method: *env.Method, Params: env.Params, Frame: ev.Frame}, inc.gen, c)
		return
	}
	if _, do, err := fsm.Lifecycle.Step(e.machine.Snapshot(), fsm.Input{Event: fsm.Message, Gen: inc.gen}); err != nil || !slices.Contains(do, fsm.Deliver) {
		e.Counters.Stale.Add(1)
		return
	}
	inc.receive(&env, ev.Frame)
}

// orphanError reports an error response whose id is null or missing: JSON-RPC
// 2.0 says so when the peer could not read the id.
func (env *Envelope) orphanError() bool {
	return env.Version == "2.0" && env.Method == nil && len(env.Error) > 0 && !bytes.Equal(env.Error, null) &&
		(len(env.ID) == 0 || bytes.Equal(env.ID, null))
}

// answers reports whether an answer on a call's own exchange is its answer. By
// HTTP it can be nobody else's, so an id that is null, 0 or spelled differently is
// a defect that is counted; one that names another call is not taken. mu is held.
func (e *Engine) answers(c *call, id json.RawMessage) bool {
	switch text := string(id); {
	case text == c.id:
		return true
	case text == "" || text == "null" || text == "0" || looseID(id) == c.id:
		e.Counters.LooseIDs.Add(1)
		return true
	}
	return false
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
	defer t.mu.Unlock()
	if c := t.byRef[ref]; c != nil {
		e.extend(c)
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
	if e.getRejected(inc, ev) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	t.mu.Unlock()
	switch {
	case c == nil:
	case stopped != nil:
		e.drop(c, stopped, "")
	case c.opened != nil || c.probe || c.stream != nil:
		e.refuse(c, ev)
	default:
		e.judge(inc, c, ev)
	}
}

// judge asks policy what a refusal says about the session, or about the era.
func (e *Engine) judge(inc *incarnation, c *call, ev transports.Rejected) {
	r := policy.Refusal{ID: c.id, Issued: ev.Session != "", Status: ev.Status, Body: ev.Body, Era: policy.Legacy}
	if Era(inc.speaks.Load()) == Modern {
		r.Era = policy.Modern
	}
	if c.Notify {
		r.Exchange = policy.NotificationPOST
	} else if c.Method == methodInitialize {
		r.Exchange = policy.InitializePOST
	}
	j := policy.Judge(r)
	switch {
	case j.Signal == policy.Gone, j.Signal == policy.Suspect && inc.retired:
		e.refused(inc, c, ev)
		e.sessionGone(inc, &RejectedError{Status: ev.Status, Header: ev.Header, Body: ev.Body, Cause: ev.Cause})
	case j.Signal == policy.Suspect:
		e.suspect(inc, suspect{c, ev})
	case e.headerMismatch(inc, c, ev):
	default:
		e.refuse(c, ev)
	}
}

// refuse ends a call by a refusal that concerns it alone: by the peer's own error,
// if the body is one for this request, else as rejected.
func (e *Engine) refuse(c *call, ev transports.Rejected) {
	if reply, ok := replyIn(c, ev); ok {
		t := e.calls
		t.mu.Lock()
		if c.phase == over {
			t.mu.Unlock()
			return
		}
		reply.Gen = c.inc.gen
		e.complete(c, reply)
		t.mu.Unlock()
		c.tell()
		return
	}
	e.drop(c, rejection(ev), "")
}

// replyIn reads the JSON-RPC error in the body of a refusal, if it has one for the
// request or for none.
func replyIn(c *call, ev transports.Rejected) (Reply, bool) {
	var env Envelope
	if Parse(ev.Body, &env) != nil || env.Version != "2.0" || len(env.Error) == 0 || bytes.Equal(env.Error, null) || c.Notify {
		return Reply{}, false
	}
	if id := string(env.ID); id != c.id && id != "" && id != "null" && looseID(env.ID) != c.id {
		return Reply{}, false
	}
	reply := Reply{Err: new(RPCError), Status: ev.Status, Frame: ev.Body}
	if json.Unmarshal(env.Error, reply.Err) != nil {
		return Reply{}, false
	}
	if c.ID != "" && c.ID != string(env.ID) {
		reply.Frame = withID(ev.Body, &env, c.ID)
	}
	return reply, true
}

// withID is a response under another id, also where it had none.
func withID(frame []byte, env *Envelope, id string) []byte {
	if len(env.ID) > 0 {
		return Splice(frame, env.ID, id)
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	return append(append(append(b, `,"error":`...), env.Error...), '}')
}

// rejection is the failure of a call that was refused by HTTP alone.
func rejection(ev transports.Rejected) *Failure {
	return &Failure{
		Kind: KindRejected, NotRun: neverRun(ev.Status),
		Cause: &RejectedError{Status: ev.Status, Header: ev.Header, Body: clip(ev.Body), Cause: ev.Cause},
	}
}

func clip(body []byte) []byte { return slices.Clone(body[:min(len(body), maxShown)]) }

// neverRun reports whether an HTTP status says that the request was turned away
// before anybody worked on it (RFC 9110, section 15.5): not authenticated or
// authorized, the wrong method or form, too large, too many.
func neverRun(status int) bool {
	switch status {
	case 401, 403, 405, 406, 411, 413, 414, 415, 417, 421, 426, 428, 429, 431:
		return true
	}
	return false
}

// refused takes a proof that a request did not run: its session is gone. It is
// sent again once, on a newer incarnation.
func (e *Engine) refused(inc *incarnation, c *call, ev transports.Rejected) {
	t := e.calls
	t.mu.Lock()
	if c.phase != sent {
		t.mu.Unlock()
		return
	}
	d := e.Rules.Decide(e.loss(c, policy.Refused))
	c.unsent = true // whatever the peer had of it, it did not run
	switch {
	case d.CursorLost || c.Pin != 0:
		t.mu.Unlock()
		e.drop(c, &Failure{Kind: KindPinned, Gen: inc.gen}, "")
		return
	case d.Action == policy.Fail:
		t.mu.Unlock()
		if _, ok := replyIn(c, ev); ok {
			e.refuse(c, ev)
			return
		}
		f := rejection(ev)
		f.Kind = KindSession
		e.drop(c, f, "")
		return
	}
	c.resent = true
	e.again(c, inc, d.Action, &Failure{Kind: KindSession, Gen: inc.gen, Cause: rejection(ev).Cause})
}

// again sends a call once more: at once, if an incarnation other than the one it
// must not go back to serves, or when one does. t.mu is held, and released.
func (e *Engine) again(c *call, never *incarnation, do policy.Action, f *Failure) {
	t := e.calls
	f = e.retain(c, do, f)
	next := t.inc
	now := f == nil && t.gate == gateOpen && next != never
	if now {
		t.withdraw(c)
		t.renew(c)
		t.give(c, next, e.ref())
	}
	if f == nil && t.gate == gateEnded {
		f = t.terminal
	}
	t.mu.Unlock()
	switch {
	case now:
		e.send(c, next)
	case f != nil:
		e.drop(c, f, "")
	default:
		e.use()
	}
}

// broken takes the end of a response without its answer.
func (e *Engine) broken(inc *incarnation, ev transports.Broken) {
	if e.getBroken(inc, ev) {
		return
	}
	t := e.calls
	t.mu.Lock()
	c, stopped := t.landed(ev.Ref)
	if c == nil || stopped != nil || c.phase != sent {
		t.mu.Unlock()
		if stopped != nil {
			e.drop(c, stopped, "")
		}
		return
	}
	f := &Failure{Kind: KindBroken, Gen: inc.gen, Cause: ev.Cause, After: ev.Retry}
	if c.opened != nil || c.probe || c.stream != nil || c.Notify {
		t.mu.Unlock()
		e.drop(c, f, "")
		return
	}
	if ev.LastID != "" {
		c.lastID = ev.LastID
	}
	d := e.Rules.Decide(e.loss(c, policy.Broken))
	if d.Action == policy.Resume {
		c.resumes++
		delay := max(ev.Retry, e.StreamBackoff.Delay(c.resumes, 0))
		t.mu.Unlock()
		e.after(delay, evResume{inc, c, ev.Ref, c.resumes})
		return
	}
	c.resent = true
	e.again(c, nil, d.Action, f)
}

// maxResumes is how many resumes in a row may bring nothing.
const maxResumes = 5

// resumable reports whether a call's stream can be continued where it broke
// (2025-11-25, transports, Resumability and Redelivery).
func (c *call) resumable() bool {
	return c.lastID != "" && c.resumes < maxResumes && c.inc != nil && !c.inc.leaving.Load()
}

// resume asks for the rest of a broken stream. A server that stays silent on it is
// asked again.
func (e *Engine) resume(ev evResume) {
	c, t := ev.c, e.calls
	t.mu.Lock()
	live := c.phase == sent && c.ref == ev.ref && c.resumes == ev.n && !ev.inc.leaving.Load()
	lastID := c.lastID
	t.mu.Unlock()
	if !live {
		return
	}
	err := ev.inc.tr.Send(transports.Outbound{
		Ref: ev.ref, Op: transports.OpResume, LastID: lastID, ID: c.id, Method: c.Method, Header: e.header(c, ev.inc),
	})
	if err != nil {
		e.broken(ev.inc, transports.Broken{Ref: ev.ref, LastID: lastID, Cause: err})
		return
	}
	e.after(resumeSilence, evSilent{ev})
}

// resumeSilence is how long a resumed stream may bring nothing before it is asked
// for again: some servers only look for missed events when asked.
const resumeSilence = 5 * time.Second

// evSilent looks whether a resumed stream brought anything.
type evSilent struct{ evResume }

func (e *Engine) silent(ev evSilent) {
	t := e.calls
	t.mu.Lock()
	still := ev.c.phase == sent && ev.c.ref == ev.ref && ev.c.resumes == ev.n
	capped := ev.c.resumes >= maxResumes
	if still && !capped {
		ev.c.resumes++
		ev.n = ev.c.resumes
	}
	t.mu.Unlock()
	if still && !capped {
		e.resume(ev.evResume)
	}
}

// headers are the headers of every message to a settled incarnation.
func (inc *incarnation) headers() http.Header {
	if inc.e.Factory.Shape != transports.Posts || inc.version == "" {
		return nil
	}
	return http.Header{"Mcp-Protocol-Version": {inc.version}}
}

// header is what the protocol layer adds to one request: the caller's own, the
// version, and the parameters that the tool wants mirrored.
func (e *Engine) header(c *call, inc *incarnation) http.Header {
	h := c.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if c.Method == methodInitialize {
		return h // it is what agrees on a version
	}
	version := inc.version
	if c.version != "" {
		version = c.version
	}
	if version != "" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if c.Method == methodCallTool && Era(inc.speaks.Load()) == Modern {
		e.evidence.mirror(h, c.name, c.Params)
	}
	return h
}

// accepted sends a notification of an opening exchange and waits until the peer
// has accepted it: what follows must not overtake it.
func (inc *incarnation) accepted(ctx context.Context, method string) error {
	c := &call{Request: Request{Method: method, Notify: true}, opened: inc, done: make(chan struct{})}
	inc.e.giveTo(inc, c)
	if _, f := inc.e.await(ctx, c); f != nil {
		return f
	}
	return nil
}
