package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

func TestM1_AResponseThatEndsWithoutItsAnswerIsABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{on: times(1, only("tools/call", func(x *exchange) { x.cut("") }))}
		c := dial(t, w, client.Config{})
		err := c.Call(t.Context(), "tools/call", nil, nil)
		if got := fateOf(err); got != "outcome unknown: stream broken" || !errors.Is(err, errCut) {
			t.Errorf("the call: %s: %v", got, err)
		}
		if diff := cmp.Diff([]string{"tools/call()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM2_WhatIsNoBreak(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(x *exchange)
		cfg  client.Config
		fate string
	}{
		{"an answer and then a cut", func(x *exchange) { x.result(`{}`); x.cut("") }, client.Config{}, "answered"},
		{"an error and then a cut", func(x *exchange) { x.fail(-32000, "connection lost", ""); x.cut("") }, client.Config{}, "the peer says -32000"},
		{"a tool that failed", func(x *exchange) { x.result(`{"isError":true,"content":[]}`) }, client.Config{}, "answered"},
		{"500", func(x *exchange) { x.reject(500, "stream closed") }, client.Config{}, "outcome unknown: HTTP 500"},
		{"200 in HTML", func(x *exchange) { x.reject(200, "<html>") }, client.Config{}, "outcome unknown: HTTP 200"},
		{"204", func(x *exchange) { x.reject(204, "") }, client.Config{}, "outcome unknown: HTTP 204"},
		{"its own timeout", func(*exchange) {}, client.Config{RequestTimeout: time.Second}, "outcome unknown: timeout"},
		{"no connection", (*exchange).unsent, client.Config{}, "not executed: no connection"},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{on: only("resources/read", tt.do)}
			c := dial(t, w, tt.cfg)
			if got := ask(t.Context(), c, "resources/read"); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			pass(time.Minute)
			if diff := cmp.Diff([]string{"resources/read()"}, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestM2_WhoGaveUpOrClosedIsNotIssuedAgain(t *testing.T) {
	for name, stop := range map[string]func(c *client.Client, cancel func()){
		"given up": func(_ *client.Client, cancel func()) { cancel() },
		"closed":   func(c *client.Client, _ func()) { _ = c.Close(context.Background()) },
	} {
		bubble(t, name, func(t *testing.T) {
			var read *exchange
			w := &web{on: only("resources/read", func(x *exchange) { read = x })}
			c := dial(t, w, client.Config{DrainTimeout: -1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fates := asks(ctx, c, 1, "resources/read")
			synctest.Wait()
			stop(c, cancel)
			fates()
			read.cut("")
			pass(time.Minute)
			if diff := cmp.Diff([]string{"resources/read()"}, w.took()); diff != "" {
				t.Errorf("nothing is sent again, and nothing cancelled by a message: %s", diff)
			}
		})
	}
}

func TestM3_ABrokenReadIsIssuedAgainOnceUnderANewID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads []*exchange
		w := &web{on: only("resources/read", func(x *exchange) { reads = append(reads, x) })}
		noted := &cancels{}
		f := w.factory()
		fresh := f.New
		f.New = func() transports.Transport { return noted.of(fresh()) }
		c := connectTo(t, f, client.Config{})
		answers := make(chan string, 3)
		go func() {
			r, err := c.Do(t.Context(), client.Request{
				Method: "resources/read", Params: json.RawMessage(`{"uri":"file:///x"}`), Header: http.Header{"X-Tenant": {"acme"}},
				Progress: func(p client.Progress) { answers <- p.Message },
			})
			answers <- fmt.Sprint(string(r.Result), err)
		}()
		synctest.Wait()
		reads[0].cut("")
		synctest.Wait()
		if len(reads) != 2 {
			t.Fatalf("%d reads", len(reads))
		}
		reads[0].result(`{"late":true}`)
		reads[1].say("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":"anew"}`, tokenOf(reads[1])))
		reads[1].result(`{"second":true}`)
		if got := <-answers + " " + <-answers; got != `anew {"second":true}<nil>` {
			t.Errorf("the caller got %s", got)
		}
		if reads[0].ID == reads[1].ID {
			t.Errorf("id %s was used twice", reads[0].ID)
		}
		if diff := cmp.Diff(reads[0].params(), reads[1].params()); diff != "" {
			t.Errorf("params: %s", diff)
		}
		if diff := cmp.Diff(reads[0].Header, reads[1].Header); diff != "" {
			t.Errorf("headers: %s", diff)
		}
		if n := c.Stats().UnknownIDs; n != 1 {
			t.Errorf("%d late answers were dropped", n)
		}
		if slices.Contains(noted.refs, reads[0].Ref) {
			t.Error("the broken attempt was cancelled")
		}
	})
}

func TestM4_TheReissueMayFailInAnyWay(t *testing.T) {
	for _, tt := range []struct {
		name, fate string
		do         func(x *exchange)
	}{
		{"a second break", "outcome unknown: stream broken", func(x *exchange) { x.cut("") }},
		{"503", "outcome unknown: HTTP 503", func(x *exchange) { x.reject(503, "") }},
		{"429", "outcome unknown: HTTP 429", func(x *exchange) { x.reject(429, "") }},
		{"an error", "the peer says -32602", func(x *exchange) { x.fail(-32602, "no such file", "") }},
		{"no connection", "outcome unknown: no connection", (*exchange).unsent},
		{"silence", "outcome unknown: timeout", func(*exchange) {}},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			first := times(1, only("resources/read", func(x *exchange) { x.cut("") }))
			then := only("resources/read", tt.do)
			w := &web{on: func(x *exchange) bool { return first(x) || then(x) }}
			c := dial(t, w, client.Config{})
			if got := ask(t.Context(), c, "resources/read"); got != tt.fate {
				t.Errorf("%s, want %s", got, tt.fate)
			}
			pass(time.Minute)
			if diff := cmp.Diff(same(2, "resources/read()"), w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever a server writes, it can't make its own errors look like a lost stream.
func TestM5_NoPeerCanForgeALostStream(t *testing.T) {
	for _, code := range []int{-32000, -32001, -32603, -31001, 0} {
		bubble(t, fmt.Sprint(code), func(t *testing.T) {
			w := &web{on: only("resources/read", func(x *exchange) {
				x.fail(code, "client: the response ended without an answer: unexpected EOF", `{"type":"StreamError"}`)
			})}
			c := dial(t, w, client.Config{})
			err := c.Call(t.Context(), "resources/read", nil, nil)
			if got := fateOf(err); got != fmt.Sprintf("the peer says %d", code) || is[client.StreamError](err) || is[client.LostError](err) {
				t.Errorf("%s: %v", got, err)
			}
			if diff := cmp.Diff([]string{"resources/read()"}, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What makes an error the loss of a stream is its type. Its text and its JSON say
// nothing to the code.
func TestT7_TheLossOfAStreamIsAType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{on: only("tools/call", func(x *exchange) { x.cut("") })}
		c := dial(t, w, client.Config{})
		err := c.Call(t.Context(), "tools/call", nil, nil)
		stream, lost := new(client.StreamError), new(client.LostError)
		if !errors.As(err, &stream) || !errors.As(fmt.Errorf("wrapped: %w", err), &lost) || lost.Outcome != client.OutcomeUnknown {
			t.Fatalf("the call: %v", err)
		}
		raw, jsonErr := json.Marshal(err)
		again := new(client.PeerError)
		if jsonErr != nil || json.Unmarshal(raw, again) != nil {
			t.Fatalf("through JSON it is %s, %v", raw, jsonErr)
		}
		if is[client.StreamError](again) {
			t.Errorf("an error made of JSON is a lost stream: %v", again)
		}
	})
}

// listing answers tools/list with these tools.
func listing(tools ...string) func(x *exchange) bool {
	return only("tools/list", func(x *exchange) { x.result(`{"tools":[` + strings.Join(tools, ",") + `]}`) })
}

// annotated is a tool named x with annotations.
func annotated(annotations string) string {
	return `{"name":"x","inputSchema":{"type":"object"},"annotations":` + annotations + `}`
}

// anyOf tries one on after the other.
func anyOf(ons ...func(x *exchange) bool) func(x *exchange) bool {
	return func(x *exchange) bool {
		return slices.ContainsFunc(ons, func(on func(*exchange) bool) bool { return on(x) })
	}
}

// cutOnce lets the first call of a tool run and cuts its response; it counts the runs.
func cutOnce(runs *int) func(x *exchange) bool {
	return only("tools/call", func(x *exchange) {
		if *runs++; *runs == 1 {
			x.cut("")
			return
		}
		x.result(`{"content":[]}`)
	})
}

func TestM6_AToolIsIssuedAgainOnlyOnEvidence(t *testing.T) {
	none := []string{}
	for _, tt := range []struct {
		name  string
		tools []string // nil: never listed
		cfg   client.Config
		runs  int
	}{
		{"read-only", []string{annotated(`{"readOnlyHint":true}`)}, client.Config{}, 2},
		{"idempotent", []string{annotated(`{"idempotentHint":true}`)}, client.Config{}, 2},
		{"idempotent and destructive", []string{annotated(`{"idempotentHint":true,"destructiveHint":true}`)}, client.Config{}, 2},
		{"both read-only", []string{annotated(`{"readOnlyHint":true}`), annotated(`{"readOnlyHint":true}`)}, client.Config{}, 2},
		{"read-only but distrusted", []string{annotated(`{"readOnlyHint":true}`)}, client.Config{DistrustAnnotations: true}, 1},
		{"never listed", nil, client.Config{}, 1},
		{"not in the listing", none, client.Config{}, 1},
		{"without annotations", []string{`{"name":"x","inputSchema":{"type":"object"}}`}, client.Config{}, 1},
		{"not destructive alone", []string{annotated(`{"destructiveHint":false}`)}, client.Config{}, 1},
		{"read-only and destructive", []string{annotated(`{"readOnlyHint":true,"destructiveHint":true}`)}, client.Config{}, 1},
		{"\"true\"", []string{annotated(`{"readOnlyHint":"true"}`)}, client.Config{}, 1},
		{"1", []string{annotated(`{"readOnlyHint":1}`)}, client.Config{}, 1},
		{"null", []string{annotated(`{"readOnlyHint":null}`)}, client.Config{}, 1},
		{"false", []string{annotated(`{"readOnlyHint":false}`)}, client.Config{}, 1},
		{"one of two of that name", []string{annotated(`{"readOnlyHint":true}`), annotated(`{}`)}, client.Config{}, 1},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			runs := 0
			w := &web{on: anyOf(cutOnce(&runs), listing(tt.tools...))}
			c := dial(t, w, tt.cfg)
			if tt.tools != nil { // by the generic call, which does not mind malformed hints
				if err := c.Call(t.Context(), "tools/list", nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			want := map[int]string{1: "outcome unknown: stream broken", 2: "answered"}[tt.runs]
			if got := ask(t.Context(), c, "tools/call"); got != want || runs != tt.runs {
				t.Errorf("%s after %d runs, want %s after %d", got, runs, want, tt.runs)
			}
		})
	}
}

// What the gate reads as the tool's name must be what any server reads.
func TestM6_ANameThatIsReadInTwoWaysGrantsNothing(t *testing.T) {
	for params, runs := range map[string]int{
		`{"name":"x"}`:                        2,
		`{"n\u0061me":"x"}`:                   2,
		`{"name":"x","arguments":{"name":1}}`: 2,
		`{"name":"act","Name":"x"}`:           1,
		`{"Name":"act","name":"x"}`:           1,
		`{"name":"x","NAME":"act"}`:           1,
		`{"name":"x","n\u0041me":"act"}`:      1,
		`{"Name":"x"}`:                        1,
		`{"name":"act","name":"x"}`:           1,
		`{"name":"x","name":"x"}`:             1,
	} {
		bubble(t, params, func(t *testing.T) {
			ran := 0
			w := &web{on: anyOf(cutOnce(&ran), listing(annotated(`{"readOnlyHint":true}`)))}
			c := dial(t, w, client.Config{})
			if _, err := c.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Params: json.RawMessage(params)})
			if ran != runs || (err == nil) != (runs == 2) {
				t.Errorf("%d runs, want %d: %v", ran, runs, err)
			}
		})
	}
}

// The gate is in the engine, so a generic call meets it like a typed one.
func TestT8_TheGateHoldsForEveryKindOfCall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *client.Client) error{
		"typed": func(ctx context.Context, c *client.Client) error {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
			return err
		},
		"generic": func(ctx context.Context, c *client.Client) error {
			return c.Call(ctx, "tools/call", map[string]string{"name": "x"}, nil)
		},
		"raw": func(ctx context.Context, c *client.Client) error {
			_, err := c.Do(ctx, client.Request{Method: "tools/call", Params: json.RawMessage(`{"name":"x"}`)})
			return err
		},
	} {
		for hint, runs := range map[string]int{`{}`: 1, `{"readOnlyHint":true}`: 2} {
			bubble(t, name+" "+hint, func(t *testing.T) {
				ran := 0
				w := &web{on: anyOf(cutOnce(&ran), listing(annotated(hint)))}
				c := dial(t, w, client.Config{})
				if _, err := c.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if err := call(t.Context(), c); ran != runs || (err == nil) != (runs == 2) {
					t.Errorf("%d runs, want %d: %v", ran, runs, err)
				}
			})
		}
	}
}

func TestM7_EvidenceIsTheLatestCompleteListing(t *testing.T) {
	grants, denies := annotated(`{"readOnlyHint":true}`), annotated(`{}`)
	list := func(t *testing.T, c *client.Client, cursor string) {
		params := map[string]string{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		_ = c.Call(t.Context(), "tools/list", params, nil) // some of them fail on purpose
		synctest.Wait()
	}
	page := func(tools, next string) func(x *exchange) {
		return func(x *exchange) {
			if next != "" {
				next = `,"nextCursor":"` + next + `"`
			}
			x.result(`{"tools":[` + tools + `]` + next + `}`)
		}
	}
	for _, tt := range []struct {
		name  string
		pages []func(x *exchange)
		do    func(t *testing.T, c *client.Client)
		runs  int
	}{
		{"a later listing denies", []func(*exchange){page(grants, ""), page(denies, "")}, nil, 1},
		{"a later listing grants", []func(*exchange){page(denies, ""), page(grants, "")}, nil, 2},
		{"a later one fails", []func(*exchange){page(grants, ""), func(x *exchange) { x.fail(-32603, "", "") }}, nil, 2},
		{"a later one is rejected", []func(*exchange){page(grants, ""), func(x *exchange) { x.reject(503, "") }}, nil, 2},
		{"a later one is malformed", []func(*exchange){page(grants, ""), func(x *exchange) { x.result(`{"tools":"none"}`) }}, nil, 2},
		{"a later one is not complete", []func(*exchange){page(grants, ""), page(denies, "2")}, nil, 2},
		{"the first one is not complete", []func(*exchange){page(grants, "2"), nil}, nil, 1},
		{"pages", []func(*exchange){page("", "2"), page(grants, "")}, func(t *testing.T, c *client.Client) {
			list(t, c, "")
			list(t, c, "2")
		}, 2},
		{"pages out of order", []func(*exchange){page("", "2"), page(grants, "")}, func(t *testing.T, c *client.Client) {
			list(t, c, "")
			list(t, c, "3")
		}, 1},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			runs, n := 0, 0
			w := &web{on: anyOf(cutOnce(&runs), only("tools/list", func(x *exchange) { n++; tt.pages[n-1](x) }))}
			c := dial(t, w, client.Config{})
			if tt.do == nil {
				for _, p := range tt.pages {
					if p != nil {
						list(t, c, "")
					}
				}
			} else {
				tt.do(t, c)
			}
			ask(t.Context(), c, "tools/call")
			if runs != tt.runs {
				t.Errorf("%d runs, want %d", runs, tt.runs)
			}
		})
	}
}

func TestM7_EvidenceMustHoldAtTheSendAndAtTheLoss(t *testing.T) {
	grants := listing(annotated(`{"readOnlyHint":true}`))
	list := func(t *testing.T, c *client.Client) {
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(t *testing.T, w *web, c *client.Client) {
		listens := w.find("subscriptions/listen")
		listens.tell("notifications/tools/list_changed")
		synctest.Wait()
	}
	for _, tt := range []struct {
		name          string
		before, after func(t *testing.T, w *web, c *client.Client)
		runs          int
	}{
		{"listed before", func(t *testing.T, _ *web, c *client.Client) { list(t, c) }, nil, 2},
		{"listed after the send alone", nil, func(t *testing.T, _ *web, c *client.Client) { list(t, c) }, 1},
		{"changed before the send", func(t *testing.T, w *web, c *client.Client) { list(t, c); changed(t, w, c) }, nil, 1},
		{"changed after the send", func(t *testing.T, _ *web, c *client.Client) { list(t, c) }, changed, 1},
		{"changed and listed again before the loss", func(t *testing.T, _ *web, c *client.Client) { list(t, c) }, func(t *testing.T, w *web, c *client.Client) {
			changed(t, w, c)
			list(t, c)
		}, 2},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			var runs []*exchange
			w := &web{on: anyOf(grants, only("tools/call", func(x *exchange) {
				if runs = append(runs, x); len(runs) > 1 {
					x.result(`{}`)
				}
			}))}
			c := dial(t, w, client.Config{})
			listen(t, c, client.Filter{Tools: true}, &diary{})
			if tt.before != nil {
				tt.before(t, w, c)
			}
			fates := asks(t.Context(), c, 1, "tools/call")
			synctest.Wait()
			if tt.after != nil {
				tt.after(t, w, c)
			}
			runs[0].cut("")
			fates()
			if len(runs) != tt.runs {
				t.Errorf("%d runs, want %d", len(runs), tt.runs)
			}
		})
	}
}

// An answer that was asked for before a change says nothing about what came after it.
func TestM7_AListingOlderThanAChangeIsNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		var slow *exchange
		w := &web{on: anyOf(cutOnce(&runs), only("tools/list", func(x *exchange) { slow = x }))}
		c := dial(t, w, client.Config{})
		listen(t, c, client.Filter{Tools: true}, &diary{})
		fates := asks(t.Context(), c, 1, "tools/list")
		synctest.Wait()
		w.find("subscriptions/listen").tell("notifications/tools/list_changed")
		synctest.Wait()
		slow.result(`{"tools":[` + annotated(`{"readOnlyHint":true}`) + `]}`)
		fates()
		ask(t.Context(), c, "tools/call")
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

// What was announced while the subscription was cut, nobody heard: the listing may be
// an old one.
func TestM7_AListingFromBeforeAGapIsNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		w := &web{on: anyOf(cutOnce(&runs), listing(annotated(`{"readOnlyHint":true}`)))}
		c := dial(t, w, client.Config{})
		listen(t, c, client.Filter{Tools: true}, &diary{})
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.find(listenMethod).cut("")
		pass(time.Second)
		ask(t.Context(), c, "tools/call")
		if n := w.count(listenMethod); runs != 1 || n != 2 {
			t.Errorf("%d runs, %d openings", runs, n)
		}
	})
}

func TestM8_TheReadSetAloneIsIssuedAgain(t *testing.T) {
	reads := []string{
		"server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list",
		"resources/templates/list", "resources/read", "completion/complete",
	}
	others := []string{"acme/read", "tools/list2", "Tools/List", "resources/subscribe", "logging/setLevel", "ping", "initialize"}
	for _, method := range append(reads, others...) {
		bubble(t, method, func(t *testing.T) {
			w := &web{}
			c := dial(t, w, client.Config{})
			w.becomes(times(1, only(method, func(x *exchange) { x.cut("") })))
			want, fate := same(1, method+"()"), "outcome unknown: stream broken"
			if slices.Contains(reads, method) {
				want, fate = same(2, method+"()"), "answered"
			}
			if got := ask(t.Context(), c, method); got != fate {
				t.Errorf("%s, want %s", got, fate)
			}
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestM8_TheProbeOfTheEraIsNotIssuedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{on: only("server/discover", func(x *exchange) { x.cut("") })}
		_, err := client.Connect(t.Context(), w.factory(), &client.Config{Logger: quiet()})
		if !is[client.StreamError](err) {
			t.Errorf("Connect: %v", err)
		}
		if diff := cmp.Diff([]string{"server/discover()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestM9_AContinuationIsNeverIssuedAgain(t *testing.T) {
	for _, params := range []string{
		`{"uri":"x","inputResponses":{}}`, `{"uri":"x","requestState":"s"}`, `{"uri":"x","requestState":null}`,
		`{"name":"x","inputResponses":{"a":1},"requestState":"s"}`,
	} {
		for _, method := range []string{"resources/read", "prompts/get", "tools/call"} {
			bubble(t, method+params, func(t *testing.T) {
				w := &web{on: anyOf(listing(annotated(`{"readOnlyHint":true}`)), only(method, func(x *exchange) { x.cut("") }))}
				c := dial(t, w, client.Config{RetryLost: true})
				if _, err := c.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				w.took()
				if got := fateOf(c.Call(t.Context(), method, json.RawMessage(params), nil)); got != "outcome unknown: stream broken" {
					t.Error(got)
				}
				if diff := cmp.Diff([]string{method + "()"}, w.took()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// mirrored is a tool whose argument region goes into a header, under a name that changes.
func mirrored(header string) string {
	return `{"name":"x","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"` + header + `"}}}}`
}

func TestM11_AHeaderMismatchListsTheToolsAndSendsAgainOnce(t *testing.T) {
	wants := "Region"
	mismatch := only("tools/call", func(x *exchange) {
		if x.Header.Get("Mcp-Param-"+wants) != "us-west1" {
			x.reject(400, x.error(-32020, "Header mismatch", ""))
			return
		}
		x.result(`{}`)
	})
	call := func(ctx context.Context, c *client.Client) string {
		_, err := c.Do(ctx, client.Request{
			Method: "tools/call", Params: json.RawMessage(`{"name":"x","arguments":{"region":"us-west1"}}`), RequestTimeout: time.Minute,
		})
		return fateOf(err)
	}
	bubble(t, "healed by a listing", func(t *testing.T) {
		w := &web{on: anyOf(mismatch, listing(mirrored(wants)))}
		c := dial(t, w, client.Config{})
		for range 2 {
			if got := call(t.Context(), c); got != "answered" {
				t.Error(got)
			}
		}
		want := []string{"tools/call()", "tools/list()", "tools/call()", "tools/call()"}
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Error(diff)
		}
	})
	bubble(t, "by its second page", func(t *testing.T) {
		pages := only("tools/list", func(x *exchange) {
			if strings.Contains(x.params(), `"cursor":"2"`) {
				x.result(`{"tools":[` + mirrored(wants) + `]}`)
				return
			}
			x.result(`{"tools":[],"nextCursor":"2"}`)
		})
		w := &web{on: anyOf(mismatch, pages)}
		c := dial(t, w, client.Config{})
		if got := call(t.Context(), c); got != "answered" {
			t.Error(got)
		}
		if diff := cmp.Diff([]string{"tools/call()", "tools/list()", "tools/list()", "tools/call()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
	for name, list := range map[string]func(x *exchange) bool{
		"not healed":          listing(mirrored("Other")),
		"the listing fails":   only("tools/list", func(x *exchange) { x.fail(-32603, "", "") }),
		"the listing is cut":  only("tools/list", func(x *exchange) { x.cut("") }),
		"nobody answers it":   only("tools/list", func(*exchange) {}),
		"it has no end":       only("tools/list", func(x *exchange) { x.result(`{"tools":[],"nextCursor":"` + x.ID + `"}`) }),
		"it can't be reached": only("tools/list", (*exchange).unsent),
	} {
		bubble(t, name, func(t *testing.T) {
			w := &web{on: anyOf(mismatch, list)}
			c := dial(t, w, client.Config{MaxRequestTimeout: -1, RequestTimeout: time.Hour})
			want := "the peer says -32020"
			if name == "nobody answers it" {
				want = "not executed: timeout" // the call's own
			}
			if got := call(t.Context(), c); got != want {
				t.Error(got)
			}
			if n := w.count("tools/call"); n > 2 || w.count("tools/list") > 101 {
				t.Errorf("%d calls and %d listings", n, w.count("tools/list"))
			}
		})
	}
	bubble(t, "between two breaks", func(t *testing.T) {
		calls := 0
		w := &web{on: anyOf(listing(`{"name":"x","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"annotations":{"readOnlyHint":true}}`),
			only("tools/call", func(x *exchange) {
				switch calls++; calls {
				case 2:
					x.reject(400, x.error(-32020, "Header mismatch", ""))
				default:
					x.cut("")
				}
			}))}
		c := dial(t, w, client.Config{})
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.took()
		if got := call(t.Context(), c); got != "outcome unknown: stream broken" {
			t.Error(got)
		}
		want := []string{"tools/call()", "tools/call()", "tools/list()", "tools/call()"}
		if diff := cmp.Diff(want, w.took()); diff != "" {
			t.Errorf("three sends at most: %s", diff)
		}
	})
}

func TestM11_WhoGivesUpDuringTheListingIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list *exchange
		w := &web{on: anyOf(
			only("tools/list", func(x *exchange) { list = x }),
			only("tools/call", func(x *exchange) { x.reject(400, x.error(-32020, "Header mismatch", "")) }))}
		c := dial(t, w, client.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		fates := asks(ctx, c, 1, "tools/call")
		synctest.Wait()
		cancel()
		fates()
		list.result(`{"tools":[]}`)
		pass(time.Minute)
		if diff := cmp.Diff([]string{"tools/call()", "tools/list()"}, w.took()); diff != "" {
			t.Error(diff)
		}
	})
}
