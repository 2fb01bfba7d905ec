package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
)

// hold keeps tools/call of generation gen unanswered, for the test to answer.
func hold(gen int, held *[]message) func(*life, message) (bool, error) {
	return func(l *life, m message) (bool, error) {
		if m.Method == "tools/call" && l.gen == gen {
			*held = append(*held, m)
			return true, nil
		}
		return false, nil
	}
}

func TestS30_ADeathFailsAtOnceWhatIsNotKept(t *testing.T) {
	for _, tt := range []struct {
		wait    bool
		written string
		queued  string
		notify  string
	}{
		{false, "outcome unknown: killed by the test", "not executed: killed by the test", "not executed: killed by the test"},
		{true, "outcome unknown: killed by the test", "generation 2", "ok"},
	} {
		t.Run(fmt.Sprintf("wait for ready %t", tt.wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "tools/call" && l.gen == 1 {
						<-l.ctx.Done()
						return true, context.Cause(l.ctx)
					}
					return false, nil
				}}
				c := connect(t, p, client.Config{WaitForReady: tt.wait})
				written := start(func() string { return tool(t.Context(), c) })
				synctest.Wait()
				queued := start(func() string { return tool(t.Context(), c) })
				notify := start(func() string { return words(c.Notify(t.Context(), "notifications/x", nil)) })
				synctest.Wait()
				began := time.Now()
				p.kill()
				if got := <-written; got != tt.written || !time.Now().Equal(began) {
					t.Errorf("the call that was written: %s, after %s", got, time.Since(began))
				}
				if got := <-queued; got != tt.queued {
					t.Errorf("the call that was queued: %s, want %s", got, tt.queued)
				}
				if got := <-notify; got != tt.notify {
					t.Errorf("the notification that was queued: %s, want %s", got, tt.notify)
				}
				if !tt.wait && !time.Now().Equal(began) {
					t.Errorf("they ended only after %s", time.Since(began))
				}
			})
		})
	}
}

// A read that ran on the server that died is sent again, and the second attempt
// ends before anything of it is written: it may have run all the same.
func TestS30_TheOutcomeIsThatOfAllAttempts(t *testing.T) {
	for _, tt := range []struct {
		what string
		end  func(p *peer, cancel func())
		want string
	}{
		{"it times out", func(*peer, func()) {}, "outcome unknown: client: request: nothing heard for 10s"},
		{"its caller gives up", func(_ *peer, cancel func()) { cancel() }, "outcome unknown: context canceled"},
		{"no third server follows", func(p *peer, _ func()) { p.kill() }, "outcome unknown: exhausted after 1 restarts"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					switch {
					case m.Method == "resources/read":
						return true, errKilled
					case l.gen == 2:
						l.answer(m) // to the opening exchange, and reads nothing more
						<-l.ctx.Done()
						return true, context.Cause(l.ctx)
					}
					return false, nil
				}}
				c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, 1)})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				said := start(func() string {
					_, err := c.Do(ctx, client.Request{Method: "resources/read", RequestTimeout: 10 * time.Second})
					return words(err)
				})
				pass(time.Second)
				tt.end(p, cancel)
				if got := <-said; got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if got := len(p.got("resources/read")); got != 1 {
					t.Errorf("it was read %d times", got)
				}
			})
		})
	}
}

// abyss is deep enough to overflow the stack of whoever recurses into it, which
// ends the program.
var abyss = strings.Repeat("[", 2<<20) + strings.Repeat("]", 2<<20)

