package client_test

import (
	"context"
	"encoding/json"
	"errors"
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

func TestS35_TheDeadlineIsTheOriginalOne(t *testing.T) {
	idle := client.TimeoutError{What: "request", After: 3 * time.Second, Idle: true}
	ceiling := client.TimeoutError{What: "request", After: 3 * time.Second}
	for _, tt := range []struct {
		name   string
		gens   int // incarnations that swallow it
		kills  []time.Duration
		delay  time.Duration // from a death to its replacement
		ctx    time.Duration
		r      client.Request
		want   string
		sent   int
		ending time.Duration
	}{
		{
			"it runs through a death", 2,
			[]time.Duration{2 * time.Second},
			100 * time.Millisecond, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"outcome unknown: " + idle.Error(), 2, 3 * time.Second,
		},
		{
			"it ends in the delay", 2,
			[]time.Duration{2 * time.Second},
			5 * time.Second, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"outcome unknown: " + idle.Error(), 1, 3 * time.Second,
		},
		{
			"the ceiling too", 3,
			[]time.Duration{time.Second, time.Second},
			400 * time.Millisecond, 0,
			client.Request{RequestTimeout: -1, MaxRequestTimeout: 3 * time.Second},
			"outcome unknown: " + ceiling.Error(), 3, 3 * time.Second,
		},
		{
			"and the caller's own", 2,
			[]time.Duration{2 * time.Second},
			5 * time.Second, 4 * time.Second,
			client.Request{},
			"outcome unknown: context deadline exceeded", 1, 4 * time.Second,
		},
		{
			"an answer just in time is one", 1,
			[]time.Duration{2 * time.Second},
			time.Second - 1, 0,
			client.Request{RequestTimeout: 3 * time.Second},
			"answered by 2", 2, 3*time.Second - 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("resources/read", tt.gens)
				c := connect(t, p, client.Config{RetryLost: true, Budget: constant(t, tt.delay)})
				ctx := t.Context()
				if tt.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.ctx)
					defer cancel()
				}
				begun := time.Now()
				tt.r.Method, tt.r.Params = "resources/read", mine
				var ended time.Duration
				said := start(func() string {
					defer func() { ended = time.Since(begun) }()
					return generation(ctx, c, tt.r)
				})
				for _, after := range tt.kills {
					pass(after)
					p.kill()
					pass(tt.delay)
				}
				if got := <-said; got != tt.want || ended != tt.ending {
					t.Errorf("after %s: %s; want after %s: %s", ended, got, tt.ending, tt.want)
				}
				pass(time.Minute)
				if n := len(calls(p, "resources/read")); n != tt.sent {
					t.Errorf("it was sent %d times, want %d", n, tt.sent)
				}
			})
		})
	}
}

func TestS35_WhatTimedOutInTheGapIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 1)
		c := connect(t, p, client.Config{RetryLost: true, Budget: constant(t, 5*time.Second), MaxHeld: 1})
		read := func() <-chan string {
			return start(func() string {
				return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine, RequestTimeout: time.Second})
			})
		}
		said := read()
		synctest.Wait()
		lost := calls(p, "resources/read")[0]
		p.kill()
		if got := <-said; !strings.HasPrefix(got, "outcome unknown: client: request: nothing heard") {
			t.Error(got)
		}
		// Its slot is free: MaxHeld is 1, and one more may wait.
		said = start(func() string {
			return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine, Wait: client.WaitReady})
		})
		pass(5 * time.Second)
		if got := <-said; got != "answered by 2" {
			t.Errorf("a call that waited in its place: %s", got)
		}
		p.last().result(lost, `{"contents":[]}`)
		synctest.Wait()
		if got := c.Stats().UnknownIDs; got != 1 {
			t.Errorf("%d late answers were dropped", got)
		}
		for _, m := range p.messages() {
			if m.Method == "notifications/cancelled" {
				t.Errorf("generation %d was told to cancel what it never had: %s", m.Gen, m.Params)
			}
		}
	})
}

func TestS36_AReplacementThatFailsToStartKeepsWhatIsRetained(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget int
		want   string
		sent   []int // to which generations
	}{
		{"the next one gets it", 4, "answered by 5", []int{1, 5}},
		{"none coming, it fails with that error", 3, "outcome unknown: exhausted after 3 restarts", []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := swallowing("resources/read", 1)
				inner := p.on
				p.on = func(l *life, m message) (bool, error) {
					switch l.gen {
					case 2, 3:
						return true, errKilled
					case 4: // this one fails by an answer
						l.fail(m, -32021, "not today")
						return true, nil
					}
					return inner(l, m)
				}
				c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, tt.budget)})
				said := start(func() string {
					return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine})
				})
				synctest.Wait()
				p.kill()
				pass(time.Second)
				if got := <-said; got != tt.want {
					t.Errorf("it was %s, want %s", got, tt.want)
				}
				var sent []int
				for _, m := range calls(p, "resources/read") {
					sent = append(sent, m.Gen)
				}
				if diff := cmp.Diff(tt.sent, sent); diff != "" {
					t.Errorf("sent to: %s", diff)
				}
			})
		})
	}
}

