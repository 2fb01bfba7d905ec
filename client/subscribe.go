package client

import (
	"context"
	"slices"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// Filter says which changes a subscription hears of.
type Filter struct {
	Tools     bool     // notifications/tools/list_changed
	Prompts   bool     // notifications/prompts/list_changed
	Resources bool     // notifications/resources/list_changed
	URIs      []string // notifications/resources/updated of these
}

// Subscription is a stream of notifications that outlives the server. Its methods
// are safe for concurrent use.
type Subscription struct{ stream *engine.Stream }

// Listen subscribes. On a modern server it is a subscriptions/listen stream
// (2026-07-28, patterns/subscriptions); on a legacy one, resources/subscribe for
// each URI and the untagged notifications of the kinds asked for. It returns once
// the request is handed over, or, while nobody serves and Config.WaitForReady is
// on, once it waits for a server. ctx governs only that.
//
// told is called in order, on a goroutine of the subscription's own, and may be nil;
// while it runs at most 1,024 notifications wait, and one more ends the
// subscription with [ErrShed].
//
// When the server dies the subscription stays, and the next server is asked for
// the same; what changed in between was not heard, which Config.OnReconnect and
// Config.OnListChanged tell.
func (c *Client) Listen(ctx context.Context, f Filter, told func(Notification)) (*Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, &LostError{Method: "subscriptions/listen", Outcome: NotExecuted, Cause: context.Cause(ctx)}
	}
	if told == nil {
		told = func(Notification) {}
	}
	f.URIs = slices.Clone(f.URIs)
	s, fail := c.engine.Listen(engine.Filter(f), c.engine.WaitForReady, func(m engine.Incoming, gen uint64) {
		told(Notification{Method: m.Method, Params: json.RawMessage(m.Params), Generation: gen})
	})
	if fail != nil {
		return nil, lost(fail)
	}
	return &Subscription{s}, nil
}

// ID names the subscription. It never changes, whatever happens to the server.
func (s *Subscription) ID() string { return s.stream.ID }

// Acknowledged waits until a server has agreed to the subscription once, and
// returns what the last one agreed to, which may be less than was asked for. If
// the subscription ended before, it returns why, or [ErrNotAcknowledged] where
// nobody is to blame; if ctx ends, its error.
func (s *Subscription) Acknowledged(ctx context.Context) (Filter, error) {
	if err := wait(ctx, s.stream.Opened()); err != nil {
		return Filter{}, err
	}
	f, ok := s.stream.Acknowledged()
	if ok {
		f.URIs = slices.Clone(f.URIs)
		return Filter(f), nil
	}
	if err := s.err(); err != nil {
		return Filter{}, err
	}
	return Filter{}, ErrNotAcknowledged
}

// Wait waits for the end and returns why: nil if the server or [Subscription.Close]
// ended it, a [*PeerError] if the server refused it, [ErrShed], [ErrClosed] or an
// [*ExhaustedError] of the client, or ctx's error while it goes on.
func (s *Subscription) Wait(ctx context.Context) error {
	if err := wait(ctx, s.stream.Done()); err != nil {
		return err
	}
	return s.err()
}

// wait waits for done; that counts even if ctx has ended, too.
func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Subscription) err() error { return public(s.stream.Err()) }

// Close ends the subscription and tells the server. It returns at once; Wait tells
// when the last callback is over.
func (s *Subscription) Close() { s.stream.Close() }