func TestS31_ACallThatCantBeSentFreesItsSlot(t *testing.T) {
	for _, tt := range []struct {
		what string
		call func(ctx context.Context, c *client.Client) error
		want string
	}{
		{"params that are no object", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "tools/call", []int{1}, nil)
		}, "client: tools/call: params must be a JSON object"},
		{"params that are no JSON", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "tools/call", json.RawMessage(`{"a":`), nil)
		}, "client: tools/call: params are not valid JSON"},
		{"arguments that are no JSON", func(ctx context.Context, c *client.Client) error {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "x", Arguments: json.RawMessage(`{"a":`)})
			return err
		}, "client: tools/call: params are not valid JSON"},
		{"params that nest too deeply", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "tools/call", json.RawMessage(`{"a":`+abyss+`}`), nil)
		}, "client: tools/call: params are nested too deeply"},
		{"arguments that nest too deeply", func(ctx context.Context, c *client.Client) error {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "x", Arguments: json.RawMessage(`{"a":` + abyss + `}`)})
			return err
		}, "client: tools/call: params are nested too deeply"},
		{"no method", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "", nil, nil)
		}, "client: : a request needs a method"},
		{"no method of a notification", func(ctx context.Context, c *client.Client) error {
			return c.Notify(ctx, "", nil)
		}, "client: : a request needs a method"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{}
				c := connect(t, p, client.Config{})
				err := tt.call(t.Context(), c)
				if err == nil || err.Error() != tt.want || client.OutcomeOf(err) != client.NotExecuted {
					t.Errorf("%v, %s", err, client.OutcomeOf(err))
				}
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
				began := time.Now()
				if err := c.Close(t.Context()); err != nil || !time.Now().Equal(began) {
					t.Errorf("Close waited %s for a call that was never sent: %v", time.Since(began), err)
				}
				if diff := cmp.Diff([]string{"1 server/discover", "1 tools/call"}, p.received()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestS31_IdsOfTheServerThatLookAlikeAreTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := make(chan string), map[string]chan string{}
		for _, text := range []string{"number", "string"} {
			answer[text] = make(chan string)
		}
		var replies []string
		p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
			if m.Method == "" {
				replies = append(replies, string(m.ID)+" "+string(m.Result)+string(m.Error))
			}
			return false, nil
		}}
		connect(t, p, client.Config{Elicit: func(ctx context.Context, e *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			asked <- e.Message
			select {
			case action := <-answer[e.Message]:
				return &mcp.ElicitResult{Action: action}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		ask := func(id, text string) {
			p.last().Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":%q}}`, id, text))
		}
		ask(`7`, "number")
		ask(`"7"`, "string")
		got := []string{<-asked, <-asked}
		if got[0] == got[1] {
			t.Errorf("asked %q", got)
		}
		ask(`7`, "a live id again") // would end the first, whatever it is answered
		p.last().Write(0, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}`)
		synctest.Wait()
		answer["number"] <- "accept"
		synctest.Wait()
		ask(`7`, "number") // free again
		<-asked
		answer["number"] <- "decline"
		synctest.Wait()
		want := []string{`7 {"action":"accept"}`, `7 {"action":"decline"}`}
		if diff := cmp.Diff(want, replies); diff != "" {
			t.Error(diff)
		}
	})
}

func TestS32_AFailureThatConcernsOneRequestEndsThatRequestAlone(t *testing.T) {
	for _, tt := range []struct {
		what string
		call func(ctx context.Context, c *client.Client) error
		want string
	}{
		{"a timeout", func(ctx context.Context, c *client.Client) error {
			_, err := c.Do(ctx, client.Request{Method: "hang", RequestTimeout: time.Second})
			return err
		}, "outcome unknown: client: request: nothing heard for 1s"},
		{"its caller gives up", func(ctx context.Context, c *client.Client) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Call(ctx, "hang", nil, nil)
		}, "outcome unknown: context deadline exceeded"},
		{"its caller gave up before", func(ctx context.Context, c *client.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return c.Call(ctx, "hang", nil, nil)
		}, "not executed: context canceled"},
		{"the peer refuses it", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "unknown", nil, nil)
		}, "the peer says -32601"},
		{"the answer is not what was promised", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "tools/list", nil, new(int))
		}, "neither lost nor answered: client: the answer to tools/list can't be decoded: json: cannot unmarshal \"{\\\"tools\\\":[]}\" into Go value of type int"},
		{"params that can't be sent", func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "hang", 1, nil)
		}, "neither lost nor answered: client: hang: params must be a JSON object"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held []message
				p, d := &peer{}, &diary{}
				p.on = func(l *life, m message) (bool, error) {
					switch m.Method {
					case "hang":
						return true, nil
					case "tools/list":
						l.result(m, `{"tools":[]}`)
						return true, nil
					}
					return hold(1, &held)(l, m)
				}
				c := connect(t, p, d.of(client.Config{}))
				other := start(func() string { return tool(t.Context(), c) })
				synctest.Wait()
				if got := words(tt.call(t.Context(), c)); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				pass(time.Second)
				p.last().answer(held[0])
				if got := <-other; got != "generation 1" {
					t.Errorf("the other call: %s", got)
				}
				if got := d.read(); got != nil {
					t.Error(got)
				}
			})
		})
	}
}

func TestS38_IdleTimeoutAndCeiling(t *testing.T) {
	type bounds struct{ idle, ceiling time.Duration }
	for _, tt := range []struct {
		what     string
		cfg      bounds
		own      bounds
		progress time.Duration // between two reports; 0: none
		want     string
		after    time.Duration
	}{
		{what: "silence", want: "nothing heard for 1m0s", after: 60 * time.Second},
		{what: "progress for ever", progress: 59 * time.Second, want: "not over after 10m0s", after: 600 * time.Second},
		{what: "progress that comes too late", progress: 61 * time.Second, want: "nothing heard for 1m0s", after: 60 * time.Second},
		{what: "an idle timeout above the ceiling", cfg: bounds{idle: 900 * time.Second}, want: "nothing heard for 15m0s", after: 900 * time.Second},
		{what: "a ceiling below the idle timeout", cfg: bounds{ceiling: time.Second}, want: "nothing heard for 1m0s", after: 60 * time.Second},
		{what: "no idle timeout", cfg: bounds{idle: -1}, want: "not over after 10m0s", after: 600 * time.Second},
		{what: "no ceiling", cfg: bounds{ceiling: -1}, want: "nothing heard for 1m0s", after: 60 * time.Second},
		{what: "its own", cfg: bounds{idle: 5 * time.Second}, own: bounds{idle: 2 * time.Second}, want: "nothing heard for 2s", after: 2 * time.Second},
		{
			what: "its own ceiling", own: bounds{2 * time.Second, 5 * time.Second}, progress: time.Second,
			want: "not over after 5s", after: 5 * time.Second,
		},
		{what: "its own idle timeout above the ceiling", own: bounds{idle: 900 * time.Second}, want: "nothing heard for 15m0s", after: 900 * time.Second},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{}
				stop := make(chan struct{})
				p.on = on("tools/call", func(l *life, m message) error {
					if tt.progress > 0 {
						go func() {
							for {
								select {
								case <-time.After(tt.progress):
									l.progress(m, 1)
								case <-stop:
									return
								}
							}
						}()
					}
					return nil
				})
				defer close(stop)
				c := connect(t, p, client.Config{RequestTimeout: tt.cfg.idle, MaxRequestTimeout: tt.cfg.ceiling})
				began := time.Now()
				_, err := c.Do(t.Context(), client.Request{
					Method: "tools/call", RequestTimeout: tt.own.idle, MaxRequestTimeout: tt.own.ceiling,
					Progress: func(client.Progress) {},
				})
				if got, want := words(err), "outcome unknown: client: request: "+tt.want; got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if timeout := new(client.TimeoutError); !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Errorf("%v is no timeout", err)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it took %s, want %s", took, tt.after)
				}
				synctest.Wait()
				if diff := cmp.Diff([]string{"1 server/discover", "1 tools/call", "1 notifications/cancelled"}, p.received()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestS38_TheClockOfACallRunsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		c := connect(t, p, client.Config{WaitForReady: true, RequestTimeout: 30 * time.Second, Budget: policy.Unlimited()})
		p.on = silent // no replacement serves
		p.kill()
		synctest.Wait()
		began := time.Now()
		if got, want := tool(t.Context(), c), "not executed: client: request: no server was ready for it within 30s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
