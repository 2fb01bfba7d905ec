package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// rounds is a modern server that asks for input until it was asked n times again.
func rounds(n int, wants string) *peer {
	p := &peer{}
	p.on = func(l *life, m message) (bool, error) {
		if m.Method != "tools/call" && m.Method != "resources/read" {
			return false, nil
		}
		if asked := len(p.got(m.Method)); asked <= n {
			l.result(m, `{"resultType":"input_required",%s}`, strings.ReplaceAll(wants, "ROUND", fmt.Sprint(asked)))
			return true, nil
		}
		l.result(m, `{"content":[{"type":"text","text":"done"}],"contents":[]}`)
		return true, nil
	}
	return p
}

func TestInput_IsGivenInAnotherRoundOfTheSameCall(t *testing.T) {
	const name = `"inputRequests":{"who":{"method":"elicitation/create","params":` + form + `},"where":{"method":"roots/list"}}`
	const answers = `"inputResponses":{"where":{"roots":[{"uri":"file:///x"}]},"who":{"action":"accept","content":{"age":7,"name":"gopher"}}}`
	for _, tt := range []struct {
		name  string
		wants string
		want  []string // fields of the params of each round but the first
	}{
		{"requests", name, []string{answers, answers}},
		{"requests and a state", name + `,"requestState":"ROUND"`, []string{answers + `,"requestState":"1"`, answers + `,"requestState":"2"`}},
		{"a state alone", `"requestState":"ROUND"`, []string{`"requestState":"1"`, `"requestState":"2"`}},
		{"a state of odd bytes", `"requestState":"\u00e9\/\ud83d\ude00 <&>"`, []string{`"requestState":"\u00e9\/\ud83d\ude00 <&>"`, `"requestState":"\u00e9\/\ud83d\ude00 <&>"`}},
		{"an empty state", `"requestState":""`, []string{`"requestState":""`, `"requestState":""`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := rounds(2, tt.wants)
				c := connect(t, p, client.Config{
					Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "gopher"}}, nil
					},
					ListRoots: func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) {
						return &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///x"}}}, nil
					},
				})
				var heard int
				resp, err := c.Do(t.Context(), client.Request{
					Method: "tools/call", Params: json.RawMessage(`{"name":"x","arguments":{"b":1, "a":[2]},"_meta":{"mine":1}}`),
					Header: http.Header{"X-Trace": {"1"}}, Progress: func(client.Progress) { heard++ },
				})
				if err != nil || !strings.Contains(string(resp.Result), "done") {
					t.Fatalf("%s, %v", resp.Result, err)
				}
				ids := map[string]bool{}
				for i, m := range p.got("tools/call") {
					ids[string(m.ID)] = true
					if m.Header.Get("X-Trace") != "1" || !strings.Contains(string(m.Params), `"progressToken":`+string(m.ID)) || !strings.Contains(string(m.Params), `"mine":1`) {
						t.Errorf("round %d has not the call's header, progress token and metadata: %s", i+1, m.Params)
					}
					var params map[string]json.RawMessage
					if err := json.Unmarshal(m.Params, &params); err != nil {
						t.Fatal(err)
					}
					if got := string(params["name"]) + string(params["arguments"]); got != `"x"{"b":1, "a":[2]}` {
						t.Errorf("round %d has the params %s", i+1, got)
					}
					var fields []string
					for _, key := range []string{"inputResponses", "requestState"} {
						if raw, ok := params[key]; ok {
							fields = append(fields, fmt.Sprintf("%q:%s", key, raw))
						}
					}
					want := ""
					if i > 0 {
						want = tt.want[i-1]
					}
					if diff := cmp.Diff(want, strings.Join(fields, ",")); diff != "" {
						t.Errorf("round %d: %s", i+1, diff)
					}
				}
				if len(ids) != 3 {
					t.Errorf("three rounds have the ids %v", ids)
				}
			})
		})
	}
}

func TestInput_RoundsAreBoundedAndErrorsAreTheCalls(t *testing.T) {
	const wants = `"inputRequests":{"who":{"method":"elicitation/create","params":{"message":"x"}}}`
	noUser := errors.New("no user is there")
	for _, tt := range []struct {
		name          string
		rounds        int
		fails         error
		want          string
		asked, served int
	}{
		{"ten are given", 10, nil, "done", 10, 11},
		{"eleven are not", 11, nil, "client: tools/call needs input: the server asked for input more than 10 times", 10, 11},
		{"the handler fails", 3, noUser, "client: tools/call needs input: no user is there", 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, asked := rounds(tt.rounds, wants), 0
				c := connect(t, p, client.Config{
					Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
						asked++
						return &mcp.ElicitResult{Action: "cancel"}, tt.fails
					},
				})
				r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				got := fmt.Sprint(err)
				if err == nil {
					got = r.Content[0].(*mcp.TextContent).Text
				}
				if got != tt.want || asked != tt.asked || len(p.got("tools/call")) != tt.served {
					t.Errorf("%q after %d questions and %d rounds; want %q after %d and %d", got, asked, len(p.got("tools/call")), tt.want, tt.asked, tt.served)
				}
				if err != nil && (client.OutcomeOf(err) != client.Answered || tt.fails != nil && !errors.Is(err, tt.fails)) {
					t.Errorf("%s, and errors.Is(…): %t", client.OutcomeOf(err), errors.Is(err, tt.fails))
				}
			})
		})
	}
}

// What nobody here can answer is its caller's to deal with.
func TestInput_WithoutAHandlerTheResultIsHandedOut(t *testing.T) {
	for _, tt := range []struct{ method, wants string }{
		{"tools/call", `"inputRequests":{"a":{"method":"elicitation/create"},"b":{"method":"sampling/createMessage"}}`},
		{"tools/call", `"inputRequests":{"a":{"method":"vendor/x"}}`},
		{"tools/call", `"inputRequests":[]`},
		{"tools/call", `"other":1`},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := rounds(1, tt.wants)
			c := connect(t, p, client.Config{
				Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
					t.Error("a user was asked in vain")
					return nil, nil
				},
			})
			resp, err := c.Do(t.Context(), client.Request{Method: tt.method})
			if want := `{"resultType":"input_required",` + tt.wants + `}`; err != nil || string(resp.Result) != want {
				t.Errorf("%s, %v", resp.Result, err)
			}
		})
	}
}

func TestB093_AContinuationThatIsLostIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, asked := rounds(1, `"inputRequests":{"who":{"method":"elicitation/create","params":{"message":"x"}}},"requestState":"once"`), 0
		inner := p.on
		p.on = func(l *life, m message) (bool, error) {
			if m.Method == "resources/read" && strings.Contains(string(m.Params), "once") {
				return true, errKilled
			}
			return inner(l, m)
		}
		c := connect(t, p, client.Config{
			RetryLost: true, WaitForReady: true,
			Elicit: func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				asked++
				return &mcp.ElicitResult{Action: "accept"}, nil
			},
		})
		_, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x"})
		if got := words(err); got != "outcome unknown: killed by the test" {
			t.Error(got)
		}
		pass(defaultDelay)
		if n := len(p.got("resources/read")); n != 2 || asked != 1 {
			t.Errorf("%d rounds, and the user was asked %d times", n, asked)
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
