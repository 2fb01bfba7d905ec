package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a scripted peer: on answers a frame, and an error kills it.
type server struct {
	on    func(l *life, m message) error
	shape transports.Shape
	hangs string // a method of which nothing ever comes

	mu    sync.Mutex
	lives int
	cur   *life
	log   []string
}

type life struct {
	*memory.Conn
	gen int
	die chan error
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	frame  string
	ref    uint64 // of the exchange that it came by, on Posts
}

func (s *server) serve(ctx context.Context, c *memory.Conn) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.mu.Lock()
	s.lives++
	l := &life{c, s.lives, make(chan error, 1)}
	s.cur = l
	s.mu.Unlock()
	done := make(chan struct{})
	defer func() { stop(nil); <-done }()
	go func() {
		defer close(done)
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
		if out.Op == transports.OpListen {
			c.Emit(transports.Rejected{Ref: out.Ref, Status: 405})
			continue
		}
		var m message
		if err := json.Unmarshal(out.Frame, &m); err != nil {
			return err
		}
		if m.frame = string(out.Frame); s.shape == transports.Posts {
			m.ref = out.Ref
		}
		s.mu.Lock()
		s.log = append(s.log, fmt.Sprintf("%d %s", l.gen, m.frame))
		s.mu.Unlock()
		if err := s.on(l, m); err != nil {
			return err
		}
	}
}

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cur.die <- fmt.Errorf("killed")
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives
}

func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// host collects what the relay says to it.
type host struct {
	*relay.Relay
	mu  sync.Mutex
	got []string
}

func (h *host) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := h.got
	h.got = nil
	return got
}

func (s *server) factory() transports.Factory { return memory.Factory(s.shape, "scripted", s.serve) }

func start(t *testing.T, s *server, cfg relay.Config) *host {
	t.Helper()
	f := s.factory()
	living := f.New
	f.New = func() transports.Transport { return hanging{living(), s.hangs} }
	return inFrontOf(t, f, cfg)
}

// inFrontOf is a host whose relay is closed when the test ends.
func inFrontOf(t *testing.T, f transports.Factory, cfg relay.Config) *host {
	t.Helper()
	h := &host{}
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	r, err := relay.New(f, func(frame []byte) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, string(frame))
	}, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Relay = r
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// hanging takes a message of one method and says nothing of it.
type hanging struct {
	transports.Transport
	method string
}

func (h hanging) Send(out transports.Outbound) error {
	if h.method != "" && out.Method == h.method {
		return nil
	}
	return h.Transport.Send(out)
}

func legacy(l *life, m message) error {
	switch m.Method {
	case "initialize":
		l.Write(m.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}}`, m.ID))
	case "tools/call":
	default:
		if len(m.ID) > 0 {
			l.Write(m.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"gen":%d}}`, m.ID, l.gen))
		}
	}
	return nil
}

func TestTheHostSeesOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: legacy}
		h := start(t, s, relay.Config{})
		say := func(frames ...string) {
			for _, f := range frames {
				h.FromHost([]byte(f))
			}
			synctest.Wait()
		}
		expect := func(what string, got, want []string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		initialize := `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`
		say(initialize)
		expect("the opening", s.took(), []string{"1 " + initialize})
		expect("its answer", h.heard(), []string{
			`{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}}`,
		})
		say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":1.50,"é":"\u00e9"}}`,
			`{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"x"}}`)
		expect("bytes are untouched", s.took(), []string{
			`1 {"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`1 {"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":1.50,"é":"\u00e9"}}`,
			`1 {"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"x"}}`,
		})
		expect("the answer", h.heard(), []string{`{"jsonrpc":"2.0","id":7,"result":{"gen":1}}`})
		s.kill()
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		expect("the replay", s.took(), []string{
			`2 {"jsonrpc":"2.0","id":1125899906842628,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`,
			`2 {"jsonrpc":"2.0","method":"notifications/initialized"}`,
		})
		expect("the lost call and what may have changed", h.heard(), []string{
			`{"jsonrpc":"2.0","id":"7","error":{"code":-31001,"message":"respawn: the MCP server \"s\" went away before it answered tools/call. The call may have taken effect: check before you make it again.","data":{"outcome":"unknown","generation":1,"cause":"killed","attempt":1}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		})
	})
}

// A host that hears of the death of its probe is quick to fall back: its initialize
// may come while the dead server is still being dealt with.
func TestRelay_Rule1_AnInitializeRightBehindADeathWaitsForTheNextServer(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			s.on = func(l *life, m message) error {
				if m.Method == "server/discover" {
					return errors.New("exit code 1")
				}
				return legacy(l, m)
			}
			heard := make(chan string, 8)
			r, err := relay.New(memory.Factory(transports.Pipe, "scripted", s.serve), func(frame []byte) { heard <- string(frame) },
				&relay.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close(context.Background())
			r.FromHost([]byte(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}`))
			if got := <-heard; !strings.Contains(got, "-31001") {
				t.Fatalf("the probe: %s", got)
			}
			r.FromHost([]byte(initialize))
			if got := <-heard; !strings.Contains(got, `"id":"i","result"`) {
				t.Fatalf("the initialize: %s", got)
			}
		})
	}
}
