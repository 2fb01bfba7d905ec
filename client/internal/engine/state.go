package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/encoding/json"
)

// state is what a legacy peer was told and forgets when it dies: the log level
// and the resource subscriptions. It is learned from the frames, whoever sent
// them, once the peer has accepted them.
type state struct {
	level atomic.Pointer[json.RawMessage] // the level's JSON text; nil: never set

	mu   sync.Mutex
	subs []subscribed // in their order
}

// subscribed is one legacy resource subscription.
type subscribed struct {
	uri  string
	own  bool // made for a stream, and ended with the last stream that wants it
	live bool // the current incarnation has accepted it
}

const (
	methodSetLevel    = "logging/setLevel"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
)

// replayTimeout bounds the replay of a legacy peer's state, all of it together: a
// server that does not answer must not keep everybody else waiting.
const replayTimeout = 5 * time.Second

// evKept: a retired incarnation has accepted what its successor must know, too.
type evKept struct{ c *call }

// kept reports whether a legacy peer remembers what a request says.
func kept(method string) bool {
	return method == methodSetLevel || method == methodSubscribe || method == methodUnsubscribe
}

// learn notes what an accepted request told the peer.
func (s *state) learn(c *call) {
	if !kept(c.Method) {
		return
	}
	var p struct {
		Level json.RawMessage `json:"level"`
		URI   string          `json:"uri"`
	}
	if Decode(c.Params, &p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.subs, func(x subscribed) bool { return x.uri == p.URI })
	switch {
	case c.Method == methodSetLevel && len(p.Level) > 0:
		s.level.Store(&p.Level)
	case c.Method == methodSetLevel, p.URI == "": // it told the peer nothing
	case c.Method == methodSubscribe && i < 0 && c.opened != nil: // given up while it was replayed
	case c.Method == methodSubscribe && i < 0:
		s.subs = append(s.subs, subscribed{uri: p.URI, own: c.stream != nil, live: !c.inc.leaving.Load()})
	case c.Method == methodSubscribe:
		s.subs[i].live = s.subs[i].live || !c.inc.leaving.Load()
		s.subs[i].own = s.subs[i].own && (c.stream != nil || c.opened != nil)
	case i >= 0:
		s.subs = slices.Delete(s.subs, i, i+1)
	}
}

// SetLogLevel sets the level that later modern requests carry.
func (e *Engine) SetLogLevel(level string) {
	raw := json.RawMessage(appendString(nil, level))
	e.state.level.Store(&raw)
}

// Subscribed lists the resources that the peer is subscribed to in the legacy era.
func (e *Engine) Subscribed() (uris []string) {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	for _, x := range e.state.subs {
		uris = append(uris, x.uri)
	}
	return uris
}

// subscriptions are the resources that are subscribed to.
func (s *state) subscriptions() (uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		uris = append(uris, sub.uri)
	}
	return uris
}

// isLive reports whether the current incarnation has accepted a subscription.
func (s *state) isLive(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subs, func(x subscribed) bool { return x.uri == uri && x.live })
}

// forget gives up a subscription if it was made for streams alone, and reports
// whether the current incarnation holds it.
func (s *state) forget(uri string) (live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.subs, func(x subscribed) bool { return x.uri == uri && x.own })
	if i < 0 {
		return false
	}
	live = s.subs[i].live
	s.subs = slices.Delete(s.subs, i, i+1)
	return live
}

// renew forgets what the last incarnation had accepted, and lists it and whatever
// else there is to tell the next one.
func (s *state) renew() []subscribed {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := slices.Clone(s.subs)
	for i := range s.subs {
		s.subs[i].live = false
	}
	return before
}

// replay tells a new legacy incarnation what the old one knew: the log level
// first, then the subscriptions, awaited together. A refusal is logged and
// reported, and concerns nothing else.
func (inc *incarnation) replay(ctx context.Context, era Era) {
	subs := inc.e.state.renew()
	if era != Legacy {
		for _, sub := range subs { // streams are opened anew, and the level goes with each request
			if sub.live && !sub.own {
				inc.notTaken(methodSubscribe, object("uri", appendString(nil, sub.uri)), errNotLegacy)
			}
		}
		return
	}
	var calls []*call
	if level := inc.e.state.level.Load(); level != nil {
		calls = append(calls, inc.ask(methodSetLevel, object("level", *level)))
	}
	for _, sub := range subs {
		calls = append(calls, inc.ask(methodSubscribe, object("uri", appendString(nil, sub.uri))))
	}
	late, stop := inc.e.alarm(replayTimeout)
	defer stop()
	for _, c := range calls {
		select {
		case <-c.done:
		case <-late:
			inc.e.drop(c, &Failure{Kind: KindTimeout, After: replayTimeout}, "")
			<-c.done
		case <-ctx.Done():
			inc.e.drop(c, &Failure{Kind: KindCaller, Cause: context.Cause(ctx)}, "")
			<-c.done
		}
		if err := c.err(); err != nil {
			inc.notTaken(c.Method, c.Params, err)
		}
	}
}

// notTaken notes a request whose effect on the peer is lost.
func (inc *incarnation) notTaken(method string, params json.RawMessage, err error) {
	inc.notRestored = append(inc.notRestored, &StateError{Method: method, Params: params, Err: err})
	inc.e.log(slog.LevelWarn, "the server did not take back its state",
		"gen", inc.gen, "request", method, "params", string(params), "err", err)
}

// err is how a call that is over failed: without an answer, or by an error of
// the peer.
func (c *call) err() error {
	switch {
	case c.fail != nil:
		return c.fail
	case c.reply.Err != nil:
		return c.reply.Err
	}
	return nil
}

// object is a JSON object of one field.
func object(key string, value []byte) json.RawMessage {
	return append(append([]byte{'{'}, appendField(nil, key, value)...), '}')
}
