package relay

import (
	"context"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// replay tells a replacement what the host and the first server agreed on, and
// checks that it still holds. Its answers are nobody's but ours.
func (r *Relay) replay(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	o.Speaks(rec.session.Era, "") // the version is not agreed on yet
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
	if rec.declared != nil && !engine.SameJSON(s.Capabilities, rec.declared) {
		r.cfg.Logger.Warn("the replacement declares other capabilities than the host was told of",
			"peer", r.label, "had", string(rec.declared), "has", string(s.Capabilities))
		if r.cfg.ExitOnDrift {
			return nil, &DriftError{"capabilities", string(rec.declared), string(s.Capabilities)}
		}
	}
	return s, nil
}

func (r *Relay) replayInitialize(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	params, err := atVersion(untracked(rec.params), rec.session.Version)
	if err != nil {
		return nil, err
	}
	reply, err := o.Ask(ctx, engine.Request{Method: methodInitialize, Params: params})
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
		defer func() { go r.resume() }() // what waited for the one that was taken back
		o.Speaks(engine.Legacy, s.Version)
		if err := o.Notify(ctx, methodInitialized); err != nil {
			return nil, err
		}
		o.StartGet(ctx)
	}
	return s, nil
}

// untracked is params without their progress token, which named the host's request and
// no replay of it; every other byte stays as it came where there is none.
func untracked(params []byte) []byte {
	var p map[string]json.RawMessage
	var meta map[string]json.RawMessage
	if token(params) == "" || json.Unmarshal(params, &p) != nil || json.Unmarshal(p["_meta"], &meta) != nil {
		return params
	}
	delete(meta, "progressToken")
	var err error
	if p["_meta"], err = json.Marshal(meta); err != nil {
		return params
	}
	if raw, err := json.Marshal(p); err == nil {
		return raw
	}
	return params
}

// atVersion is the params of the host's initialize with the version that was agreed
// on in place of the one that it proposed, and every other byte as it came.
func atVersion(params []byte, version string) ([]byte, error) {
	var p struct {
		Version json.RawMessage `json:"protocolVersion"`
	}
	if _, err := json.Parse(params, &p, json.ZeroCopy|json.DontMatchCaseInsensitiveStructFields); err != nil {
		return nil, err
	}
	if p.Version == nil { // it proposed none, and a server took it
		return params, nil
	}
	text, err := json.Marshal(version)
	if err != nil {
		return nil, err
	}
	return engine.Splice(params, p.Version, string(text)), nil
}

// replayDiscover asks a modern replacement whether it still speaks the host's
// version. A host that never asked may have a server that can't answer.
func (r *Relay) replayDiscover(ctx context.Context, o *engine.Opening, rec *record) (*engine.Session, error) {
	var p struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(untracked(rec.params), &p); err != nil {
		return nil, err
	}
	reply, err := o.Ask(ctx, engine.Request{
		Method: methodDiscover, Version: rec.session.Version, Params: append(append([]byte(`{"_meta":`), p.Meta...), '}'),
	})
	if err == nil {
		r.heard()
	}
	switch {
	case err != nil:
		return nil, err
	case reply.Err != nil && rec.asked:
		return nil, &DriftError{"its answer to server/discover", "a result", "an error: " + reply.Err.Error()}
	case reply.Err != nil:
		return rec.session, nil
	}
	if !supports(reply.Result, rec.session.Version) {
		var v struct {
			Supported json.RawMessage `json:"supportedVersions"`
		}
		_ = json.Unmarshal(reply.Result, &v) // shown as it is, if it is there
		return nil, &DriftError{"the protocol version", rec.session.Version, string(v.Supported)}
	}
	return modernSession(rec.params, reply.Result), nil
}
