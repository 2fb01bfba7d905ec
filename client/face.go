package client

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// face is what the engine sees of a Client.
type face Client

// Take gives requests to their handlers and notifications to the callbacks.
func (f *face) Take(ctx context.Context, gen uint64, m engine.Incoming, reply func(engine.Answer)) {
	switch {
	case reply != nil:
		f.asks.take(ctx, &f.cfg, gen, m, reply)
	case m.Method == "notifications/cancelled":
		f.asks.cancel(gen, m.Params)
	case m.Method == "notifications/message" && f.cfg.OnLog != nil:
		var p mcp.LoggingMessageParams
		if engine.Decode(m.Params, &p) == nil {
			f.engine.Offer(func() { f.cfg.OnLog(&p) })
		}
	case f.cfg.OnNotification != nil:
		f.engine.Offer(func() {
			f.cfg.OnNotification(Notification{Method: m.Method, Params: m.Params, Generation: gen})
		})
	}
}

// Kind is a kind of listing.
type Kind string

// The kinds that a server announces changes of. Resources covers templates and
// what resources/read returned.
const (
	Tools     Kind = "tools"
	Prompts   Kind = "prompts"
	Resources Kind = "resources"
)

var kinds = []Kind{Tools, Prompts, Resources}

// Serves makes everything stale that an earlier incarnation said.
func (f *face) Serves(_ uint64, first bool) {
	if first {
		return
	}
	for _, k := range kinds {
		f.stale(k)
	}
}

// Changed makes stale what the server says has changed.
func (f *face) Changed(method, uri string) {
	switch method {
	case "notifications/tools/list_changed":
		f.stale(Tools)
	case "notifications/prompts/list_changed":
		f.stale(Prompts)
	case "notifications/resources/list_changed":
		f.stale(Resources)
	default:
		f.cache.drop(func(k cacheKey) bool { return k.method == "resources/read" && k.uri == uri })
	}
}

func (f *face) stale(k Kind) {
	f.cache.drop(func(key cacheKey) bool { return key.kind() == k })
	if f.cfg.OnListChanged == nil {
		return
	}
	untold := &f.untold[slices.Index(kinds, k)]
	if untold.Add(1) > maxUntold { // one of those that wait says the same
		untold.Add(-1)
		return
	}
	f.engine.Tell(func() {
		untold.Add(-1)
		f.cfg.OnListChanged(k)
	})
}

// maxUntold is how many callbacks may wait to tell that a kind is stale. More say
// nothing more, and a server may announce changes as fast as it can write.
const maxUntold = 64
