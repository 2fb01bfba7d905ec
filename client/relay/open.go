package relay

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
	"github.com/respawn-mcp/respawn/policy"
)

// record is the opening exchange that the host and a server agreed on.
type record struct {
	session  *engine.Session
	name     string // the server's own, "" if it gave none
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
	r.current = o
	r.mu.Unlock()
	if rec != nil {
		r.passOn()
		return r.replay(ctx, o, rec)
	}
	for {
		if ctx.Err() != nil { // the news may have been another's
			r.wake()
			return nil, context.Cause(ctx)
		}
		m, rec := r.unasked(o)
		switch {
		case m != nil:
			r.offer(o, m)
			continue
		case rec != nil: // from here on the host's openings are ordinary requests
			return rec.session, nil
		}
		select {
		case <-r.opened:
		case <-ctx.Done():
		}
	}
}

// unasked is an opening exchange of the host that a server is to be given, and what was
// agreed on meanwhile. What an earlier one was given waits until it is known how that
// ended: the loss of what was being sent when its server died is told after the next one
// has started.
func (r *Relay) unasked(o *engine.Opening) (*message, *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.openings {
		if !m.out && m.to != o {
			m.to, m.out = o, true
			m.tries++
			return m, r.record
		}
	}
	return nil, r.record
}

// wake makes open look again.
func (r *Relay) wake() {
	select {
	case r.opened <- struct{}{}:
	default:
	}
}

// offer gives a server an opening exchange of the host's. The answer is passed on
// where it arrives, so that it stays ahead of what the server says next. Several
// may be under way: a host that gets no answer to its probe falls back.
func (r *Relay) offer(o *engine.Opening, m *message) {
	if m.method == "" { // a modern request opens by its meta alone
		r.settled(m)
		r.agree(o, m, &record{session: modernSession(m.params, nil), params: m.params})
		return
	}
	o.Post(engine.Request{
		Method: m.method, ID: m.id, Frame: m.frame, Params: m.params, Version: versionOf(m.params),
		Over: func(reply engine.Reply, f *engine.Failure) {
			if f != nil {
				r.unanswered(m, f)
				return
			}
			r.settled(m)
			if rec := accept(m, reply); rec != nil {
				r.agree(o, m, rec)
			}
			r.answer(m, reply.Frame) // the host knows what to do about a refusal
		},
	})
}

// settled notes that an opening exchange is over.
func (r *Relay) settled(m *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.openings = slices.DeleteFunc(r.openings, func(x *message) bool { return x == m })
}

// unanswered deals with an opening exchange that got no answer. Where the server is
// gone, an initialize waits for the next one, unless another was agreed on meanwhile;
// a probe of the host's is the host's to repeat. One that can't be reached is tried
// again, for as long as any request is held. Every other failure leaves the server
// where it is, so that nobody would come to wait for: the host hears of it.
func (r *Relay) unanswered(m *message, f *engine.Failure) {
	gone := f.Kind == engine.KindDied || f.Kind == engine.KindExhausted || f.Kind == engine.KindClosed
	r.mu.Lock()
	f.Attempts = m.tries
	if m.lost != nil && m.lost.Outcome == engine.OutcomeUnknown { // of any attempt
		f.Outcome = engine.OutcomeUnknown
	}
	m.lost = f
	again := gone && m.method == methodInitialize && r.record == nil
	if again {
		m.out = false
		r.wake() // the next one may be there already
	}
	r.mu.Unlock()
	switch {
	case again, f.Kind == engine.KindUnreachable && r.tryAgain(m, f):
		return
	case !gone:
		r.cfg.Logger.Warn("the host's opening exchange got no answer", "peer", r.label, "method", m.method, "err", f)
	}
	r.settled(m)
	r.answer(m, r.failure(m, f))
}

// passOn makes ordinary requests of the opening exchanges that nobody has, once another
// was agreed on.
func (r *Relay) passOn() {
	r.mu.Lock()
	var ms []*message
	r.openings = slices.DeleteFunc(r.openings, func(m *message) bool {
		if m.out || r.record == nil {
			return false
		}
		ms = append(ms, m)
		return true
	})
	r.mu.Unlock()
	for _, m := range ms {
		switch {
		case m.method == "": // it was its meta alone that could open
		case m.lost != nil && m.lost.Outcome == engine.OutcomeUnknown:
			r.answer(m, r.failure(m, m.lost))
		default:
			r.post(m)
		}
	}
}

