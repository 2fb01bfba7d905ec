package client

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// The defaults of [Config].
const (
	// DefaultStartTimeout is long because a first start may install the server
	// (npx -y, uvx): minutes are normal, and giving up too early starts over.
	DefaultStartTimeout = 120 * time.Second
	// DefaultProbeTimeout is how long a legacy server may stay silent on the era
	// probe before initialize follows (2026-07-28, stdio, Backward Compatibility).
	DefaultProbeTimeout = 5 * time.Second
	// DefaultDrainTimeout is how long Close lets calls in flight finish.
	DefaultDrainTimeout = 5 * time.Second
	// DefaultRequestTimeout ends a call without progress (2025-11-25, lifecycle,
	// Timeouts: implementations SHOULD establish timeouts for all requests).
	DefaultRequestTimeout = 60 * time.Second
	// DefaultMaxRequestTimeout ends a call in any case (same section: a maximum
	// SHOULD always be enforced, regardless of progress).
	DefaultMaxRequestTimeout = 600 * time.Second
	// DefaultMaxHeld and DefaultMaxHeldBytes bound what waits for a server.
	DefaultMaxHeld      = 1024
	DefaultMaxHeldBytes = 64 << 20
)

// The protocol versions that this client speaks, preferred first.
var (
	modernVersions = []string{"2026-07-28"}
	legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
)

// Config says how a [Client] behaves. The zero value, and nil, work. A duration
// of 0 means the default, a negative one means none. What makes no sense is an
// error of [Connect].
//
// The handlers CreateMessage, Elicit and ListRoots answer what the server asks
// while it works on a call: a request of a legacy server, or an input request of a
// modern one. One that is set is declared as a capability. Its context ends with
// the incarnation that asked (legacy), or with the call or the client (modern).
// Its error becomes a JSON-RPC error for a legacy server, and an [*InputError] of
// the call, which waits for it, for a modern one.
//
// The callbacks, whose names begin with On, run one after the other, in the order
// of what they tell, on a goroutine of their own and under no lock. They may call
// anything of the client, Close included. A slow one delays only those after it; a
// panic in one goes to Logger. Of what a server says unasked (OnLog, OnNotification),
// what comes while 8,192 callbacks wait is dropped, logged and counted; changes of
// listings are told together then.
type Config struct {
	// Budget says how many deaths are forgiven. Default: policy.Contract() for a
	// process, policy.Unlimited() over HTTP.
	Budget policy.Budget
	// Retry says what becomes of a lost request. Default: policy.DefaultRules().
	Retry policy.Rules
	// RetryLost makes requests that only read again on the replacement, when the
	// server died with them in flight, under their original id, order and deadline:
	// server/discover, the listings, prompts/get, resources/read and
	// completion/complete, by whatever method of the client they were made (2026-07-28,
	// stdio: requests lost with the process can be retried). tools/call and
	// continuations of input rounds never are. Default: off.
	RetryLost bool
	// WaitForReady holds calls made while nobody serves, until somebody does or
	// their deadline is over, instead of refusing them. Default: off.
	WaitForReady bool

	// DistrustAnnotations never sends a tool call again on what the server says of
	// its tools (2026-07-28, server/tools: annotations are untrusted unless the
	// server is trusted). Default: off.
	DistrustAnnotations bool

	// StartTimeout is from the start of a server to the moment at which it serves.
	// Default: 120 s.
	StartTimeout time.Duration
	// ProbeTimeout is the silence on the era probe of a process that means legacy
	// (2026-07-28, stdio, Backward Compatibility). Default: 5 s.
	ProbeTimeout time.Duration
	// DrainTimeout is from Close to the end of calls in flight. Default: 5 s; none:
	// they end at once.
	DrainTimeout time.Duration
	// RequestTimeout ends a call that is not answered and reports no progress for so
	// long; over HTTP any byte of its answer counts. Progress is only reported to
	// calls that listen to it ([Request].Progress). Default: 60 s.
	RequestTimeout time.Duration
	// MaxRequestTimeout ends a call whatever its progress. Default: 600 s, and never
	// less than RequestTimeout.
	MaxRequestTimeout time.Duration

	// StreamBackoff is the wait before a subscription is opened again that a live
	// server ended or did not acknowledge. Default: 250 ms, doubling up to 30 s, so
	// that a server which ends it at once sees five openings in the first 4 s.
	StreamBackoff policy.Backoff
	// Liveness takes a server that stays silent for dead. Default: never.
	Liveness Liveness
	// Cache keeps the results of listings and of resources/read for as long as the
	// server allows (2026-07-28, server/utilities/caching), until the server or a
	// recovery says that they changed. Default: off.
	Cache bool

	// MaxHeld is how many calls may wait for a server, whether they were never sent
	// or are to be sent again, and MaxHeldBytes the bytes of their params. One more
	// is refused with [*NotServingError]. Default: 1,024 and 64 MiB; negative: none.
	MaxHeld      int
	MaxHeldBytes int64

	// CreateMessage answers sampling/createMessage.
	CreateMessage func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error)
	// Elicit answers elicitation/create. Fields that it leaves out of an accepted
	// form get the defaults of the requested schema.
	Elicit func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)
	// ListRoots answers roots/list.
	ListRoots func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error)

	// Info names this client to the server. Default: respawn and its version.
	Info *mcp.Implementation

	// Clock is the source of time. Default: the real one. A clock.Mock only works
	// inside a testing/synctest bubble.
	Clock clock.Clock
	// Logger hears what was survived. It is called where things happen: its handler
	// must not block, and must not wait for this client. Default: slog.Default().
	Logger *slog.Logger

	// OnTransition is told each change of state, before what follows from it.
	OnTransition func(fsm.Transition)
	// OnEnd is told each end of an incarnation, and of a promise that Close took back.
	OnEnd func(Ended)
	// OnReconnect is told each replacement that serves, after its predecessor's end.
	// A subscription heard nothing in between.
	OnReconnect func(Reconnect)
	// OnListChanged is told that what is known of a kind is stale: the server said
	// so, or a replacement serves.
	OnListChanged func(Kind)
	// OnLog is told each notifications/message of the server.
	OnLog func(*mcp.LoggingMessageParams)
	// OnNotification is told what no call, no modern subscription and no other
	// callback takes, and changes of listings also as they came.
	OnNotification func(Notification)
}

