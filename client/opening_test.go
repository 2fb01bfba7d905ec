package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// countingBudget counts how often it is asked.
type countingBudget struct {
	policy.Budget
	asked int
}

func (b *countingBudget) Spend(l policy.Ledger, d policy.Death, rnd float64) (policy.Ledger, policy.Verdict) {
	b.asked++
	return b.Budget.Spend(l, d, rnd)
}

// silent takes a message and does nothing.
func silent(*life, message) (bool, error) { return true, nil }

// on returns what a scripted peer does with one method.
func on(method string, do func(l *life, m message) error) func(*life, message) (bool, error) {
	return func(l *life, m message) (bool, error) {
		if m.Method != method {
			return false, nil
		}
		return true, do(l, m)
	}
}

func dies(*life, message) error { return errKilled }

// unstarted is a transport whose server can't be started.
type unstarted struct{}

func (unstarted) Serve(context.Context, func(transports.Event)) error { return errBadStart }
func (unstarted) Send(transports.Outbound) error                      { return transports.ErrGone }
func (unstarted) Cancel(uint64) bool                                  { return false }

func TestS3_AFailureOfTheFirstStartIsConnectsError(t *testing.T) {
	for _, tt := range []struct {
		what  string
		peer  *peer
		build func() transports.Transport // instead of the peer's
		cfg   client.Config
		want  string
		took  time.Duration
		spawn int
	}{
		{what: "no transport is built", build: func() transports.Transport { return nil }, want: "the factory returned no transport"},
		{what: "the factory panics", build: func() transports.Transport { panic("boo") }, want: "the transport panicked: boo"},
		{what: "it can't start", build: func() transports.Transport { return unstarted{} }, want: "it can't start"},
		{
			what: "it dies before it reads the probe", took: time.Nanosecond,
			build: func() transports.Transport {
				return memory.New(transports.Pipe, func(context.Context, *memory.Conn) error {
					time.Sleep(time.Nanosecond) // the probe waits for it by then
					return errKilled
				})
			},
			want: "killed by the test",
		},
		{what: "it dies at initialize", peer: &peer{legacy: true, on: on("initialize", dies)}, want: "killed by the test", spawn: 1},
		{
			what: "it dies at the probe, and then at initialize", spawn: 2,
			peer: &peer{on: func(*life, message) (bool, error) { return true, errKilled }}, want: "killed by the test",
		},
		{
			what: "it refuses initialize", spawn: 1,
			peer: &peer{legacy: true, on: on("initialize", func(l *life, m message) error { l.fail(m, -32603, "no"); return nil })},
			want: "client: opening exchange: initialize: client: the server answered with an error: no (code -32603)",
		},
		{
			what: "its answer to initialize is none", spawn: 1,
			peer: &peer{legacy: true, on: on("initialize", func(l *life, m message) error { l.result(m, `[]`); return nil })},
			want: "client: opening exchange: initialize: json: cannot unmarshal \"[]\" into Go value of type struct " +
				"{ Version string \"json:\\\"protocolVersion\\\"\"; Capabilities json.RawMessage \"json:\\\"capabilities\\\"\"; " +
				"Info json.RawMessage \"json:\\\"serverInfo\\\"\"; Instructions string \"json:\\\"instructions\\\"\" }",
		},
		{
			what: "it speaks no version of ours, legacy", peer: &peer{legacy: true, version: "1999-01-01"}, spawn: 1,
			want: "client: no common protocol version: this client speaks [2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05], the server [1999-01-01]",
		},
		{
			what: "it speaks no version of ours, modern", peer: &peer{version: "2099-01-01"}, spawn: 1,
			want: "client: no common protocol version: this client speaks [2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05], the server [2099-01-01]",
		},
		{
			what: "it never answers", peer: &peer{on: silent}, spawn: 1,
			want: "client: start-up: not over after 2m0s", took: 120 * time.Second,
		},
		{
			what: "it never answers, bound of 3 s", peer: &peer{on: silent}, cfg: client.Config{StartTimeout: 3 * time.Second}, spawn: 1,
			want: "client: start-up: not over after 3s", took: 3 * time.Second,
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tt.peer
				if p == nil {
					p = &peer{}
				}
				f := p.factory()
				if tt.build != nil {
					f.New = tt.build
				}
				d, b := &diary{}, &countingBudget{Budget: policy.Unlimited()}
				tt.cfg.Budget, tt.cfg.Logger = b, quiet()
				cfg := d.of(tt.cfg)
				began := time.Now()
				c, err := client.Connect(t.Context(), f, &cfg)
				if c != nil || err == nil || err.Error() != "client: connect scripted: "+tt.want {
					t.Errorf("Connect: %v, want %s", err, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %s", took)
				}
				pass(time.Hour)
				// The free start after an exit on the probe is the one ending that is told.
				var want []string
				if tt.spawn == 2 {
					want = []string{"1 ended: killed by the test; the next in 0s"}
				}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
				if b.asked != 0 || p.spawned() != tt.spawn {
					t.Errorf("the budget was asked %d times for %d incarnations", b.asked, p.spawned())
				}
			})
		})
	}
}

func TestS3_AContextThatIsOverStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		cancel(gaveUp)
		for range 20 { // a race between the start and the context would show
			if _, err := client.Connect(ctx, p.factory(), &client.Config{Logger: quiet()}); !errors.Is(err, gaveUp) {
				t.Errorf("Connect: %v", err)
			}
		}
		if p.spawned() != 0 {
			t.Errorf("%d incarnations", p.spawned())
		}
	})
}

