package engine

import (
	"slices"

	"github.com/respawn-mcp/respawn/fsm"
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
	s.refusal, s.failed, s.asked = nil, nil, len(missing)
	if s.asked == 0 {
		e.grant(s)
		return
	}
	gen := s.snap.Gen
	for _, uri := range missing {
		e.subscribeTo(s, uri, gen)
	}
}

// subscribeTo asks for one resource, for an opening of a stream or, as 0, for none.
func (e *Engine) subscribeTo(s *Stream, uri string, gen uint64) {
	c := &call{
		Request: Request{Method: methodSubscribe, Params: object("uri", appendString(nil, uri)), Idle: e.RequestTimeout},
		stream:  s, streamGen: gen, done: make(chan struct{}),
	}
	c.then = evStreamOver{s, c}
	e.giveTo(e.cur, c)
}

// subscribed takes the end of one of those requests. An answer of the peer is
// final; a request without one is made again with the stream's next opening.
func (e *Engine) subscribed(s *Stream, c *call) {
	switch {
	case c.Method != methodSubscribe:
		return
	case s.snap.State.Terminal(): // it was closed meanwhile
		e.unsubscribe(s)
		return
	case c.streamGen != s.snap.Gen || s.asked == 0: // of an earlier opening
		return
	}
	if c.fail != nil {
		s.failed = c.fail
	} else if c.reply.Err != nil && busy(c.reply.Status) {
		s.failed = tooBusy(c)
	} else if c.reply.Err != nil {
		s.refusal = c.reply.Err
	}
	if s.asked--; s.asked > 0 {
		return
	}
	if s.failed != nil {
		e.retryStream(s, s.failed)
		return
	}
	e.grant(s)
}

// announces are the listings whose changes the server says it announces.
func (e *Engine) announces() Filter {
	type changes struct {
		ListChanged bool `json:"listChanged"`
	}
	var can struct {
		Tools     changes `json:"tools"`
		Prompts   changes `json:"prompts"`
		Resources changes `json:"resources"`
	}
	_ = Decode(e.session.Load().Capabilities, &can) // nothing readable announces nothing
	return Filter{Tools: can.Tools.ListChanged, Prompts: can.Prompts.ListChanged, Resources: can.Resources.ListChanged}
}

// grant acknowledges a legacy stream: the changes that the server says it
// announces, and the resources it has accepted. A stream that wanted only
// resources and got none was refused.
func (e *Engine) grant(s *Stream) {
	can := e.announces()
	got := Filter{
		Tools:     s.filter.Tools && can.Tools,
		Prompts:   s.filter.Prompts && can.Prompts,
		Resources: s.filter.Resources && can.Resources,
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

// unsubscribe ends the subscriptions that only this stream wanted, and sees to it
// that no later incarnation is asked for them.
func (e *Engine) unsubscribe(s *Stream) {
	session := e.session.Load()
	tell := session != nil && session.Era == Legacy && e.calls.open()
	for _, uri := range s.filter.URIs {
		if slices.ContainsFunc(e.streams, func(x *Stream) bool { return slices.Contains(x.filter.URIs, uri) }) {
			continue
		}
		if live := e.state.forget(uri); live && tell {
			e.giveTo(e.cur, &call{
				Request: Request{Method: methodUnsubscribe, Params: object("uri", appendString(nil, uri)), Idle: e.RequestTimeout},
				then:    evUnsubscribed{uri}, done: make(chan struct{}),
			})
		}
	}
}

// evUnsubscribed: a request that ended a subscription is over.
type evUnsubscribed struct{ uri string }

// unsubscribed asks again for a resource that a stream wants which came while the
// subscription before it was being ended: the peer may have taken the two in any order.
func (e *Engine) unsubscribed(uri string) {
	i := slices.IndexFunc(e.streams, func(s *Stream) bool { return slices.Contains(s.filter.URIs, uri) })
	if i < 0 || e.machine.State() != fsm.Serving || e.session.Load().Era != Legacy || !e.calls.open() {
		return
	}
	e.subscribeTo(e.streams[i], uri, 0)
}
