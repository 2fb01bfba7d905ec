package relay

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// record is the opening exchange that the host and a server agreed on.
type record struct {
	session  *engine.Session
	params   []byte // the host's: of its initialize, or with the _meta of its modern requests
	asked    bool   // modern: by a server/discover of the host's
	declared []byte // the capabilities that the host was told of
}

// DriftError says that a replacement is not what the host agreed with: another
// protocol version, a refusal of the opening exchange, or, with
// Config.ExitOnDrift, other capabilities. It is permanent.
type DriftError struct{ What, Had, Has string }

func (e *DriftError) Error() string {
	return fmt.Sprintf("relay: the replacement differs from what the host agreed on: %s was %s, is %s", e.What, e.Had, e.Has)
}

// Permanent tells policy not to try again.
func (e *DriftError) Permanent() bool { return true }

// open runs the opening exchange of an incarnation: the host's own for the first,
// a replay of it for the others.
func (r *Relay) open(ctx context.Context, o *engine.Opening) (*engine.Session, error) {
	r.mu.Lock()
	rec := r.record
	r.mu.Unlock()
	if rec != nil {
		return r.replay(ctx, o, rec)
	}
	for {
		m, err := r.nextOpening(ctx)
		if err != nil {
			return nil, err
		}
		if m.method == "" { // a modern request opens by its meta alone
			s := r.agree(&record{session: modernSession(m.params, nil), params: m.params})
			r.settled(m)
			return s, nil
		}
		reply, err := o.Ask(ctx, engine.Request{Method: m.method, ID: m.id, Frame: m.frame, Params: m.params})
		if err != nil {
			r.unanswered(m, err)
			return nil, err
		}
		if rec := accept(m, reply); rec != nil {
			o.Speaks(rec.session.Era)
			r.agree(rec)
			r.settled(m)
			r.answer(m, reply.Frame)
			return rec.session, nil
		}
		r.settled(m)
		r.answer(m, reply.Frame) // the host knows what to do about a refusal
	}
}