// Ended reports one close: an incarnation ended, or (Withdrawn) the promise of
// one was taken back by Close.
type Ended struct {
	Gen       uint64         // which incarnation, from 1
	Cause     error          // why; ErrClosed after Close
	Uptime    time.Duration  // how long it served; 0 if it never did
	Verdict   policy.Verdict // what the budget said; zero after Close
	Restarts  int            // restarts promised so far, this one included
	Withdrawn bool           // it was no incarnation that ended, but the promise of one
}

// Reconnect reports that a replacement serves.
type Reconnect struct {
	Generation uint64        // which incarnation serves now
	Cause      error         // of the ending before
	Downtime   time.Duration // from that ending to now
	Retried    int           // requests sent again that the old one may have seen
	Reopened   int           // subscriptions opened again
	Changed    []string      // of "era", "version", "serverInfo", "capabilities"
	Lost       []error       // what the replacement did not take back, each a *StateError
}

// Notification is one notification of the server.
type Notification struct {
	Method     string
	Params     json.RawMessage // nil if it had none
	Generation uint64          // the incarnation that sent it
}

func (cfg *Config) options(f transports.Factory) (engine.Options, error) {
	o := engine.Options{
		Factory: f, Budget: cfg.Budget, Rules: cfg.Retry,
		RetryLost: cfg.RetryLost, WaitForReady: cfg.WaitForReady, Distrust: cfg.DistrustAnnotations,
		StartTimeout:  duration(cfg.StartTimeout, DefaultStartTimeout),
		ProbeTimeout:  duration(cfg.ProbeTimeout, DefaultProbeTimeout),
		DrainTimeout:  duration(cfg.DrainTimeout, DefaultDrainTimeout),
		StreamBackoff: cfg.StreamBackoff, Liveness: cfg.Liveness.options(),
		Clock: cfg.Clock, Logger: cfg.Logger,
		OnTransition: cfg.OnTransition,
	}
	o.RequestTimeout, o.MaxRequestTimeout = timeouts(cfg.RequestTimeout, cfg.MaxRequestTimeout,
		DefaultRequestTimeout, DefaultMaxRequestTimeout)
	if o.Budget == nil {
		o.Budget = policy.Contract()
		if f.Shape == transports.Posts {
			o.Budget = policy.Unlimited()
		}
	}
	if f.Shape == transports.Posts { // one process needs no jitter, many clients of one server do
		o.Rand = rand.Float64
	}
	o.MaxHeld = cmp.Or(cfg.MaxHeld, DefaultMaxHeld)
	o.MaxHeldBytes = cmp.Or(cfg.MaxHeldBytes, DefaultMaxHeldBytes)
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if cfg.OnEnd != nil {
		o.OnEnd = func(e engine.Ended) {
			cfg.OnEnd(Ended{e.Gen, public(e.Cause), e.Uptime, e.Verdict, e.Restarts, e.Withdrawn})
		}
	}
	if cfg.OnReconnect != nil {
		o.OnReconnect = func(r engine.Reconnect) {
			cfg.OnReconnect(Reconnect{r.Generation, public(r.Cause), r.Downtime, r.Retried, r.Reopened, r.Changed, publicAll(r.Lost)})
		}
	}
	if err := errors.Join(o.Rules.Validate(), o.StreamBackoff.Validate(), cfg.validate()); err != nil {
		return o, err
	}
	var err error
	o.Hello, err = cfg.hello()
	return o, err
}

