package client

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports"
)

// Client is a connection to one MCP server, over all the server's lives. Its
// methods are safe for concurrent use.
type Client struct {
	engine *engine.Engine
	cfg    Config
	cache  cache
	asks   asks
	untold [3]atomic.Int32 // of each kind, the callbacks that wait to tell that it is stale
}

// Connect starts the server and returns once it serves. A failure of this first
// start is returned as it is: nothing is tried again and nothing is left running.
// It may be an [*OpeningError], a [*VersionError], a [*TimeoutError], what the
// transport says, a [*ConfigError], or ctx's error. ctx governs only connecting: its
// end stops the server, which takes as long as the transport's stop may (on stdio 6.5 s
// at most, by default), and later ends nothing. cfg may be nil and is copied.
func Connect(ctx context.Context, f transports.Factory, cfg *Config) (*Client, error) {
	c := &Client{}
	if cfg != nil {
		c.cfg = *cfg
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("client: connect %s: %w", f.Label, context.Cause(ctx))
	}
	if f.New == nil {
		return nil, fmt.Errorf("client: connect %s: the factory has no New", f.Label)
	}
	o, err := c.cfg.options(f)
	if err != nil {
		return nil, fmt.Errorf("client: connect %s: %w", f.Label, err)
	}
	o.Face = (*face)(c)
	c.engine = engine.New(o)
	c.engine.Start()
	select {
	case <-c.engine.Up():
		return c, nil
	case <-c.engine.Done():
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
		_ = c.engine.Close(context.Background()) // bounded by the transport's stop
	}
	return nil, fmt.Errorf("client: connect %s: %w", f.Label, err)
}

// Call makes any request and decodes its result into result, a pointer or nil.
// Names of fields match by case, unlike in encoding/json: a field ID takes no "id".
// params is anything that encodes to a JSON object, or nil. It returns a
// [*PeerError] if the server answered with an error, a [*LostError] if there was
// no answer, a [*DecodeError] or an [*InvalidRequestError].
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	resp, err := c.Do(ctx, Request{Method: method, Params: params})
	if err != nil || result == nil {
		return err
	}
	return decode(method, resp.Result, result)
}

// Request is a request with its options, for [Client.Do].
type Request struct {
	Method string
	Params any         // encodes to a JSON object; nil means {}
	Header http.Header // added to the HTTP request; a process ignores it

	Wait              Wait          // whether to wait for a server; default: Config.WaitForReady
	RequestTimeout    time.Duration // 0: Config's; negative: none
	MaxRequestTimeout time.Duration // 0: Config's; negative: none

	// Progress asks for progress notifications. It is called in order, on the
	// goroutine that called Do, and not after Do returned. While it is slow, only
	// the newest 1,024 are kept.
	Progress func(Progress)
}

// Wait says whether a call made while nobody serves waits for somebody who does.
type Wait uint8

const (
	WaitDefault Wait = iota // as Config.WaitForReady says
	WaitReady               // wait, within the call's deadlines
	WaitNever               // fail with *NotServingError
)

// Progress is one progress notification (2026-07-28, patterns/progress).
type Progress struct {
	Progress float64
	Total    *float64 // nil if the server does not know
	Message  string
}

// Response is an answer that is a result.
type Response struct {
	Result     json.RawMessage
	Generation uint64 // the incarnation that answered
}

// Do makes a request with options and returns its raw result. Errors are those of
// [Client.Call]. A modern server's request for input is answered by the handlers
// of Config, and the request made again; a result that asks for what there is no
// handler for is returned as it is.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) { return c.do(ctx, r, 0) }

func (c *Client) do(ctx context.Context, r Request, pin uint64) (Response, error) {
	params, err := encode(r.Params)
	if r.Method == "" {
		err = errNoMethod
	}
	if err != nil {
		return Response{}, &InvalidRequestError{Method: r.Method, Err: err}
	}
	o := &c.engine.Options
	req := engine.Request{Method: r.Method, Params: params, Header: r.Header, Pin: pin}
	req.Wait = r.Wait == WaitReady || r.Wait == WaitDefault && o.WaitForReady
	req.Idle, req.Ceiling = timeouts(r.RequestTimeout, r.MaxRequestTimeout, o.RequestTimeout, o.MaxRequestTimeout)
	if r.Progress != nil {
		req.Progress = func(p engine.Progress) { r.Progress(Progress(p)) }
	}
	for round := 0; ; round++ {
		reply, fail := c.engine.Do(ctx, req)
		switch {
		case fail != nil:
			if round > 0 { // whatever became of this one, an earlier round ran
				after := *fail
				after.Outcome = engine.OutcomeUnknown
				fail = &after
			}
			return Response{}, lost(fail)
		case reply.Err != nil:
			return Response{}, public(reply.Err)
		}
		w, ok := c.wants(r.Method, reply.Result)
		if !ok {
			return Response{Result: reply.Result, Generation: reply.Gen}, nil
		}
		if err = errRounds; round < maxRounds {
			req.Params, err = c.input(ctx, params, w)
		}
		if err != nil {
			return Response{}, &InputError{Method: r.Method, Err: err}
		}
	}
}