func TestS20_APermanentCauseExhaustsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		era  string
		peer *peer
	}{
		{"modern", &peer{}},
		{"legacy", &peer{legacy: true}},
	} {
		t.Run(tt.era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, d := tt.peer, &diary{}
				c := connect(t, p, d.of(client.Config{WaitForReady: true}))
				p.speak("2099-01-01")
				p.kill()
				synctest.Wait()
				if got, want := tool(t.Context(), c), "not executed: exhausted after 1 restarts"; got != want {
					t.Errorf("a call that waits: %s, want %s", got, want)
				}
				<-c.Done()
				synctest.Wait()
				want := []string{
					"1 ended: killed by the test; the next in 100ms",
					"2 ended: client: no common protocol version: this client speaks [2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05]," +
						" the server [2099-01-01]; none follows",
				}
				if diff := cmp.Diff(want, d.read()); diff != "" {
					t.Error(diff)
				}
				if version := new(client.VersionError); !errors.As(c.Err(), &version) {
					t.Errorf("Err: %v", c.Err())
				}
			})
		})
	}
}

func TestS20_UnlimitedKnowsNoPermanentCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{Budget: policy.Unlimited(), WaitForReady: true})
		p.speak("2099-01-01")
		p.kill()
		synctest.Wait()
		said := start(func() string { return tool(t.Context(), c) })
		pass(time.Second)
		if c.State() == fsm.Exhausted {
			t.Error("it is exhausted")
		}
		p.speak("")
		if got := (<-said)[:10]; got != "generation" {
			t.Error(got)
		}
	})
}

func TestS21_AnExitOnTheProbeCostsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true, on: on("server/discover", dies)}
		d, b := &diary{}, &countingBudget{Budget: tumbling(t, 1)}
		c := connect(t, p, d.of(client.Config{Budget: b}))
		if b.asked != 0 || c.IsReconnecting() {
			t.Errorf("the budget was asked %d times; reconnecting: %t", b.asked, c.IsReconnecting())
		}
		p.kill()
		pass(100 * time.Millisecond)
		if got := tool(t.Context(), c); got != "generation 3" {
			t.Error(got)
		}
		want := []string{
			"1 ended: killed by the test; the next in 0s",
			"2 ended: killed by the test; the next in 100ms", "3 serves",
		}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Error(diff)
		}
		received := []string{
			"1 server/discover",
			"2 initialize", "2 notifications/initialized",
			"3 initialize", "3 notifications/initialized", "3 tools/call",
		}
		if diff := cmp.Diff(received, p.received()); diff != "" {
			t.Error(diff)
		}
	})
}

// A server that is installed first (npx -y) reads the probe only when it is up, long after the
// probe's silence was taken for an answer.
func TestS21_AnExitOnALateProbeCostsNoBudgetEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true, on: on("server/discover", func(*life, message) error {
			time.Sleep(45 * time.Second)
			return errKilled
		})}
		d, b := &diary{}, &countingBudget{Budget: policy.Never()}
		c := connect(t, p, d.of(client.Config{Budget: b}))
		if got := tool(t.Context(), c); got != "generation 2" || b.asked != 0 {
			t.Errorf("a call: %s; the budget was asked %d times", got, b.asked)
		}
		received := []string{"1 server/discover", "2 initialize", "2 notifications/initialized", "2 tools/call"}
		if diff := cmp.Diff(received, p.received()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestT18_ALateAnswerToTheProbeKeepsASlowServerModern(t *testing.T) {
	discovered := func(l *life, m message) {
		l.result(m, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	}
	for _, tt := range []struct {
		what    string
		answer  func(l *life, probe, initialize message)
		version string
		err     string
	}{
		{"it answers in order, seven seconds late", func(l *life, probe, initialize message) {
			discovered(l, probe)
			l.fail(initialize, -32601, "method not found")
		}, "2026-07-28", ""},
		{"it refuses initialize first", func(l *life, probe, initialize message) {
			l.fail(initialize, -32601, "method not found")
			time.Sleep(time.Second)
			discovered(l, probe)
		}, "2026-07-28", ""},
		{"its late answer is a modern error that names versions", func(l *life, probe, initialize message) {
			l.fail(initialize, -32601, "method not found")
			l.Write(0, `{"jsonrpc":"2.0","id":`+string(probe.ID)+`,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}}`)
		}, "", "client: no common protocol version: this client speaks [2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05], the server [2099-01-01]"},
		{"it answers initialize, and the probe after that", func(l *life, probe, initialize message) {
			l.result(initialize, `{"protocolVersion":"2025-11-25","capabilities":{}}`)
			discovered(l, probe)
		}, "2025-11-25", ""},
		{"it refuses both", func(l *life, probe, initialize message) {
			l.fail(probe, -32601, "method not found")
			l.fail(initialize, -32601, "method not found")
		}, "", "client: opening exchange: initialize: client: the server answered with an error: method not found (code -32601)"},
		{"it refuses initialize and never answers the probe", func(l *life, probe, initialize message) {
			l.fail(initialize, -32601, "method not found")
		}, "", "client: opening exchange: initialize: client: the server answered with an error: method not found (code -32601)"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var probe message
				p := &peer{on: func(l *life, m message) (bool, error) {
					switch m.Method {
					case "server/discover":
						probe = m
						time.Sleep(7 * time.Second)
						return true, nil
					case "initialize":
						tt.answer(l, probe, m)
						return true, nil
					}
					return false, nil
				}}
				c, err := client.Connect(t.Context(), p.factory(), &client.Config{Logger: quiet()})
				if tt.err != "" {
					if err == nil || err.Error() != "client: connect scripted: "+tt.err {
						t.Errorf("Connect: %v, want %s", err, tt.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := c.Server().Version; got != tt.version {
					t.Errorf("the version is %s", got)
				}
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
