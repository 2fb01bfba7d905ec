package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// replies lists what a peer was answered: generation, id, and the result or the
// error's code.
func replies(p *peer) (of []string) {
	for _, m := range p.messages() {
		if m.Method != "" {
			continue
		}
		what := string(m.Result)
		if len(m.Error) > 0 {
			var e struct{ Code int }
			_ = json.Unmarshal(m.Error, &e)
			what = fmt.Sprint(e.Code)
		}
		of = append(of, fmt.Sprintf("%d: %s %s", m.Gen, m.ID, what))
	}
	return of
}

// ask makes a request of the client.
func (l *life) ask(id, method, params string) {
	l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
}

const form = `{"message":"name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","default":"nobody"},"age":{"type":"integer","default":7},"x":{"type":"string"}}}}`

func TestHandlers_AnswerALegacyServer(t *testing.T) {
	elicit := func(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
		switch p.Message {
		case "name?":
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "gopher"}}, nil
		case "decline":
			return &mcp.ElicitResult{Action: "decline"}, nil
		case "fail":
			return nil, errors.New("no user is there")
		case "panic":
			panic("boo")
		}
		return nil, nil
	}
	all := client.Config{
		Elicit: elicit,
		CreateMessage: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: fmt.Sprint(p.MaxTokens)}}, nil
		},
		ListRoots: func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) {
			return &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///x"}}}, nil
		},
	}
	for _, tt := range []struct {
		cfg                client.Config
		id, method, params string
		want               string
	}{
		{all, "7", "elicitation/create", form, `7 {"action":"accept","content":{"age":7,"name":"gopher"}}`},
		{all, `"7"`, "elicitation/create", strings.Replace(form, "name?", "decline", 1), `"7" {"action":"decline"}`},
		{all, "0", "elicitation/create", `{"message":"fail"}`, "0 -32603"},
		{all, "1", "elicitation/create", `{"message":"panic"}`, "1 -32603"},
		{all, "2", "elicitation/create", `{"message":"nothing"}`, "2 -32603"},
		{all, "3", "elicitation/create", `{"message":3}`, "3 -32602"},
		{all, "4", "sampling/createMessage", `{"messages":[],"maxTokens":5}`, `4 {"content":{"type":"text","text":"5"},"model":"m","role":"assistant"}`},
		{all, "5", "roots/list", `{}`, `5 {"roots":[{"uri":"file:///x"}]}`},
		{all, "6", "roots/list", `null`, `6 {"roots":[{"uri":"file:///x"}]}`},
		{all, "8", "vendor/x", `{}`, "8 -32601"},
		{all, "9", "ping", `{}`, "9 {}"},
		{client.Config{}, "1", "elicitation/create", form, "1 -32601"},
		{client.Config{}, "2", "sampling/createMessage", `{}`, "2 -32601"},
		{client.Config{}, "3", "roots/list", `{}`, "3 -32601"},
		{client.Config{}, "4", "ping", `{}`, "4 {}"},
	} {
		t.Run(tt.method+tt.id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{legacy: true}
				connect(t, p, tt.cfg)
				p.last().ask(tt.id, tt.method, tt.params)
				synctest.Wait()
				if diff := cmp.Diff([]string{"1: " + tt.want}, replies(p)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A server may ask as soon as it has answered initialize, and while its
// replacement of another era is opened.
func TestHandlers_AnswerAServerThatIsStillOpening(t *testing.T) {
	for _, before := range []string{"initialize", "notifications/initialized"} {
		synctest.Test(t, func(t *testing.T) {
			p := eraChange(true, func(l *life, m message) error { l.fail(m, -32601, "no"); return nil })
			inner := p.on
			p.on = func(l *life, m message) (bool, error) {
				handled, err := inner(l, m)
				if m.Method == before && l.gen == 2 {
					if !handled {
						l.answer(m)
					}
					l.ask("1", "ping", `{}`)
					return true, err
				}
				return handled, err
			}
			c := connect(t, p, client.Config{})
			p.kill()
			pass(defaultDelay)
			if got := tool(t.Context(), c); got != "generation 2" {
				t.Error(got)
			}
			if diff := cmp.Diff([]string{"2: 1 {}"}, replies(p)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHandlers_AreDeclaredAsCapabilities(t *testing.T) {
	full := client.Config{
		Elicit:        func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) { return nil, nil },
		CreateMessage: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) { return nil, nil },
		ListRoots:     func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) { return nil, nil },
	}
	for _, tt := range []struct {
		cfg            client.Config
		modern, legacy string
	}{
		{client.Config{}, `{}`, `{}`},
		{
			full, `{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}`,
			`{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}`,
		},
		{client.Config{ListRoots: full.ListRoots}, `{"roots":{}}`, `{"roots":{"listChanged":true}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: true}
			connect(t, p, tt.cfg)
			var probe struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			}
			var hello struct{ Capabilities json.RawMessage }
			if err := errors.Join(
				json.Unmarshal(p.got("server/discover")[0].Params, &probe),
				json.Unmarshal(p.got("initialize")[0].Params, &hello),
			); err != nil {
				t.Fatal(err)
			}
			modern := string(probe.Meta["io.modelcontextprotocol/clientCapabilities"])
			if diff := cmp.Diff([]string{tt.modern, tt.legacy}, []string{modern, string(hello.Capabilities)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestB093_AServersRequestBelongsToItsGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type asked struct {
			ctx    context.Context
			answer chan string
		}
		var open []asked
		p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
			if m.Method == "tools/call" && l.gen == 1 {
				l.ask("7", "elicitation/create", `{"message":"first"}`)
				return true, nil
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{
			Elicit: func(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				a := asked{ctx, make(chan string)}
				open = append(open, a)
				return &mcp.ElicitResult{Action: <-a.answer}, nil // it does not look at its context
			},
		})
		said := start(func() string { return tool(t.Context(), c) })
		synctest.Wait()
		p.kill()
		if got := <-said; got != "outcome unknown: killed by the test" {
			t.Error(got)
		}
		pass(defaultDelay)
		if len(open) != 1 || open[0].ctx.Err() == nil {
			t.Errorf("the first handler's context goes on")
		}
		p.last().ask("7", "elicitation/create", `{"message":"second"}`)
		synctest.Wait()
		open[0].answer <- "accept" // to a server that has gone
		synctest.Wait()
		if got := replies(p); len(got) != 0 {
			t.Errorf("an answer to the first went to the second: %v", got)
		}
		open[1].answer <- "decline"
		synctest.Wait()
		if diff := cmp.Diff([]string{`2: 7 {"action":"decline"}`}, replies(p)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHandlers_AServersCancellationEndsItsOwnRequestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := map[string]message{}
		p := &peer{legacy: true, on: func(_ *life, m message) (bool, error) {
			if m.Method == "tools/call" || m.Method == "resources/subscribe" {
				waiting[m.Method] = m
				return true, nil
			}
			return false, nil
		}}
		var interrupted atomic.Int64 // two handlers run at once
		c := connect(t, p, client.Config{
			Elicit: func(ctx context.Context, _ *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				<-ctx.Done()
				interrupted.Add(1)
				return nil, ctx.Err()
			},
		})
		said := start(func() string { return tool(t.Context(), c) })
		synctest.Wait()
		s := listen(t, c, client.Filter{URIs: []string{"a"}}, &diary{})
		// Its ids are its own: these are equal to two of ours.
		for _, m := range waiting {
			p.last().ask(string(m.ID), "elicitation/create", `{"message":"x"}`)
		}
		synctest.Wait()
		for _, m := range waiting {
			p.last().say("notifications/cancelled", fmt.Sprintf(`{"requestId":%s}`, m.ID))
		}
		synctest.Wait()
		if got := replies(p); interrupted.Load() != 2 || len(got) != 0 {
			t.Errorf("%d handlers were interrupted, and answered %v", interrupted.Load(), got)
		}
		for _, m := range waiting {
			p.last().answer(m)
		}
		if got := <-said; got != "generation 1" {
			t.Errorf("our call: %s", got)
		}
		if got := ended(t, s); got != "goes on" {
			t.Errorf("our subscription %s", got)
		}
	})
}

func TestRootsChanged_TellsALegacyServerAlone(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy}
			c := connect(t, p, client.Config{})
			if err := c.RootsChanged(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(p.got("notifications/roots/list_changed")); (n == 1) != legacy {
				t.Errorf("legacy %t: it was told %d times", legacy, n)
			}
		})
	}
}

func TestOnLog_HearsWhatTheServerLogs(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, d := &peer{legacy: legacy}, &diary{}
			connect(t, p, client.Config{
				OnLog:          func(m *mcp.LoggingMessageParams) { d.write("%s %s %v", m.Level, m.Logger, m.Data) },
				OnNotification: func(n client.Notification) { d.write("general: %s", n.Method) },
			})
			p.last().say("notifications/message", `{"level":"error","logger":"db","data":{"a":1}}`)
			p.last().say("notifications/message", `{"level":7}`)
			p.last().say("notifications/other", `{}`)
			synctest.Wait()
			if diff := cmp.Diff([]string{"error db map[a:1]", "general: notifications/other"}, d.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
