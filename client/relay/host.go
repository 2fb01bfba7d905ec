package relay

import (
	"bytes"
	"errors"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
	"github.com/respawn-mcp/respawn/fsm"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodDiscover    = "server/discover"
	methodListen      = "subscriptions/listen"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodPing        = "ping"
)

// FromHost takes one message of the host. It does not block, and the frame must
// not be modified afterwards. What is no JSON-RPC message is logged and dropped;
// a batch is taken apart, and each of its requests answered by itself.
func (r *Relay) FromHost(frame []byte) {
	if r.enter() {
		defer r.taking.Done()
	}
	frame = bytes.TrimSpace(frame)
	if len(frame) == 0 {
		return
	}
	if frame[0] != '[' {
		r.one(frame)
		return
	}
	batch, err := engine.ParseBatch(frame) // 2025-03-26, basic, Batching
	if err != nil {
		r.cfg.Logger.Warn("the host sent no message", "bytes", len(frame), "err", err)
	}
	for _, one := range batch {
		r.one(one)
	}
}

// one takes a message that is no batch. Over HTTP each is an exchange of its own, and
// none may overtake the host's notifications/initialized (2025-11-25, lifecycle):
// what comes while that is on its way waits for it, as long as any request is held.
func (r *Relay) one(frame []byte) {
	r.mu.Lock()
	if r.pausing {
		r.paused = append(r.paused, frame)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.take(frame)
}

// pause makes what comes wait for the host's notifications/initialized. mu is held.
func (r *Relay) pause() {
	if r.pausing = true; r.hold() > 0 {
		r.pauseOver = r.cfg.Clock.AfterFunc(r.hold(), r.resume)
	}
}

// resume takes what waited for the host's notifications/initialized.
func (r *Relay) resume() {
	r.resuming.Lock() // or one resume could overtake another
	defer r.resuming.Unlock()
	for {
		r.mu.Lock()
		if len(r.paused) == 0 {
			if r.pausing = false; r.pauseOver != nil {
				r.pauseOver.Stop()
			}
			r.mu.Unlock()
			return
		}
		frame := r.paused[0]
		r.paused = r.paused[1:]
		r.mu.Unlock()
		r.take(frame)
	}
}

func (r *Relay) take(frame []byte) {
	var env engine.Envelope
	if err := engine.Parse(frame, &env); err != nil {
		r.unreadable(frame, err)
		return
	}
	switch env.Kind() {
	case engine.AskedFor:
		r.request(&message{id: string(env.ID), method: *env.Method, params: env.Params, frame: frame, token: token(env.Params)})
	case engine.Notification:
		r.notification(&message{method: *env.Method, params: env.Params, frame: frame})
	case engine.Response:
		r.dialogAnswer(&env, frame)
	default:
		r.unreadable(frame, errNoMessage)
	}
}

var errNoMessage = errors.New("no JSON-RPC message")

// FromHostCut takes the beginning of a message of the host that was not read as a
// whole, for the reason why. A request whose id and method are in it is answered.
func (r *Relay) FromHostCut(head []byte, why error) {
	if r.enter() {
		defer r.taking.Done()
	}
	r.unreadable(head, why)
}

// unreadable answers a request of the host's that no server can be given, if it can
// be told that it is one.
func (r *Relay) unreadable(frame []byte, why error) {
	s := engine.Salvage(frame)
	r.cfg.Logger.Warn("the host sent no message", "bytes", len(frame), "err", why, "id", s.ID)
	if s.ID == "" || s.Method == "" || s.Answers {
		return
	}
	r.mu.Lock()
	inUse := r.live[s.ID] != nil
	r.mu.Unlock()
	if method := ""; !inUse && json.Unmarshal([]byte(s.Method), &method) == nil {
		r.toHost(r.failure(&message{id: s.ID, method: method}, &engine.Failure{Kind: engine.KindInvalid, Outcome: engine.NotExecuted, Cause: why}))
	}
}

// token is the progress token of a request, or "".
func token(params []byte) string {
	if !bytes.Contains(params, []byte("progressToken")) {
		return ""
	}
	var p struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || len(p.Meta.Token) == 0 {
		return ""
	}
	return engine.IDKey(p.Meta.Token)
}

// request takes a request of the host. It is answered exactly once.
func (r *Relay) request(m *message) {
	r.mu.Lock()
	if r.live[m.id] != nil {
		r.mu.Unlock() // an answer could only be taken for the first one's
		r.cfg.Logger.Warn("the host used an id that is in use", "id", m.id, "method", m.method)
		return
	}
	r.live[m.id] = m
	if m.token != "" {
		r.tokens[m.token]++
	}
	if r.record == nil {
		switch {
		case m.method == methodInitialize || m.method == methodDiscover:
			r.openings = append(r.openings, m)
			r.wake()
			r.mu.Unlock()
			select {
			case <-r.engine.Done(): // no server will come for it
				r.giveUpOpenings()
			default:
			}
			return
		case modernMeta(m.params) != nil: // its meta opens; it goes the usual way
			r.openings = append(r.openings, &message{params: m.params})
			r.wake()
		}
	}
	r.mu.Unlock()
	switch {
	case m.method == methodListen && !r.legacy():
		r.listen(m)
	case m.method == methodPing && r.engine.State() != fsm.Serving && !r.engine.State().Terminal():
		r.answer(m, emptyResult(m.id))
	default:
		r.post(m)
	}
}

// legacy reports whether the host speaks to a legacy server, which has no streams.
func (r *Relay) legacy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record != nil && r.record.session.Era == engine.Legacy
}