// A replacement that dies as soon as it serves, before it took the request: that
// ending says nothing about the request, which another has already had.
func TestS36_AReplacementThatDiesBeforeItTookARequestKeepsIt(t *testing.T) {
	for gens := 1; gens <= 3; gens++ {
		synctest.Test(t, func(t *testing.T) {
			p := swallowing("resources/read", 1)
			inner := p.on
			p.on = func(l *life, m message) (bool, error) {
				if l.gen > 1 && l.gen <= 1+gens {
					l.answer(m)
					return true, errKilled // in the very moment in which it serves
				}
				return inner(l, m)
			}
			c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, 10)})
			said := start(func() string {
				return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine})
			})
			synctest.Wait()
			p.kill()
			pass(time.Minute)
			if got, want := <-said, fmt.Sprintf("answered by %d", gens+2); got != want {
				t.Errorf("it was %s, want %s", got, want)
			}
		})
	}
}

// What is retained counts among what waits, and beyond the bound a lost request is
// refused as one that the server may have run.
func TestS36_WhatIsRetainedIsBounded(t *testing.T) {
	for _, cfg := range []client.Config{{MaxHeld: 2}, {MaxHeldBytes: 900}} {
		synctest.Test(t, func(t *testing.T) {
			p := swallowing("resources/read", 1)
			cfg.RetryLost, cfg.WaitForReady = true, true
			c := connect(t, p, cfg)
			params, err := json.Marshal(map[string]any{"mine": 1, "pad": strings.Repeat("x", 100)})
			if err != nil {
				t.Fatal(err)
			}
			var said []<-chan string
			for range 3 {
				said = append(said, start(func() string {
					return generation(t.Context(), c, client.Request{Method: "resources/read", Params: json.RawMessage(params)})
				}))
				synctest.Wait()
			}
			p.kill()
			synctest.Wait()
			if got := generation(t.Context(), c, client.Request{Method: "tools/call", Params: json.RawMessage(params)}); got != "not executed: nobody serves" {
				t.Errorf("one more that would wait: %s", got)
			}
			want := []string{"answered by 2", "answered by 2", "outcome unknown: nobody serves"}
			for i, s := range said {
				if got := <-s; got != want[i] {
					t.Errorf("read %d: %s, want %s", i+1, got, want[i])
				}
			}
		})
	}
}

func TestS37_ARequestFirstMadeWhileNobodyServesIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 0)
		c := connect(t, p, client.Config{RetryLost: true, Budget: tumbling(t, 1)})
		p.kill()
		synctest.Wait()
		read := client.Request{Method: "resources/read", Params: mine}
		if got := generation(t.Context(), c, read); got != "not executed: nobody serves" {
			t.Errorf("without WaitForReady: %s", got)
		}
		read.Wait = client.WaitReady
		said := start(func() string { return generation(t.Context(), c, read) })
		pass(100 * time.Millisecond)
		if got := <-said; got != "answered by 2" {
			t.Errorf("with it: %s", got)
		}
		p.kill()
		synctest.Wait()
		if got := generation(t.Context(), c, read); got != "not executed: exhausted after 1 restarts" {
			t.Errorf("after the end: %s", got)
		}
	})
}

func TestS39_AfterARetryTheProgressOfTheNewRunIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "resources/read" {
				return false, nil
			}
			for n := range 4 - l.gen { // the new run has less to say
				l.progress(m, n+1)
			}
			if l.gen == 2 {
				l.result(m, `{"contents":[]}`)
			}
			return true, nil
		}}
		c := connect(t, p, client.Config{RetryLost: true})
		var heard []float64
		said := start(func() string {
			return generation(t.Context(), c, client.Request{
				Method: "resources/read", Params: mine,
				Progress: func(p client.Progress) { heard = append(heard, p.Progress) },
			})
		})
		synctest.Wait()
		p.kill()
		if got := <-said; got != "answered by 2" {
			t.Error(got)
		}
		if diff := cmp.Diff([]float64{1, 2, 3, 1, 2}, heard); diff != "" {
			t.Error(diff)
		}
	})
}

// A tool that has committed runs once, whatever its annotations say, and the next
// call works.
func TestB046_AToolThatCommittedRunsOnceAndTheConnectionRecovers(t *testing.T) {
	for _, cfg := range []client.Config{{}, {RetryLost: true}, {RetryLost: true, WaitForReady: true}} {
		synctest.Test(t, func(t *testing.T) {
			ledger := 0
			p := &peer{on: func(l *life, m message) (bool, error) {
				if m.Method == "tools/call" && l.gen == 1 {
					ledger++
					return true, errKilled
				}
				return false, nil
			}}
			c := connect(t, p, cfg)
			if got := tool(t.Context(), c); got != "outcome unknown: killed by the test" {
				t.Error(got)
			}
			pass(100 * time.Millisecond)
			if got := tool(t.Context(), c); got != "generation 2" {
				t.Errorf("the next call: %s", got)
			}
			if ledger != 1 {
				t.Errorf("it ran %d times", ledger)
			}
		})
	}
}