// tryAgain has an opening exchange that reached nobody offered again after a while,
// and reports whether that is within the time that a request is held.
func (r *Relay) tryAgain(m *message, f *engine.Failure) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Clock.Now()
	if m.since.IsZero() {
		m.since = now
		r.cfg.Logger.Warn("the server can't be reached and is tried again", "peer", r.label, "method", m.method, "err", f)
	}
	m.missed++
	wait := policy.PatientDelay().Delay(m.missed+1, 0) // the first at once would be no other try
	left := m.since.Add(r.hold()).Sub(now)
	if r.hold() > 0 && left <= 0 {
		return false
	}
	if r.hold() > 0 {
		wait = min(wait, left)
	}
	r.cfg.Clock.AfterFunc(wait, func() {
		if r.enter() {
			defer r.taking.Done()
		}
		r.mu.Lock()
		m.to, m.out = nil, false
		r.mu.Unlock()
		r.passOn()
		r.wake()
	})
	return true
}

// giveUpOpenings answers the opening exchanges that no server will answer any more.
func (r *Relay) giveUpOpenings() {
	r.mu.Lock()
	openings := r.openings
	r.openings = nil
	r.mu.Unlock()
	f, ok := r.engine.Err().(*engine.Failure)
	for _, m := range openings {
		if !ok || m.method == "" {
			continue
		}
		end := *f
		r.mu.Lock() // its sender may only now be told how it ended
		end.Attempts, end.Outcome = m.tries, engine.NotExecuted
		if m.lost != nil {
			end.Gen, end.Outcome = m.lost.Gen, m.lost.Outcome
		}
		r.mu.Unlock()
		r.answer(m, r.failure(m, &end))
	}
}

// agree notes what the host and a server agreed on. A later initialize of the
// host's takes the place of what was agreed before; a probe does not, unless
// nothing had been asked.
func (r *Relay) agree(o *engine.Opening, m *message, rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.record == nil:
	case m.method == methodInitialize:
		r.initialized = false
	case !rec.asked || r.record.asked || r.record.session.Era != rec.session.Era:
		return
	}
	var info struct{ Name string }
	_ = json.Unmarshal(rec.session.Info, &info) // no name is none
	rec.name = info.Name
	r.record = rec
	if m.method != "" { // it was answered
		r.heard()
	}
	o.Renew(rec.session)
	r.wake()
}

// heard notes that a server has said something that the host waits for.
func (r *Relay) heard() {
	if !r.served.Load() {
		r.served.Store(true)
	}
}

// renew notes what came of a later initialize of the host's.
func (r *Relay) renew(m *message, reply engine.Reply) {
	r.mu.Lock()
	o := r.current
	r.mu.Unlock()
	if rec := accept(m, reply); rec != nil && o.Gen() == reply.Gen {
		r.agree(o, m, rec)
	}
}

// accept reads the answer to an opening exchange of the host's; nil if it agreed on
// nothing. A modern host that reads in the answer that its version is none of the
// server's opens again with another.
func accept(m *message, reply engine.Reply) *record {
	if reply.Err != nil {
		return nil
	}
	if m.method == methodInitialize {
		s := legacySession(reply.Result)
		return &record{session: s, params: m.params, declared: s.Capabilities}
	}
	s := modernSession(m.params, reply.Result)
	if s == nil || !supports(reply.Result, s.Version) {
		return nil
	}
	return &record{session: s, params: m.params, asked: true, declared: s.Capabilities}
}

// supports reports whether a DiscoverResult lists a version.
func supports(result json.RawMessage, version string) bool {
	var v struct {
		Supported []string `json:"supportedVersions"`
	}
	return json.Unmarshal(result, &v) == nil && slices.Contains(v.Supported, version)
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

// versionOf is the version that a modern request names, "" for any other.
func versionOf(params json.RawMessage) string {
	if meta := modernMeta(params); meta != nil {
		return meta.Version
	}
	return ""
}
