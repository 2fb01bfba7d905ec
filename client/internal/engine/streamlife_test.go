package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// Whoever is let in may be overtaken by the end, and its owner may close it then.
func TestS43_AStreamThatComesAfterTheEndIsOverOnce(t *testing.T) {
	e := New(Options{
		Factory: memory.Factory(transports.Pipe, "idle", func(ctx context.Context, _ *memory.Conn) error {
			<-ctx.Done()
			return nil
		}),
		Clock: clock.New(), Logger: slog.New(slog.DiscardHandler), Budget: policy.Never(),
	})
	e.Start()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	over := 0
	for _, raw := range []*RawStream{nil, {Over: func(_ Reply, f *Failure) {
		if over++; f == nil || f.Kind != KindClosed {
			t.Errorf("its owner hears of the failure %v", f)
		}
	}}} {
		s := &Stream{e: e, raw: raw, done: make(chan struct{}), first: make(chan struct{})}
		handed := make(chan struct{})
		e.handle(evListen{s, handed})
		<-handed
		e.handle(evStreamClose{s: s})
		e.handle(evStreamClose{s: s, byPeer: true})
		<-s.Opened()
		<-s.Done()
		if err := s.Err(); !errors.Is(err, ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	}
	if over != 1 {
		t.Errorf("the owner of frames was told %d times", over)
	}
}
