package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// The end of the dead process comes two seconds after the process is known to be
// gone, since something keeps its stdout open: no replacement serves before that.
func TestB026_ALateEndTouchesItsOwnGenerationOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" && l.gen == 1 {
				return true, errKilled
			}
			return false, nil
		}}
		f := p.factory()
		f.New = func() transports.Transport {
			return memory.New(transports.Pipe, func(ctx context.Context, c *memory.Conn) error {
				err := p.serve(ctx, c)
				if errors.Is(err, errKilled) {
					time.Sleep(2 * time.Second)
				}
				return err
			})
		}
		c := connectTo(t, f, d.of(client.Config{WaitForReady: true}))
		began := time.Now()
		if got := tool(t.Context(), c); got != "outcome unknown: killed by the test" || time.Since(began) != 2*time.Second {
			t.Errorf("the first call: %s, after %s", got, time.Since(began))
		}
		if got := tool(t.Context(), c); got != "generation 2" {
			t.Errorf("the second call: %s", got)
		}
		pass(3 * time.Second)
		if got := tool(t.Context(), c); got != "generation 2" {
			t.Errorf("the third call: %s", got)
		}
		if diff := cmp.Diff([]string{"1 ended: killed by the test; the next in 100ms", "2 serves"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB028_ARecoveryThatEndsAfterCloseTearsDownWhatItBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if l.gen == 2 { // whatever it is told, it answers half a second later
				time.Sleep(500 * time.Millisecond)
				l.answer(m)
			}
			return l.gen == 2, nil
		}}
		c := connect(t, p, client.Config{WaitForReady: true, Budget: policy.Unlimited()})
		p.kill()
		synctest.Wait()
		said := start(func() string { return tool(t.Context(), c) })
		pass(100 * time.Millisecond)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got, want := <-said, "not executed: client: closed"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		began := time.Now()
		if err := c.Close(t.Context()); err != nil || !time.Now().Equal(began) {
			t.Errorf("the second Close: %v, after %s", err, time.Since(began))
		}
		pass(time.Hour)
		if diff := cmp.Diff([]string{"1 server/discover", "2 server/discover"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB052_AServerThatExitsAfterEachCallIsRestartedWithinItsBudget(t *testing.T) {
	for how, end := range map[string]error{"exit code 1": errors.New("exit status 1"), "a signal": errors.New("signal: killed"), "exit code 0": errExit0} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: on("tools/list", func(l *life, m message) error {
					l.result(m, `{"tools":[]}`)
					return end
				})}
				var causes []string
				c := connect(t, p, client.Config{WaitForReady: true, OnEnd: func(e client.Ended) { causes = append(causes, fmt.Sprint(e.Cause)) }})
				list := func() string { return words(c.Call(t.Context(), "tools/list", nil, nil)) }
				// A call a minute: the window of the first death is over before the fourth.
				for range 10 {
					if got := list(); got != "ok" {
						t.Error(got)
					}
					pass(time.Minute)
				}
				if c.State() != fsm.Serving || p.spawned() != 11 {
					t.Errorf("it is %s after %d incarnations", c.State(), p.spawned())
				}
				// As fast as they are answered: three more are granted.
				for range 3 {
					if got := list(); got != "ok" {
						t.Error(got)
					}
				}
				if got := list(); got != "ok" || p.spawned() != 14 {
					t.Errorf("%s after %d incarnations", got, p.spawned())
				}
				if got, want := list(), "not executed: exhausted after 13 restarts"; got != want {
					t.Errorf("%s, want %s", got, want)
				}
				synctest.Wait()
				want := end.Error()
				if end == errExit0 {
					want = "the server ended without saying why"
				}
				for _, cause := range causes {
					if cause != want {
						t.Errorf("a cause is %q", cause)
					}
				}
			})
		})
	}
}

