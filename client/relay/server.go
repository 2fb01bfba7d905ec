package relay

import (
	"context"
	"maps"
	"strconv"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// face is what the engine sees of a Relay.
type face Relay

// dialog is a request of the server that the host works on.
type dialog struct {
	gen   uint64
	id    string // the server's
	token string // its progress token's engine.IDKey; "" for none
	reply func(engine.Answer)
}

// Take passes on what the server says of itself: its requests under an id that no
// other generation's has, and notifications as they are.
func (f *face) Take(_ context.Context, gen uint64, m engine.Incoming, reply func(engine.Answer)) {
	r := (*Relay)(f)
	switch {
	case reply != nil:
		r.mu.Lock()
		r.dialogID++
		id := strconv.FormatUint(r.dialogID, 10)
		d := dialog{gen, string(m.ID), token(m.Params), reply}
		r.dialogs[id] = d
		if d.token != "" {
			r.dialogTokens[d.token] = gen
		}
		r.mu.Unlock()
		r.toHost(engine.Splice(m.Frame, m.ID, id))
	case m.Method == methodCancelled:
		r.dialogCancel(gen, m)
	case m.Method == methodProgress && !r.inFlight(m.Params):
		r.cfg.Logger.Debug("progress for no request in flight", "gen", gen)
	default:
		r.toHost(m.Frame)
	}
}

// Serves and Changed concern what a client keeps; a relay keeps nothing.
func (f *face) Serves(uint64, bool) {}

// Changed is for a client's caches.
func (f *face) Changed(string, string) {}

// inFlight reports whether a progress notification is about a request that the
// host waits for.
func (r *Relay) inFlight(params json.RawMessage) bool {
	var p struct {
		Token json.RawMessage `json:"progressToken"`
	}
	if json.Unmarshal(params, &p) != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	token := engine.IDKey(p.Token)
	return r.tokens[token] > 0 || r.tasks[token]
}

// dialogAnswer takes the host's answer to a request of the server. One for a dead
// generation goes nowhere.
func (r *Relay) dialogAnswer(env *engine.Envelope, frame []byte) {
	r.mu.Lock()
	d, ok := r.dialogs[string(env.ID)]
	delete(r.dialogs, string(env.ID))
	if !isTask(env.Result) || len(r.dialogTokens) > maxTasks {
		delete(r.dialogTokens, d.token)
	}
	r.mu.Unlock()
	if !ok {
		r.cfg.Logger.Debug("the host answered what nobody asked", "id", string(env.ID))
		return
	}
	d.reply(engine.Answer{Frame: engine.Splice(frame, env.ID, d.id)})
}

// progress passes on how far the host is with a request of the server's. The server
// that asked may be gone, and another one knows nothing of it.
func (r *Relay) progress(m *message) {
	var p struct {
		Token json.RawMessage `json:"progressToken"`
	}
	_ = json.Unmarshal(m.params, &p) // without a token it is about nothing
	r.mu.Lock()
	gen, ok := r.dialogTokens[engine.IDKey(p.Token)]
	r.mu.Unlock()
	if !ok {
		r.cfg.Logger.Debug("the host told the progress of what nobody waits for", "token", string(p.Token))
		return
	}
	r.engine.Post(engine.Request{
		Method: m.method, Params: m.params, Frame: m.frame, Notify: true, Pin: gen,
		Over: func(engine.Reply, *engine.Failure) {},
	})
}

// dialogCancel passes on that the server no longer waits for an answer.
func (r *Relay) dialogCancel(gen uint64, m engine.Incoming) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if _, err := json.Parse(m.Params, &p, json.ZeroCopy); err != nil {
		return
	}
	r.mu.Lock()
	var id string
	for host, d := range r.dialogs {
		if d.gen == gen && d.id == string(p.ID) {
			id = host
			delete(r.dialogs, host)
			delete(r.dialogTokens, d.token)
		}
	}
	r.mu.Unlock()
	if id != "" {
		r.toHost(engine.Splice(m.Frame, p.ID, id))
	}
}

// dropDialogs tells the host that nobody waits for its answers to a dead server.
func (r *Relay) dropDialogs(gen uint64) {
	r.mu.Lock()
	var ids []string
	for id, d := range r.dialogs {
		if d.gen <= gen {
			ids = append(ids, id)
			delete(r.dialogs, id)
		}
	}
	maps.DeleteFunc(r.dialogTokens, func(_ string, of uint64) bool { return of <= gen })
	r.mu.Unlock()
	for _, id := range ids {
		r.toHost([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id +
			`,"reason":"the server that asked went away"}}`))
	}
}