// On a pipe a death says nothing about half a run, so no hint of the server's
// makes it run again; and an answer that is an error is an answer.
func TestB045_NoHintMakesAToolRunAgainAfterADeath(t *testing.T) {
	hints := map[string]string{
		"readOnly": `{"readOnlyHint":true}`, "idempotent": `{"readOnlyHint":false,"idempotentHint":true}`,
		"contradiction": `{"readOnlyHint":true,"destructiveHint":true}`, "none": `{}`,
	}
	for _, distrust := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			runs := map[string]int{}
			p := &peer{}
			p.on = func(l *life, m message) (bool, error) {
				var call struct{ Name string }
				_ = json.Unmarshal(m.Params, &call)
				switch {
				case m.Method == "tools/list":
					var tools []string
					for name, hint := range hints {
						tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":%s}`, name, hint))
					}
					l.result(m, `{"tools":[%s]}`, strings.Join(tools, ","))
				case m.Method == "tools/call" && call.Name == "isError":
					runs[call.Name]++
					l.result(m, `{"isError":true,"content":[]}`)
				case m.Method == "tools/call" && call.Name == "-32602":
					runs[call.Name]++
					l.fail(m, -32602, "no")
				case m.Method == "tools/call":
					if runs[call.Name]++; runs[call.Name] == 1 {
						return true, errKilled
					}
				default:
					return false, nil
				}
				return true, nil
			}
			c := connect(t, p, client.Config{RetryLost: true, DistrustAnnotations: distrust, Budget: tumbling(t, 10)})
			want := map[string]string{"isError": "ok", "-32602": "the peer says -32602"}
			for name := range hints {
				want[name] = "outcome unknown: killed by the test"
			}
			got, once := map[string]string{}, map[string]int{}
			for name := range want {
				if _, err := c.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
				got[name], once[name] = words(err), 1
				pass(100 * time.Millisecond)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(once, runs); diff != "" {
				t.Errorf("runs: %s", diff)
			}
			if p.spawned() != 1+len(hints) {
				t.Errorf("%d servers were started for %d deaths", p.spawned(), len(hints))
			}
		})
	}
}

// What a proxy on this library needs to know of a call that failed.
func TestB048_ALocalErrorIsNoPeersAndSaysWhetherARetryIsSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("tools/call", 1)
		c := connect(t, p, client.Config{})
		var lost error
		said := start(func() string {
			_, lost = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			return words(lost)
		})
		synctest.Wait()
		p.kill()
		<-said
		refused := c.Call(t.Context(), "tools/call", nil, nil)
		for _, tt := range []struct {
			name string
			err  error
			want client.Outcome
		}{
			{"in flight at a death", lost, client.OutcomeUnknown},
			{"made while nobody serves", refused, client.NotExecuted},
		} {
			if peer := new(client.PeerError); errors.As(tt.err, &peer) {
				t.Errorf("%s: it looks like the peer's own: %v", tt.name, tt.err)
			}
			if local := new(client.LostError); !errors.As(tt.err, &local) {
				t.Errorf("%s: it is not a *LostError: %v", tt.name, tt.err)
			}
			if got := client.OutcomeOf(fmt.Errorf("proxy: %w", tt.err)); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		}
	})
}

func TestB049_ATimeoutCancelsAndIsNeverRetried(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var slow message
			p := &peer{legacy: legacy, on: func(_ *life, m message) (bool, error) {
				if m.Method == "resources/read" {
					slow = m
					return true, nil
				}
				return false, nil
			}}
			c := connect(t, p, client.Config{RetryLost: true, RequestTimeout: time.Second})
			_, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x"})
			if want := (&client.TimeoutError{What: "request", After: time.Second, Idle: true}).Error(); words(err) != "outcome unknown: "+want {
				t.Error(err)
			}
			synctest.Wait()
			var cancelled []string
			for _, m := range p.got("notifications/cancelled") {
				cancelled = append(cancelled, string(m.Params))
			}
			if diff := cmp.Diff([]string{fmt.Sprintf(`{"requestId":%s,"reason":"timed out"}`, slow.ID)}, cancelled); diff != "" {
				t.Error(diff)
			}
			p.last().result(slow, `{"contents":[]}`) // too late
			synctest.Wait()
			if got := c.Stats(); got != (client.Stats{UnknownIDs: 1}) {
				t.Errorf("counted: %+v", got)
			}
			if n := len(p.got("resources/read")); n != 1 || p.spawned() != 1 {
				t.Errorf("it was sent %d times, to %d servers", n, p.spawned())
			}
		})
	}
}

func TestB049_AnInitializeThatTimesOutIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true, on: func(*life, message) (bool, error) { return true, nil }}
		_, err := client.Connect(t.Context(), p.factory(), &client.Config{
			ProbeTimeout: time.Second, StartTimeout: 3 * time.Second, Logger: quiet(),
		})
		timeout := new(client.TimeoutError)
		if !errors.As(err, &timeout) || *timeout != (client.TimeoutError{What: "start-up", After: 3 * time.Second}) {
			t.Errorf("Connect failed with %v", err)
		}
		if diff := cmp.Diff([]string{"1 server/discover", "1 initialize"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
}