// validate refuses what neither a default nor "none" can be meant by.
func (cfg *Config) validate() error {
	for _, f := range []struct {
		name     string
		negative bool
	}{
		{"MaxHeld", cfg.MaxHeld < 0},
		{"MaxHeldBytes", cfg.MaxHeldBytes < 0},
		{"Liveness.Timeout", cfg.Liveness.Timeout < 0},
		{"Liveness.Misses", cfg.Liveness.Misses < 0},
	} {
		if f.negative {
			return &ConfigError{Field: f.name, Why: "is negative"}
		}
	}
	return nil
}

func (cfg *Config) hello() (engine.Hello, error) {
	info := cfg.Info
	if info == nil {
		info = &mcp.Implementation{Name: "respawn", Version: "0.1.0"}
	}
	raw, err := json.Marshal(info)
	modern, legacy := cfg.capabilities()
	return engine.Hello{
		Info: raw, Capabilities: modern, Handshake: legacy,
		Modern: modernVersions, Legacy: legacyVersions,
	}, err
}

// capabilities declares what there are handlers for. The eras differ in one
// thing: only the legacy one knows a change of the roots (2025-11-25, client/roots).
func (cfg *Config) capabilities() (modern, legacy json.RawMessage) {
	modern, legacy = []byte("{"), []byte("{")
	add := func(declared bool, inModern, inLegacy string) {
		if declared {
			modern = append(append(modern, inModern...), ',')
			legacy = append(append(legacy, inLegacy...), ',')
		}
	}
	add(cfg.ListRoots != nil, `"roots":{}`, `"roots":{"listChanged":true}`)
	add(cfg.CreateMessage != nil, `"sampling":{}`, `"sampling":{}`)
	add(cfg.Elicit != nil, `"elicitation":{"form":{},"url":{}}`, `"elicitation":{"form":{},"url":{}}`)
	return append(bytes.TrimSuffix(modern, []byte(",")), '}'), append(bytes.TrimSuffix(legacy, []byte(",")), '}')
}

// Liveness says when a silent server is taken for dead, by [ErrUnresponsive]. Only
// one that has nothing to do is asked, by ping or (modern, which has none:
// 2026-07-28, changelog) server/discover; any answer is life, an error or a late
// one too, and so is anything else that it says. A request that times out is never
// a death.
type Liveness struct {
	Idle    time.Duration // silence before it is asked, and between two; 0: liveness is off
	Timeout time.Duration // silence after the question that makes it a miss; default 10 s
	Misses  int           // misses in a row, with nothing heard since the first, that end the server; default 3
}

func (l Liveness) options() engine.Liveness {
	return engine.Liveness{Idle: l.Idle, Timeout: cmp.Or(l.Timeout, 10*time.Second), Misses: cmp.Or(l.Misses, 3)}
}

// duration is d, or its default for 0, or 0 for none.
func duration(d, def time.Duration) time.Duration {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// timeouts resolves an idle timeout and a ceiling, which is never the smaller.
func timeouts(idle, ceiling, defIdle, defCeiling time.Duration) (time.Duration, time.Duration) {
	idle, ceiling = duration(idle, defIdle), duration(ceiling, defCeiling)
	if ceiling > 0 {
		ceiling = max(idle, ceiling)
	}
	return idle, ceiling
}