// Notify sends a notification and returns once it is written. Errors are those
// of [Client.Call].
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	raw, err := encode(params)
	if method == "" {
		err = errNoMethod
	}
	if err != nil {
		return &InvalidRequestError{Method: method, Err: err}
	}
	o := &c.engine.Options
	_, fail := c.engine.Do(ctx, engine.Request{
		Method: method, Params: raw, Notify: true,
		Wait: o.WaitForReady, Idle: o.RequestTimeout, Ceiling: o.MaxRequestTimeout,
	})
	if fail != nil {
		return lost(fail)
	}
	return nil
}

// State returns where the server is in its lives (see package fsm for the states).
func (c *Client) State() fsm.State { return c.engine.State() }

// IsReconnecting reports whether a server that has served is away and a
// replacement is promised or starting.
func (c *Client) IsReconnecting() bool {
	s := c.engine.State() // Connect returns only what has served
	return s == fsm.Dead || s == fsm.Starting
}

// WaitForStateChange waits until the state is not from. It reports whether that
// happened before ctx ended.
func (c *Client) WaitForStateChange(ctx context.Context, from fsm.State) bool {
	return c.engine.WaitForStateChange(ctx, from)
}

// Done is closed when the client has ended, by Close or by exhaustion: no server
// and no goroutine is left but for callbacks that still run.
func (c *Client) Done() <-chan struct{} { return c.engine.Done() }

// Err returns why the client has ended: an [*ExhaustedError], [ErrClosed], or nil
// while it has not.
func (c *Client) Err() error { return public(c.engine.Err()) }

// Close refuses new calls, lets those in flight finish for Config.DrainTimeout,
// and stops the server. It returns when all is gone, or with ctx's error; the
// stop goes on then. It may be called again, from several goroutines, and from a
// callback.
func (c *Client) Close(ctx context.Context) error { return c.engine.Close(ctx) }

// Server is what a server says of itself, all of it from one incarnation.
type Server struct {
	Era          string                  // "modern" (2026-07-28 and later), or "legacy" (an initialize handshake)
	Version      string                  // of the protocol, e.g. "2026-07-28"
	Info         *mcp.Implementation     // nil if it did not say
	Capabilities *mcp.ServerCapabilities // never nil
	Instructions string
}

// Server returns what the last server that served said of itself.
func (c *Client) Server() Server {
	s := c.engine.Session()
	out := Server{Era: s.Era.String(), Version: s.Version, Capabilities: &mcp.ServerCapabilities{}, Instructions: s.Instructions}
	if len(s.Info) > 0 && engine.Decode(s.Info, &out.Info) != nil {
		out.Info = nil
	}
	if len(s.Capabilities) > 0 && engine.Decode(s.Capabilities, out.Capabilities) != nil {
		out.Capabilities = &mcp.ServerCapabilities{}
	}
	return out
}

// Stats counts what was survived instead of being reported as an error.
type Stats struct {
	IllegalEvents  uint64 // a transport or this package broke its contract
	StaleEvents    uint64 // what ended incarnations still said
	NoiseBytes     uint64 // bytes where a message belonged
	Malformed      uint64 // JSON that is no message
	UnknownIDs     uint64 // answers nobody waited for
	LooseIDs       uint64 // answers whose id was spelled differently
	ModernRequests uint64 // requests of a modern server, which may not make any
	CallbackPanics uint64 // of callbacks and of progress listeners, each of them logged
	Untold         uint64 // notifications that were dropped because 8,192 callbacks waited
}

// Stats returns the counters, summed over all incarnations.
func (c *Client) Stats() Stats {
	n := &c.engine.Counters
	return Stats{
		n.Illegal.Load(), n.Stale.Load(), n.Noise.Load(), n.Malformed.Load(),
		n.Unmatched.Load(), n.LooseIDs.Load(), n.Unanswered.Load(), n.Panics.Load(), n.Untold.Load(),
	}
}
