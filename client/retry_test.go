package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// swallowing returns a peer whose incarnations swallow a request of method until gen
// of them have, and answer it from then on with a result that names the
// incarnation and fits every type.
func swallowing(method string, gens int) *peer {
	return &peer{on: func(l *life, m message) (bool, error) {
		if m.Method != method || method == "server/discover" && !isCall(m) {
			return false, nil
		}
		if l.gen > gens {
			l.result(m, `{"generation":%d,"tools":[],"prompts":[],"resources":[],"resourceTemplates":[],"contents":[],"messages":[],"content":[],"completion":{"values":[]},"supportedVersions":["2026-07-28"]}`, l.gen)
		}
		return true, nil
	}}
}

// isCall tells a call that a test made from an opening exchange.
func isCall(m message) bool { return strings.Contains(string(m.Params), `"mine"`) }

var mine = json.RawMessage(`{"mine":true}`)

// generation makes a call and says which incarnation answered, or how it failed.
func generation(ctx context.Context, c *client.Client, r client.Request) string {
	resp, err := c.Do(ctx, r)
	if err != nil {
		return words(err)
	}
	return fmt.Sprintf("answered by %d", resp.Generation)
}

// readSet is what the contract calls so, written a second time.
var readSet = []string{
	"server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list",
	"resources/templates/list", "resources/read", "completion/complete",
}

func TestS33_LostRequestsAreNotSentAgainByDefault(t *testing.T) {
	for _, method := range append([]string{"tools/call", "vendor/read"}, readSet...) {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing(method, 1)
				c := connect(t, p, client.Config{WaitForReady: true})
				said := start(func() string { return generation(t.Context(), c, client.Request{Method: method, Params: mine}) })
				synctest.Wait()
				p.kill()
				if got := <-said; got != "outcome unknown: killed by the test" {
					t.Error(got)
				}
				pass(time.Minute)
				if n := len(calls(p, method)); n != 1 {
					t.Errorf("it was sent %d times", n)
				}
			})
		})
	}
}

// calls are the requests of a method that a test made.
func calls(p *peer, method string) (of []message) {
	for _, m := range p.got(method) {
		if isCall(m) {
			of = append(of, m)
		}
	}
	return of
}

func TestS33_RetryLostCoversExactlyTheReadSet(t *testing.T) {
	const again, lost = "answered by 2", "outcome unknown: killed by the test"
	type row struct{ method, params, want string }
	var rows []row
	for _, method := range readSet {
		rows = append(
			rows,
			row{method, `{"mine":true}`, again},
			row{method, `{"mine":true,"inputResponses":{}}`, lost},
			row{method, `{"mine":true,"inputResponses":null}`, lost},
			row{method, `{"mine":true,"requestState":"s"}`, lost},
			row{method, `{"mine":true,"requestState":""}`, lost},
			row{method, `{"mine":true,"_meta":{"requestState":"s"}}`, again},
		)
	}
	for _, method := range []string{
		"tools/call", "tools/list2", "Tools/list", "tools/list ", "vendor/list", "x/resources/read",
		"resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/get", "tasks/result", "initialize",
	} {
		rows = append(rows, row{method, `{"mine":true}`, lost})
	}
	for _, tt := range rows {
		t.Run(tt.method+tt.params, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing(tt.method, 1)
				c := connect(t, p, client.Config{RetryLost: true})
				said := start(func() string {
					return generation(t.Context(), c, client.Request{Method: tt.method, Params: json.RawMessage(tt.params)})
				})
				synctest.Wait()
				p.kill()
				if got := <-said; got != tt.want {
					t.Errorf("it was %s, want %s", got, tt.want)
				}
				pass(time.Minute)
				want := 1
				if tt.want == again {
					want = 2
				}
				if n := len(calls(p, tt.method)); n != want {
					t.Errorf("it was sent %d times, want %d", n, want)
				}
			})
		})
	}
}

