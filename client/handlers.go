package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// The requests that a server makes of a client.
const (
	methodSample = "sampling/createMessage"
	methodElicit = "elicitation/create"
	methodRoots  = "roots/list"
)

// JSON-RPC 2.0, section 5.1.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// errNoHandler says that nobody here answers a method.
var errNoHandler = errors.New("method not found")

// ask answers one request of the server with the handler for it.
func (cfg *Config) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	switch {
	case method == methodSample && cfg.CreateMessage != nil:
		return handle(ctx, params, cfg.CreateMessage)
	case method == methodRoots && cfg.ListRoots != nil:
		return handle(ctx, params, cfg.ListRoots)
	case method == methodElicit && cfg.Elicit != nil:
		return handle(ctx, params, func(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			r, err := cfg.Elicit(ctx, p)
			if err == nil && r != nil {
				r = withDefaults(r, p.RequestedSchema)
			}
			return r, err
		})
	}
	return nil, fmt.Errorf("%w: %s", errNoHandler, method)
}

// answers reports whether there is a handler for a method.
func (cfg *Config) answers(method string) bool {
	return method == methodSample && cfg.CreateMessage != nil ||
		method == methodRoots && cfg.ListRoots != nil ||
		method == methodElicit && cfg.Elicit != nil
}

// errParams says that the server's params are not what its method takes.
var errParams = errors.New("invalid params")

func handle[P, R any](ctx context.Context, raw json.RawMessage, h func(context.Context, *P) (*R, error)) (_ json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil { // one request's fault is no reason to end the program
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	params := new(P)
	if len(raw) > 0 {
		if err := engine.Decode(raw, params); err != nil {
			return nil, fmt.Errorf("%w: %v", errParams, err)
		}
	}
	result, err := h(ctx, params)
	if err != nil {
		return nil, err
	}
	if result == nil {
		return nil, errors.New("the handler returned nothing")
	}
	return encode(result)
}

// withDefaults fills an accepted form with the defaults of the schema's properties
// (2025-11-25, client/elicitation, Requested Schema).
func withDefaults(r *mcp.ElicitResult, schema any) *mcp.ElicitResult {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	if r.Action != "accept" || len(properties) == 0 {
		return r
	}
	filled := *r
	filled.Content = maps.Clone(r.Content)
	for name, property := range properties {
		p, _ := property.(map[string]any)
		def, ok := p["default"]
		if _, set := filled.Content[name]; !ok || set {
			continue
		}
		if filled.Content == nil {
			filled.Content = map[string]any{}
		}
		filled.Content[name] = def
	}
	return &filled
}

// asks are the requests of legacy servers that handlers work on.
type asks struct {
	mu   sync.Mutex
	open map[askKey]context.CancelFunc
}

// maxAsks is how many requests of a server handlers may work on: a server that asks
// without end must not cost a goroutine each time.
const maxAsks = 1024

type askKey struct {
	gen uint64
	id  string
}

// take runs the handler of a request on a goroutine of its own, which the end of
// the incarnation, and the server's cancel, interrupt. A second request under an
// id that is still open is dropped.
func (a *asks) take(ctx context.Context, cfg *Config, gen uint64, m engine.Incoming, reply func(engine.Answer)) {
	if !cfg.answers(m.Method) {
		reply(engine.Answer{Err: &engine.RPCError{Code: codeMethodNotFound, Message: "method not found: " + m.Method}})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	key := askKey{gen, string(m.ID)}
	a.mu.Lock()
	if a.open == nil {
		a.open = map[askKey]context.CancelFunc{}
	}
	if a.open[key] != nil { // any answer would end the first (JSON-RPC 2.0, section 4: ids correlate)
		a.mu.Unlock()
		cancel()
		return
	}
	if len(a.open) >= maxAsks {
		a.mu.Unlock()
		cancel()
		reply(engine.Answer{Err: &engine.RPCError{Code: codeInternal, Message: "too many requests are being worked on"}})
		return
	}
	a.open[key] = cancel
	a.mu.Unlock()
	go func() {
		result, err := cfg.ask(ctx, m.Method, m.Params)
		cancelled := ctx.Err() != nil
		a.mu.Lock()
		delete(a.open, key)
		a.mu.Unlock()
		cancel()
		switch {
		case cancelled: // nobody waits (2025-11-25, cancellation: no response)
		case errors.Is(err, errParams):
			reply(engine.Answer{Err: &engine.RPCError{Code: codeInvalidParams, Message: err.Error()}})
		case err != nil:
			reply(engine.Answer{Err: &engine.RPCError{Code: codeInternal, Message: err.Error()}})
		default:
			reply(engine.Answer{Result: result})
		}
	}()
}

// cancel interrupts the request that a notifications/cancelled names.
func (a *asks) cancel(gen uint64, params json.RawMessage) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if engine.Decode(params, &p) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.open[askKey{gen, string(p.ID)}]; cancel != nil {
		cancel()
	}
}