// nextOpening waits for the host.
func (r *Relay) nextOpening(ctx context.Context) (*message, error) {
	for {
		r.mu.Lock()
		m := r.opening
		r.mu.Unlock()
		if m != nil {
			return m, nil
		}
		select {
		case <-r.opened:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// settled notes that an opening exchange was answered.
func (r *Relay) settled(m *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opening == m {
		r.opening = nil
	}
}

// unanswered deals with an opening exchange whose server died. An initialize waits
// for the next server; a probe of the host's is the host's to repeat.
func (r *Relay) unanswered(m *message, err error) {
	if f, ok := err.(*engine.Failure); ok && m.method == methodDiscover {
		r.settled(m)
		r.answer(m, r.failure(m, f))
	}
}

// giveUpOpening answers an opening exchange that no server will answer any more.
func (r *Relay) giveUpOpening() {
	r.mu.Lock()
	m := r.opening
	r.opening = nil
	r.mu.Unlock()
	if f, ok := r.engine.Err().(*engine.Failure); ok && m != nil && m.method != "" {
		r.answer(m, r.failure(m, f))
	}
}

func (r *Relay) agree(rec *record) *engine.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = rec
	r.served.Store(true)
	return rec.session
}

// accept reads the answer to the host's opening exchange; nil if it agreed on
// nothing.
func accept(m *message, reply engine.Reply) *record {
	if reply.Err != nil {
		return nil
	}
	if m.method == methodInitialize {
		s := legacySession(reply.Result)
		return &record{session: s, params: m.params, declared: s.Capabilities}
	}
	s := modernSession(m.params, reply.Result)
	if s == nil {
		return nil
	}
	return &record{session: s, params: m.params, asked: true, declared: s.Capabilities}
}

// renew replaces the record by a later initialize of the host's.
func (r *Relay) renew(m *message, reply engine.Reply) {
	if rec := accept(m, reply); rec != nil {
		r.agree(rec)
	}
}

func legacySession(result json.RawMessage) *engine.Session {
	var v struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         json.RawMessage `json:"serverInfo"`
	}
	_ = json.Unmarshal(result, &v) // the host has the answer as it came and judges it
	return &engine.Session{Era: engine.Legacy, Version: v.Version, Capabilities: v.Capabilities, Info: v.Info}
}

// modernSession reads what a modern host said it speaks, and what the server said
// of itself, if it was asked. nil if the result is no DiscoverResult.
func modernSession(params, result json.RawMessage) *engine.Session {
	meta := modernMeta(params)
	if meta == nil {
		return nil
	}
	s := &engine.Session{Era: engine.Modern, Version: meta.Version}
	if result == nil {
		return s
	}
	var v struct {
		Supported    []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Meta         struct {
			Info json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if json.Unmarshal(result, &v) != nil || len(v.Supported) == 0 {
		return nil
	}
	s.Capabilities, s.Info = v.Capabilities, v.Meta.Info
	return s
}

// requestMeta is what every modern request says (2026-07-28, basic/index, _meta).
type requestMeta struct {
	Version      string          `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
}

// modernMeta reads the _meta of a modern request; nil for any other.
func modernMeta(params json.RawMessage) *requestMeta {
	if !bytes.Contains(params, []byte("io.modelcontextprotocol/protocolVersion")) {
		return nil
	}
	var p struct {
		Meta requestMeta `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || p.Meta.Version == "" {
		return nil
	}
	return &p.Meta
}

// replay tells a replacement what the host and the first server agreed on, and
// checks that it still holds. Its answers are nobody's but ours.
func (r *Relay) replay(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	o.Speaks(rec.session.Era)
	var s *engine.Session
	var err error
	if rec.session.Era == engine.Legacy {
		s, err = r.replayInitialize(ctx, o, rec)
	} else {
		s, err = r.replayDiscover(ctx, o, rec)
	}
	if err != nil {
		return nil, err
	}
	if rec.declared != nil && !bytes.Equal(compact(s.Capabilities), compact(rec.declared)) {
		r.cfg.Logger.Warn("the replacement declares other capabilities than the host was told of",
			"server", r.label, "had", string(rec.declared), "has", string(s.Capabilities))
		if r.cfg.ExitOnDrift {
			return nil, &DriftError{"capabilities", string(rec.declared), string(s.Capabilities)}
		}
	}
	return s, nil
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func (r *Relay) replayInitialize(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	params := map[string]json.RawMessage{}
	if err := json.Unmarshal(rec.params, &params); err != nil {
		return nil, err
	}
	version, err := json.Marshal(rec.session.Version)
	if err != nil {
		return nil, err
	}
	params["protocolVersion"] = version
	raw, err := json.Append(nil, params, json.SortMapKeys|json.TrustRawMessage)
	if err != nil {
		return nil, err
	}
	reply, err := o.Ask(ctx, engine.Request{Method: methodInitialize, Params: raw})
	if err != nil {
		return nil, err
	}
	if reply.Err != nil {
		return nil, &DriftError{"its answer to initialize", "a result", "an error: " + reply.Err.Error()}
	}
	s := legacySession(reply.Result)
	if s.Version != rec.session.Version {
		return nil, &DriftError{"the protocol version", rec.session.Version, s.Version}
	}
	r.mu.Lock()
	initialized := r.initialized
	r.mu.Unlock()
	if initialized {
		o.Withdraw(idInitialized)
		err = o.Notify(methodInitialized, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	}
	return s, err
}

// replayDiscover asks a modern replacement whether it still speaks the host's
// version. A host that never asked may have a server that can't answer.
func (r *Relay) replayDiscover(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	var p struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(rec.params, &p); err != nil {
		return nil, err
	}
	reply, err := o.Ask(ctx, engine.Request{
		Method: methodDiscover, Params: append(append([]byte(`{"_meta":`), p.Meta...), '}'),
	})
	switch {
	case err != nil:
		return nil, err
	case reply.Err != nil && rec.asked:
		return nil, &DriftError{"its answer to server/discover", "a result", "an error: " + reply.Err.Error()}
	case reply.Err != nil:
		return rec.session, nil
	}
	var v struct {
		Supported []string `json:"supportedVersions"`
	}
	_ = json.Unmarshal(reply.Result, &v) // no list supports nothing
	if !slices.Contains(v.Supported, rec.session.Version) {
		return nil, &DriftError{"the protocol version", rec.session.Version, fmt.Sprint(v.Supported)}
	}
	return modernSession(rec.params, reply.Result), nil
}