func TestT8_TheGenericCallPassesTheSameRulesAsTheTypedOne(t *testing.T) {
	raw := func(ctx context.Context, c *client.Client, method string, params any) error {
		return c.Call(ctx, method, params, nil)
	}
	for _, tt := range []struct {
		method string
		typed  func(context.Context, *client.Client) error
		again  bool
	}{
		{"tools/call", func(ctx context.Context, c *client.Client) error {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
			return err
		}, false},
		{"tools/list", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListTools(ctx, nil)
			return err
		}, true},
		{"prompts/list", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListPrompts(ctx, nil)
			return err
		}, true},
		{"prompts/get", func(ctx context.Context, c *client.Client) error {
			_, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: "x"})
			return err
		}, true},
		{"resources/list", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListResources(ctx, nil)
			return err
		}, true},
		{"resources/templates/list", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListResourceTemplates(ctx, nil)
			return err
		}, true},
		{"resources/read", func(ctx context.Context, c *client.Client) error {
			_, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "x"})
			return err
		}, true},
		{"completion/complete", func(ctx context.Context, c *client.Client) error {
			_, err := c.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "x"}})
			return err
		}, true},
	} {
		t.Run(tt.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing(tt.method, 1)
				c := connect(t, p, client.Config{RetryLost: true})
				var said []<-chan string
				for _, f := range []func() error{
					func() error { return tt.typed(t.Context(), c) },
					func() error { return raw(t.Context(), c, tt.method, map[string]any{"name": "x", "uri": "x"}) },
				} {
					said = append(said, start(func() string { return words(f()) }))
				}
				synctest.Wait()
				p.kill()
				want, sent := "outcome unknown: killed by the test", 2
				if tt.again {
					want, sent = "ok", 4
				}
				for _, s := range said {
					if got := <-s; got != want {
						t.Errorf("%s, want %s", got, want)
					}
				}
				if n := len(p.got(tt.method)); n != sent {
					t.Errorf("two calls were sent %d times, want %d", n, sent)
				}
			})
		})
	}
}

func TestS34_ARetriedRequestIsTheSameRequest(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := swallowing("resources/read", 1)
			p.legacy = legacy
			c := connect(t, p, client.Config{RetryLost: true})
			var said []<-chan string
			for i := range 5 {
				r := client.Request{
					Method: "resources/read", Params: map[string]any{"mine": i, "uri": "<a&b>"},
					Header: http.Header{"X-Trace": {fmt.Sprint(i)}},
				}
				if i%2 == 1 {
					r.Progress = func(client.Progress) {}
				}
				said = append(said, start(func() string { return generation(t.Context(), c, r) }))
				synctest.Wait()
			}
			p.kill()
			for _, s := range said {
				if got := <-s; got != "answered by 2" {
					t.Error(got)
				}
			}
			all := p.got("resources/read")
			if len(all) != 10 {
				t.Fatalf("five requests were sent %d times", len(all))
			}
			first, second := all[:5], all[5:]
			for i := range second {
				second[i].Gen, second[i].Ref = 1, first[i].Ref // a new attempt at a new incarnation is all that differs
			}
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("sent again (-first +second):\n%s", diff)
			}
		})
	}
}

func TestS34_RetriedRequestsGoOutInTheirOrderBeforeStreamsAndNewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 1)
		c := connect(t, p, client.Config{RetryLost: true, WaitForReady: true})
		s, err := c.Listen(t.Context(), client.Filter{Tools: true}, func(client.Notification) {})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var said []<-chan string
		read := func(n int) {
			said = append(said, start(func() string {
				return generation(t.Context(), c, client.Request{Method: "resources/read", Params: map[string]int{"mine": n}})
			}))
			synctest.Wait()
		}
		read(1)
		read(2)
		read(3)
		p.kill()
		synctest.Wait()
		read(4) // never sent yet
		said = append(said, start(func() string { return tool(t.Context(), c) }))
		for i, s := range said {
			if got := <-s; got != "answered by 2" && got != "generation 2" {
				t.Errorf("call %d: %s", i+1, got)
			}
		}
		var got []string
		for _, m := range p.messages() {
			if m.Gen == 2 {
				var p struct{ Mine int }
				_ = json.Unmarshal(m.Params, &p)
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%s %d", m.Method, p.Mine), " 0"))
			}
		}
		want := []string{
			"server/discover", "resources/read 1", "resources/read 2", "resources/read 3",
			"subscriptions/listen", "resources/read 4", "tools/call",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
