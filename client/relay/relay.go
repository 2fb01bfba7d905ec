// Package relay puts recovery between a host and an MCP server, message by
// message. The host speaks to one server that never dies until its budget is
// spent; the relay passes every message on as its bytes came, and itself replays
// after a restart what the new server must know.
//
// It is for bridges and adapters. A program that makes calls of its own wants
// package client.
package relay

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/respawn-mcp/respawn/client/internal/engine"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// The defaults of [Config].
const (
	// DefaultHold is what a host's own timeouts, mostly 30 to 60 s, leave room for.
	DefaultHold         = 20 * time.Second
	DefaultMaxHeld      = 256
	DefaultMaxHeldBytes = 8 << 20
	// DefaultStartTimeout bounds a replacement's start; the first start waits for
	// the host, whose own timeout bounds it.
	DefaultStartTimeout = 120 * time.Second
)

// maxDeaths is how many deaths a read may survive. It was in flight at the third
// and may be the cause of all three: it must not spend the whole budget.
const maxDeaths = 2

// ownIDs is where the engine's own request ids and the ids of dialogs begin: far
// above what a host counts to, and exact in every JSON library (2^53).
const ownIDs = 1 << 50

// Config says how a [Relay] behaves. The zero value, and nil, work. A duration of
// 0 means the default, a negative one means none.
type Config struct {
	// Default: policy.Patient(), over HTTP policy.Unlimited(). Whatever it forgives, a
	// *DriftError ends the relay, unless policy.Park has taken over.
	Budget policy.Budget
	Rules  policy.Rules // default: policy.DefaultRules()
	// NoRetry does not send lost reads again. By default they are, after their
	// first and second death.
	NoRetry bool

	Hold         time.Duration // how long a request waits in all while nobody serves; 20 s
	MaxHeld      int           // requests that may wait; 256
	MaxHeldBytes int64         // ... and their bytes; 8 MiB
	StartTimeout time.Duration // from the start of a replacement to its serving; 120 s

	// ExitOnDrift ends the relay when a replacement declares other capabilities
	// than the host was told of. Default: it is logged.
	ExitOnDrift bool

	Clock  clock.Clock  // default: the real one
	Logger *slog.Logger // default: slog.Default()

	OnTransition func(fsm.Transition)
	OnEnd        func(Ended)
}

// Ended reports one close of the server, or of the promise of another one.
type Ended struct {
	Gen       uint64
	Cause     error
	Uptime    time.Duration
	Verdict   policy.Verdict
	Restarts  int
	Withdrawn bool
}

// Relay carries messages between one host and one server over all the server's
// lives. Its methods are safe for concurrent use.
type Relay struct {
	cfg    Config
	label  string
	engine *engine.Engine
	toHost func([]byte)
	done   chan struct{}
	posts  bool // the server is reached by HTTP

	mu           sync.Mutex
	record       *record         // the opening exchange in force; nil: none was answered yet
	openings     []*message      // those of the host that no server has answered
	opened       chan struct{}   // holds a token while there may be news for open
	current      *engine.Opening // of the server that was started last
	initialized  bool            // the host has sent notifications/initialized
	pausing      bool            // over HTTP: its notifications/initialized is on its way
	paused       [][]byte        // ... and what came after it
	pauseOver    *clock.Timer    // ... and waits no longer then
	live         map[string]*message
	tokens       map[string]int  // progress tokens in flight, by their engine.IDKey
	tasks        map[string]bool // ... and those of tasks that may run
	streams      map[string]*engine.Stream
	dialogs      map[string]dialog
	dialogID     uint64
	dialogTokens map[string]uint64 // which generation uses a progress token towards the host, by its engine.IDKey

	finished bool           // Done waits for nothing new
	taking   sync.WaitGroup // ... and for this: who takes messages of the host's
	resuming sync.Mutex     // taken before mu
	served   atomic.Bool
}