func TestB055_ABudgetRefillsWithTimeAndParkTriesAgainOnUse(t *testing.T) {
	t.Run("one crash a day", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{}
			c := connect(t, p, client.Config{})
			for day := 1; day <= 30; day++ {
				p.kill()
				pass(24 * time.Hour)
				if want, got := fmt.Sprintf("generation %d", day+1), tool(t.Context(), c); got != want {
					t.Errorf("day %d: %s", day, got)
				}
			}
		})
	})
	t.Run("broken for ten minutes, parked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			budget, err := policy.Park(policy.Contract(), 5*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			broken := true
			p := &peer{on: func(l *life, m message) (bool, error) {
				if l.gen > 1 && broken {
					return true, errBadStart
				}
				return false, nil
			}}
			c := connect(t, p, client.Config{Budget: budget})
			parked := time.Now().Add(300 * time.Millisecond)
			p.kill()
			pass(time.Second)
			if got := p.spawned(); got != 4 { // the budget's three restarts
				t.Fatalf("%d incarnations", got)
			}
			down := new(client.NotServingError)
			if err := c.Ping(t.Context()); !errors.As(err, &down) || !down.RetryAt.Equal(parked.Add(5*time.Minute)) {
				t.Errorf("a call before the interval is over: %v, and again at %s", err, down.RetryAt)
			}
			pass(time.Hour)
			if got := p.spawned(); got != 4 {
				t.Errorf("nobody asked, and there are %d incarnations", got)
			}
			broken = false
			if got := tool(t.Context(), c); got != "generation 5" {
				t.Errorf("a call once the interval is over: %s", got)
			}
		})
	})
}

func TestB056_ASuccessfulStartIsNoProofOfHealth(t *testing.T) {
	for _, tt := range []struct {
		what   string
		on     func(l *life, m message) (bool, error)
		uptime time.Duration
		want   int // incarnations in ten minutes
		state  fsm.State
	}{
		{"it dies while it starts", func(l *life, m message) (bool, error) {
			if l.gen > 1 {
				return true, errBadStart
			}
			return false, nil
		}, 20 * time.Second, 4, fsm.Exhausted},
		{"it serves and dies soon after", nil, time.Second, 4, fsm.Exhausted},
		// Slower than three a minute: restarted for as long as it lasts, and never faster than that.
		{"it serves for 20 s, every time", nil, 20 * time.Second, 30, fsm.Serving},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: tt.on}
				c := connect(t, p, client.Config{})
				end := time.Now().Add(10 * time.Minute)
				for time.Now().Before(end) && c.State() != fsm.Exhausted {
					pass(tt.uptime)
					if c.State() == fsm.Serving {
						p.kill()
					}
					pass(100 * time.Millisecond)
					for range 10 { // whatever happens, asking costs nothing
						before := time.Now()
						c.State()
						c.IsReconnecting()
						if !time.Now().Equal(before) {
							t.Error("asking for the state took time")
						}
					}
				}
				synctest.Wait()
				if got := p.spawned(); got != tt.want && got != tt.want+1 || c.State() != tt.state {
					t.Errorf("%d incarnations, and it is %s", got, c.State())
				}
			})
		})
	}
}

// deaf makes generation 1 read one call and nothing after it.
func deaf(l *life, m message) (bool, error) {
	if m.Method != "tools/call" || l.gen > 1 {
		return false, nil
	}
	<-l.ctx.Done()
	return true, context.Cause(l.ctx)
}

func TestB065_AServerThatStopsReadingCostsEachCallItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := &peer{on: deaf}, &diary{}
		c := connect(t, p, d.of(client.Config{}))
		call := func(after time.Duration) string {
			began := time.Now()
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Params: map[string]string{"a": strings.Repeat("x", 1<<20)}, RequestTimeout: after})
			return fmt.Sprintf("%s, after %s", words(err), time.Since(began))
		}
		first := start(func() string { return call(2 * time.Second) })
		synctest.Wait()
		second := start(func() string { return call(3 * time.Second) })
		if got := <-first; got != "outcome unknown: client: request: nothing heard for 2s, after 2s" {
			t.Errorf("the call that was read: %s", got)
		}
		if got := <-second; got != "not executed: client: request: nothing heard for 3s, after 3s" {
			t.Errorf("the call that was not: %s", got)
		}
		began := time.Now()
		if err := c.Close(t.Context()); err != nil || !time.Now().Equal(began) {
			t.Errorf("Close: %v, after %s", err, time.Since(began))
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"1 ended: client: closed"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB080_CancellingACallTellsTheServerAndEndsNothingElse(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var held []message
			p, d := &peer{legacy: legacy, on: hold(1, &held)}, &diary{}
			connecting, connected := context.WithCancel(t.Context())
			cfg := d.of(client.Config{Logger: quiet()})
			c, err := client.Connect(connecting, p.factory(), &cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			ctx, cancel := context.WithCancel(t.Context())
			first := start(func() string { return tool(ctx, c) })
			synctest.Wait()
			second := start(func() string { return tool(t.Context(), c) })
			synctest.Wait()
			cancel()
			if got := <-first; got != "outcome unknown: context canceled" {
				t.Errorf("the cancelled call: %s", got)
			}
			connected()
			synctest.Wait()
			p.last().answer(held[0]) // too late
			p.last().answer(held[1])
			if got := <-second; got != "generation 1" {
				t.Errorf("the other call: %s", got)
			}
			told := p.got("notifications/cancelled")
			if len(told) != 1 || string(told[0].Params) != fmt.Sprintf(`{"requestId":%s,"reason":"the caller gave up"}`, held[0].ID) {
				t.Errorf("the server was told %v", told)
			}
			if got := d.read(); got != nil || c.State() != fsm.Serving {
				t.Errorf("it is %s, and told %q", c.State(), got)
			}
		})
	}
}

