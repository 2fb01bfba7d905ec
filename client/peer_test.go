package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a scripted server. The zero value is a modern one that answers tools/call with its
// generation.
type peer struct {
	legacy       bool
	version      string // "" means the newest of its era
	capabilities string // "" means tools alone
	// on takes a request or notification before the defaults do; it reports whether it did, and an
	// error kills the incarnation.
	on func(p *life, m message) (handled bool, die error)

	mu    sync.Mutex // guards version too
	lives []*life
	log   []message
}

// life is one incarnation of a peer.
type life struct {
	*memory.Conn
	peer *peer
	gen  int
	ctx  context.Context
	die  chan error // send to end it
}

type message struct {
	Gen    int             `json:"-"`
	Ref    uint64          `json:"-"`
	Header http.Header     `json:"-"`
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

var errKilled = errors.New("killed by the test")

func (p *peer) factory() transports.Factory {
	return memory.Factory(transports.Pipe, "scripted", p.serve)
}

// errExit0 ends a life without any error.
var errExit0 = errors.New("exit status 0")

func (p *peer) serve(ctx context.Context, c *memory.Conn) error {
	if err := p.live(ctx, c); err != errExit0 {
		return err
	}
	return nil
}

func (p *peer) live(ctx context.Context, c *memory.Conn) error {
	p.mu.Lock()
	l := &life{Conn: c, peer: p, gen: len(p.lives) + 1, die: make(chan error, 1)}
	p.lives = append(p.lives, l)
	p.mu.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l.ctx = ctx
	dead := make(chan struct{})
	defer func() { stop(nil); <-dead }()
	go func() {
		defer close(dead)
		select {
		case err := <-l.die:
			stop(err)
		case <-ctx.Done():
		}
	}()
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(out.Frame, &m); err != nil {
			return fmt.Errorf("the client sent %q: %w", out.Frame, err)
		}
		m.Gen, m.Ref, m.Header = l.gen, out.Ref, out.Header
		p.mu.Lock()
		p.log = append(p.log, m)
		p.mu.Unlock()
		if p.on != nil {
			if handled, die := p.on(l, m); die != nil {
				return die
			} else if handled {
				continue
			}
		}
		l.answer(m)
	}
}

// answer is what a well-behaved server of the peer's era does.
func (l *life) answer(m message) {
	if len(m.ID) == 0 || m.Method == "" {
		return
	}
	l.peer.mu.Lock()
	version := l.peer.version
	l.peer.mu.Unlock()
	switch {
	case m.Method == "server/discover" && !l.peer.legacy:
		l.result(m, `{"supportedVersions":[%q],"capabilities":%s,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"%d"}}}`,
			or(version, "2026-07-28"), or(l.peer.capabilities, `{"tools":{}}`), l.gen)
	case m.Method == "initialize" && l.peer.legacy:
		l.result(m, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":"scripted","version":"%d"}}`,
			or(version, "2025-11-25"), or(l.peer.capabilities, `{"tools":{}}`), l.gen)
	case m.Method == "tools/call":
		l.result(m, `{"content":[{"type":"text","text":"generation %d"}]}`, l.gen)
	case m.Method == "subscriptions/listen" && !l.peer.legacy:
		var p struct {
			Notifications json.RawMessage `json:"notifications"`
		}
		_ = json.Unmarshal(m.Params, &p)
		l.ack(m, string(p.Notifications))
	case l.peer.legacy && slices.Contains([]string{"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}, m.Method):
		l.result(m, `{}`)
	default:
		l.fail(m, -32601, "method not found")
	}
}

func (l *life) result(m message, format string, args ...any) {
	l.Write(m.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, fmt.Sprintf(format, args...)))
}

func (l *life) fail(m message, code int, text string) {
	l.Write(m.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, text))
}

// say sends a notification.
func (l *life) say(method, params string) {
	l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

// ack acknowledges a listen request, with what it grants.
func (l *life) ack(m message, filter string) {
	l.say("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{%q:%s},"notifications":%s}`, subscriptionID, m.ID, filter))
}

// tell sends a notification on the stream that a listen request opened.
func (l *life) tell(listen message, method string) {
	l.say(method, fmt.Sprintf(`{"_meta":{%q:%s}}`, subscriptionID, listen.ID))
}

const subscriptionID = "io.modelcontextprotocol/subscriptionId"

// later runs f after d, unless the life has ended by then.
func (l *life) later(d time.Duration, f func()) {
	t := time.AfterFunc(d, f)
	context.AfterFunc(l.ctx, func() { t.Stop() })
}

// progress reports progress on a request to whoever asked for it.
func (l *life) progress(m message, n int) {
	l.Write(m.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.ID, n))
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// last is the newest incarnation.
func (p *peer) last() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lives[len(p.lives)-1]
}

// spawned counts incarnations.
func (p *peer) spawned() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lives)
}

// got returns the messages of a method, in order.
func (p *peer) got(method string) []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	var of []message
	for _, m := range p.log {
		if m.Method == method {
			of = append(of, m)
		}
	}
	return of
}

// messages returns what the peer got, in order.
func (p *peer) messages() []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// received lists "generation method" of what the peer got, in order.
func (p *peer) received() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []string
	for _, m := range p.log {
		got = append(got, fmt.Sprintf("%d %s", m.Gen, or(m.Method, "reply")))
	}
	return got
}

// becomes changes what the peer does, once all that it got is dealt with.
func (p *peer) becomes(on func(*life, message) (bool, error)) {
	synctest.Wait()
	p.on = on
}

// speak sets the protocol version from now on.
func (p *peer) speak(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = version
}

// kill ends the newest incarnation, unless it was told to end already.
func (p *peer) kill() {
	select {
	case p.last().die <- errKilled:
	default:
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// connect connects to p and closes the client when the test, or its bubble, is over.
func connect(t *testing.T, p *peer, cfg client.Config) *client.Client {
	t.Helper()
	return connectTo(t, p.factory(), cfg)
}

func connectTo(t *testing.T, f transports.Factory, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	c, err := client.Connect(t.Context(), f, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := c.Stats().IllegalEvents; n != 0 {
			t.Errorf("%d illegal lifecycle events", n)
		}
	})
	return c
}