// message is one message of the host.
type message struct {
	id     string
	method string
	params []byte
	frame  []byte
	token  string // its progress token's JSON text; "" for none

	// Of an opening exchange. The relay's mutex guards them.
	to     *engine.Opening // the server that was given it last
	out    bool            // ... and it is not known yet how that ended
	tries  int             // how many servers were
	lost   *engine.Failure // how the last of them failed it
	since  time.Time       // when it first reached nobody
	missed int             // ... and how often it did
}

// New starts the server behind f. toHost takes each message for the host; it is
// called from several goroutines, must not block and must not modify the frame.
// cfg may be nil and is copied.
func New(f transports.Factory, toHost func(frame []byte), cfg *Config) (*Relay, error) {
	r := &Relay{
		label: f.Label, toHost: toHost, posts: f.Shape == transports.Posts, done: make(chan struct{}), opened: make(chan struct{}, 1),
		live: map[string]*message{}, tokens: map[string]int{}, tasks: map[string]bool{},
		streams: map[string]*engine.Stream{}, dialogs: map[string]dialog{}, dialogID: ownIDs, dialogTokens: map[string]uint64{},
	}
	if cfg != nil {
		r.cfg = *cfg
	}
	if err := r.cfg.Rules.Validate(); err != nil {
		return nil, err
	}
	r.engine = engine.New(r.options(f))
	r.engine.Start()
	go func() {
		<-r.engine.Done()
		r.resume() // nothing is on its way any more
		r.giveUpOpenings()
		r.mu.Lock()
		r.finished = true
		r.mu.Unlock()
		r.taking.Wait()
		close(r.done)
	}()
	return r, nil
}

// enter notes that somebody begins to take messages of the host's, and reports whether
// Done waits for the taking's Done.
func (r *Relay) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.finished {
		r.taking.Add(1)
	}
	return !r.finished
}

func (r *Relay) options(f transports.Factory) engine.Options {
	o := engine.Options{
		Factory: f, Face: (*face)(r), Open: r.open, FreeStart: true, FirstID: ownIDs,
		Budget: r.cfg.Budget, Rules: r.cfg.Rules, RetryLost: !r.cfg.NoRetry, MaxDeaths: maxDeaths,
		WaitForReady: true,
		StartTimeout: duration(r.cfg.StartTimeout, DefaultStartTimeout),
		MaxHeld:      cmp.Or(r.cfg.MaxHeld, DefaultMaxHeld),
		MaxHeldBytes: cmp.Or(r.cfg.MaxHeldBytes, DefaultMaxHeldBytes),
		Clock:        r.cfg.Clock, Logger: r.cfg.Logger,
		OnTransition: r.cfg.OnTransition, OnEnd: r.ended, OnReconnect: r.recovered,
	}
	if o.Budget == nil {
		o.Budget = policy.Patient()
		if f.Shape == transports.Posts {
			o.Budget = policy.Unlimited()
		}
	}
	if f.Shape == transports.Posts {
		o.Budget = faithful{o.Budget, nil}
		o.Rand = rand.Float64
	} else {
		o.Budget = faithful{o.Budget, &r.served}
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r.cfg.Logger, r.cfg.Clock = o.Logger, o.Clock
	return o
}

func duration(d, def time.Duration) time.Duration {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// State returns where the server is in its lives.
func (r *Relay) State() fsm.State { return r.engine.State() }

// Served reports whether the first opening exchange was ever answered, or for a modern
// host that asks nothing, any request.
func (r *Relay) Served() bool { return r.served.Load() }

// Done is closed when nothing runs any more: after Close, or when the budget is
// spent. Every request of the host has been answered then.
func (r *Relay) Done() <-chan struct{} { return r.done }

// Err returns the cause of the last server's end once no other will follow, and
// nil before and after Close.
func (r *Relay) Err() error {
	f, ok := r.engine.Err().(*engine.Failure)
	if !ok || f.Kind == engine.KindClosed {
		return nil
	}
	return f.Cause
}

// Close stops the server at once. It returns when nothing runs any more, or with
// ctx's error; the stop goes on then.
func (r *Relay) Close(ctx context.Context) error {
	if err := r.engine.Close(ctx); err != nil {
		return err
	}
	<-r.done
	return nil
}