func TestB081_AStartHasABoundOfItsOwn(t *testing.T) {
	t.Run("a slow installer fits into the default", func(t *testing.T) {
		for _, legacy := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				slow := true
				p := &peer{legacy: legacy, on: func(*life, message) (bool, error) {
					if slow {
						slow = false
						time.Sleep(100 * time.Second)
					}
					return false, nil
				}}
				c := connect(t, p, client.Config{RequestTimeout: time.Second})
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
			})
		}
	})
	t.Run("a replacement that is too slow is one death, and the error says start-up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			p := &peer{on: func(l *life, m message) (bool, error) { return l.gen == 2, nil }}
			c := connect(t, p, d.of(client.Config{StartTimeout: 30 * time.Second, WaitForReady: true}))
			p.kill()
			synctest.Wait()
			began := time.Now()
			if got := tool(t.Context(), c); got != "generation 3" || time.Since(began) != 30*time.Second+200*time.Millisecond {
				t.Errorf("%s, after %s", got, time.Since(began))
			}
			synctest.Wait()
			want := []string{
				"1 ended: killed by the test; the next in 100ms",
				"2 ended: client: start-up: not over after 30s; the next in 100ms", "3 serves",
			}
			if diff := cmp.Diff(want, d.read()); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestB083_EveryAnswerToTheEraProbeEndsInAConnection(t *testing.T) {
	refuses := func(code int) func(*life, message) error {
		return func(l *life, m message) error { l.fail(m, code, "no"); return nil }
	}
	says := func(line string) func(*life, message) error {
		return func(l *life, m message) error {
			l.Write(0, strings.ReplaceAll(line, "ID", string(m.ID)))
			return nil
		}
	}
	hangs := func(*life, message) error { return nil }
	for _, tt := range []struct {
		what    string
		probe   func(*life, message) error // nil: as its era does
		legacy  bool
		spawns  int
		took    time.Duration
		version string
	}{
		{"it exits", dies, true, 2, 0, "2025-11-25"},
		{"method not found", refuses(-32601), true, 1, 0, "2025-11-25"},
		{"invalid params", refuses(-32602), true, 1, 0, "2025-11-25"},
		{"a server error", refuses(-32000), true, 1, 0, "2025-11-25"},
		{"code 0", refuses(0), true, 1, 0, "2025-11-25"},
		{"silence", hangs, true, 1, 2 * time.Second, "2025-11-25"},
		{"a parse error without an id", says(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`), true, 1, 2 * time.Second, "2025-11-25"},
		{"an empty result", says(`{"jsonrpc":"2.0","id":ID,"result":{}}`), true, 1, 0, "2025-11-25"},
		{"a result of another kind", says(`{"jsonrpc":"2.0","id":ID,"result":"pong"}`), true, 1, 0, "2025-11-25"},
		{"versions that are legacy", says(`{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-06-18"],"capabilities":{}}}`), true, 1, 0, "2025-11-25"},
		{
			"a modern error that names a legacy version",
			says(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"m","data":{"supported":["2099-01-01","2025-06-18"]}}}`), true, 1, 0, "2025-11-25",
		},
		{"an answer", nil, false, 1, 0, "2026-07-28"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, b := &diary{}, &countingBudget{Budget: policy.Contract()}
				p := &peer{legacy: tt.legacy}
				if tt.probe != nil {
					p.on = on("server/discover", tt.probe)
				}
				began := time.Now()
				c := connect(t, p, d.of(client.Config{ProbeTimeout: 2 * time.Second, Budget: b}))
				if took := time.Since(began); took != tt.took || p.spawned() != tt.spawns || b.asked != 0 {
					t.Errorf("connected after %s and %d incarnations, the budget was asked %d times", took, p.spawned(), b.asked)
				}
				if got := c.Server().Version; got != tt.version {
					t.Errorf("the version is %s", got)
				}
				p.kill()
				pass(100 * time.Millisecond)
				if want, got := fmt.Sprintf("generation %d", tt.spawns+1), tool(t.Context(), c); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if probes := len(p.got("server/discover")); tt.legacy && probes != 1 {
					t.Errorf("%d probes", probes)
				}
			})
		})
	}
}
