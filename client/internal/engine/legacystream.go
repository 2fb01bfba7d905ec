package engine

import (
	"slices"

	"github.com/segmentio/encoding/json"
)

// The legacy era has no listen streams: a stream is a resources/subscribe for
// each resource it wants (2025-11-25, server/resources, Subscriptions), and
// whatever list_changed the server sends untagged anyway.

// subscribe asks the serving incarnation for what a stream wants and the replay
// has not restored. The stream is acknowledged when all is answered.
func (e *Engine) subscribe(s *Stream) {
	var missing []string
	for _, uri := range s.filter.URIs {
		if !e.state.isLive(uri) {
			missing = append(missing, uri)
		}
	}
	s.refusal, s.asked = nil, len(missing)
	if s.asked == 0 {
		e.grant(s)
		return
	}
	gen := s.snap.Gen
	for _, uri := range missing {
		c := &call{
			Request: Request{Method: methodSubscribe, Params: object("uri", appendString(nil, uri)), Idle: e.RequestTimeout},
			stream:  s, streamGen: gen, done: make(chan struct{}),
		}
		c.then = evStreamOver{s, c}
		e.giveTo(e.cur, c)
	}
}

// subscribed takes the end of one of those requests.
func (e *Engine) subscribed(s *Stream, c *call) {
	if c.Method != methodSubscribe || c.streamGen != s.snap.Gen || s.asked == 0 {
		return // of an earlier opening
	}
	if err := c.err(); err != nil {
		s.refusal = err
	}
	if s.asked--; s.asked == 0 {
		e.grant(s)
	}
}

// grant acknowledges a legacy stream: the changes that the server says it
// announces, and the resources it has accepted. A stream that wanted only
// resources and got none was refused.
func (e *Engine) grant(s *Stream) {
	type changes struct {
		ListChanged bool `json:"listChanged"`
	}
	var can struct{ Tools, Prompts, Resources changes }
	_, _ = json.Parse(e.session.Load().Capabilities, &can, 0) // nothing readable announces nothing
	got := Filter{
		Tools:     s.filter.Tools && can.Tools.ListChanged,
		Prompts:   s.filter.Prompts && can.Prompts.ListChanged,
		Resources: s.filter.Resources && can.Resources.ListChanged,
		URIs:      slices.DeleteFunc(slices.Clone(s.filter.URIs), func(uri string) bool { return !e.state.isLive(uri) }),
	}
	wantsMore := s.filter.Tools || s.filter.Prompts || s.filter.Resources
	if len(got.URIs) == 0 && !wantsMore && s.refusal != nil {
		e.closeStream(s, s.refusal)
		return
	}
	s.mu.Lock()
	s.acknowledge(got)
	s.mu.Unlock()
}

// unsubscribe ends the subscriptions that only this stream wanted.
func (e *Engine) unsubscribe(s *Stream) {
	if session := e.session.Load(); session == nil || session.Era != Legacy || !e.calls.open() {
		return
	}
	for _, uri := range s.filter.URIs {
		wanted := slices.ContainsFunc(e.streams, func(x *Stream) bool { return slices.Contains(x.filter.URIs, uri) })
		if !wanted && e.state.isOwn(uri) && e.state.isLive(uri) {
			e.giveTo(e.cur, &call{
				Request: Request{Method: methodUnsubscribe, Params: object("uri", appendString(nil, uri)), Idle: e.RequestTimeout},
				done:    make(chan struct{}),
			})
		}
	}
}