// post passes a request on.
func (r *Relay) post(m *message) {
	r.engine.Post(engine.Request{
		Method: m.method, Params: m.params, ID: m.id, Frame: m.frame, Version: r.version(m.params),
		Wait: true, Hold: r.hold(),
		Over: func(reply engine.Reply, f *engine.Failure) { r.over(m, reply, f) },
	})
}

// version is what the header of a request says: over HTTP, what its _meta does
// (2026-07-28, streamable-http, Protocol Version Header).
func (r *Relay) version(params []byte) string {
	if !r.posts {
		return ""
	}
	return versionOf(params)
}

// over passes the answer of a request on, or says why there is none.
func (r *Relay) over(m *message, reply engine.Reply, f *engine.Failure) {
	switch {
	case f == nil:
		r.heard()
		if m.method == methodInitialize && reply.Err == nil {
			r.renew(m, reply)
		}
		r.keepToken(m, reply)
		r.answer(m, reply.Frame)
	case m.method == methodPing && f.Kind == engine.KindDied:
		r.answer(m, emptyResult(m.id)) // the relay is there, which is what the host asked
	default:
		r.answer(m, r.failure(m, f))
	}
}

// maxTasks is how many tasks of one server may have progress told of them.
const maxTasks = 1024

// keepToken keeps the progress token of a request whose answer is a task: it stays
// valid while the task runs (2025-11-25, progress), which ends with its server at the
// latest.
func (r *Relay) keepToken(m *message, reply engine.Reply) {
	if m.token == "" || !isTask(reply.Result) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tasks) < maxTasks {
		r.tasks[m.token] = true
	}
}

// isTask reports whether a result promises another one.
func isTask(result json.RawMessage) bool {
	if !bytes.Contains(result, []byte(`"task"`)) {
		return false
	}
	var p struct {
		Task json.RawMessage `json:"task"`
	}
	return json.Unmarshal(result, &p) == nil && len(p.Task) > 0
}

// answer sends the one answer to a request.
func (r *Relay) answer(m *message, frame []byte) {
	if r.forget(m.id) {
		r.toHost(frame)
	}
}

// forget takes a request out of those that owe an answer, and reports whether it
// was one.
func (r *Relay) forget(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.live[id]
	if m == nil {
		return false
	}
	delete(r.live, id)
	delete(r.streams, id)
	if m.token != "" {
		if r.tokens[m.token]--; r.tokens[m.token] <= 0 {
			delete(r.tokens, m.token)
		}
	}
	return true
}

// notification passes a notification of the host on.
func (r *Relay) notification(m *message) {
	switch m.method {
	case methodCancelled:
		r.cancel(m)
		return
	case methodProgress:
		r.progress(m)
		return
	case methodInitialized:
		m.id = idInitialized
		r.mu.Lock() // so that a replay sends it, or finds it posted
		defer r.mu.Unlock()
		r.initialized = true
		if r.posts {
			r.pause()
		}
	}
	r.engine.Post(engine.Request{
		Method: m.method, Params: m.params, ID: m.id, Frame: m.frame, Notify: true,
		Wait: true, Hold: r.hold(),
		Over: func(_ engine.Reply, f *engine.Failure) {
			if f != nil {
				r.cfg.Logger.Warn("a notification of the host was lost", "method", m.method, "err", f)
			}
			if m.method == methodInitialized && r.posts {
				if f == nil {
					r.engine.StartGet()
				}
				go r.resume() // Post may be running, with r.mu held
			}
		},
	})
}

// idInitialized names the host's notifications/initialized while it waits, so that
// a replay, which sends it too, can take it back. No JSON text looks like it.
const idInitialized = "initialized"

// cancel takes the host's word that it no longer waits for a request. The server
// is told if it has the request: not if that still waits or was on a server that
// died, and never of an initialize (2025-11-25, cancellation).
func (r *Relay) cancel(m *message) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(m.params, &p) != nil {
		return
	}
	id := string(p.ID)
	r.mu.Lock()
	target, stream := r.live[id], r.streams[id]
	r.mu.Unlock()
	if target == nil || target.method == methodInitialize {
		return
	}
	r.forget(id) // first: what its end brings is for nobody any more
	r.engine.Withdraw(id, m.frame)
	if stream != nil { // or it would be opened again
		stream.Close()
	}
	r.settled(target) // a probe is offered to nobody any more
}

// listen opens a stream for the host. It outlives the server: a replacement is
// asked for the same under the same id.
func (r *Relay) listen(m *message) {
	var p struct {
		Notifications engine.Filter `json:"notifications"`
	}
	if json.Unmarshal(m.params, &p) != nil {
		r.post(m) // the server says what is wrong with it
		return
	}
	raw := engine.RawStream{
		ID: m.id, Frame: m.frame, Hold: r.hold(),
		Over: func(reply engine.Reply, f *engine.Failure) { r.over(m, reply, f) },
		// What the stream told of may have changed while it was not open.
		Again: func(f engine.Filter) { r.tellChanges(f.Tools, f.Prompts, f.Resources, f.URIs, m.id) },
	}
	s, f := r.engine.ListenRaw(p.Notifications, raw, func(in engine.Incoming, _ uint64) {
		if in.Method == methodCancelled { // a graceful end, which is all the host gets
			r.forget(m.id)
		}
		r.heard()
		r.toHost(in.Frame)
	})
	if f != nil {
		r.over(m, engine.Reply{}, f)
		return
	}
	r.mu.Lock()
	if r.live[m.id] != nil {
		r.streams[m.id] = s
	}
	r.mu.Unlock()
}
