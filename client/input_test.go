package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
)

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

// A call that waits for its handler has nothing in flight, and ends with the client all the same.
func TestInput_ACallThatWaitsForItEndsWithTheClient(t *testing.T) {
	const wants = `"inputRequests":{"who":{"method":"elicitation/create","params":` + form + `}}`
	for _, tt := range []struct {
		name string
		end  func(p *peer, c *client.Client)
		is   func(error) bool
	}{
		{"by Close", func(_ *peer, c *client.Client) { c.Close(context.Background()) }, func(err error) bool {
			return errors.Is(err, client.ErrClosed)
		}},
		{"by exhaustion", func(p *peer, _ *client.Client) { p.kill() }, func(err error) bool {
			return errors.As(err, new(*client.ExhaustedError))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := rounds(1, wants)
				asked := make(chan struct{})
				c := connect(t, p, client.Config{
					Budget: policy.Never(),
					Elicit: func(ctx context.Context, _ *mcp.ElicitParams) (*mcp.ElicitResult, error) {
						close(asked)
						<-ctx.Done()
						return nil, ctx.Err()
					},
				})
				over := make(chan error, 1)
				go func() {
					_, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "x"})
					over <- err
				}()
				<-asked
				tt.end(p, c)
				err := <-over
				if input := new(client.InputError); !errors.As(err, &input) || !tt.is(err) {
					t.Errorf("the call ended with %v", err)
				}
				if n := len(p.got("tools/call")); n != 1 {
					t.Errorf("it was made %d times", n)
				}
			})
		})
	}
}
