package engine

import (
	"slices"

	"github.com/segmentio/encoding/json"
)

// route gives a notification to the streams it is for, and reports whether one
// took it. A modern one names its stream; in the legacy era every stream that
// asks for its kind gets it, and so does the general handler.
func (inc *incarnation) route(m Incoming) bool {
	e := inc.e
	var p struct {
		Meta struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
	}
	_, err := json.Parse(m.Params, &p, json.ZeroCopy|json.DontMatchCaseInsensitiveStructFields)
	if slices.Contains(changes, m.Method) { // something did, whatever the params are
		e.stale(m.Method, p.URI)
	}
	if err != nil && len(m.Params) > 0 {
		return false
	}
	id := p.Meta.Subscription
	if m.Method == methodCancelled {
		id = p.RequestID
	}
	if len(id) > 0 {
		c := e.calls.find(inc, id)
		if c == nil || c.stream == nil || c.Method != methodListen { // a legacy peer cancels requests of its own
			return false
		}
		if c.id != c.stream.ID { // the handle's id is the one its owner knows
			m.Frame, m.Params = Splice(m.Frame, id, c.stream.ID), Splice(m.Params, id, c.stream.ID)
		}
		if m.Method == methodCancelled { // a graceful end (2026-07-28, patterns/cancellation)
			if c.stream.raw != nil {
				c.stream.told(m, inc.gen)
			}
			e.inbox.post(evStreamClose{s: c.stream, byPeer: true})
			return true
		}
		c.stream.take(m, inc.gen, c)
		return true
	}
	if Era(inc.speaks.Load()) == Legacy {
		for _, s := range *e.allStreams.Load() {
			if s.wants(m.Method, p.URI) {
				s.take(m, inc.gen, nil)
			}
		}
	}
	return false
}

// stale makes what was known stale: the peer said so, or may have said so unheard.
func (e *Engine) stale(method, uri string) {
	if method == methodToolsChanged {
		e.evidence.forget()
	}
	e.Face.Changed(method, uri)
}

// underHandle is the result of a listen request under the id of its handle, where
// it names the one that it had on the wire.
func underHandle(frame []byte, id string) []byte {
	var p struct {
		Result struct {
			Meta struct {
				Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
			} `json:"_meta"`
		} `json:"result"`
	}
	if _, err := json.Parse(frame, &p, json.ZeroCopy|json.DontMatchCaseInsensitiveStructFields); err != nil || len(p.Result.Meta.Subscription) == 0 {
		return frame
	}
	return Splice(frame, p.Result.Meta.Subscription, id)
}

// changes are the notifications that make something known stale.
var changes = []string{methodToolsChanged, methodPromptsChanged, methodResourceChanged, methodUpdated}

func (s *Stream) wants(method, uri string) bool {
	switch method {
	case methodToolsChanged:
		return s.filter.Tools
	case methodPromptsChanged:
		return s.filter.Prompts
	case methodResourceChanged:
		return s.filter.Resources
	case methodUpdated:
		return slices.Contains(s.filter.URIs, uri)
	}
	return false
}
