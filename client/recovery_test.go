package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

// reconnects collects what OnReconnect is told.
func reconnects(cfg *client.Config) *[]client.Reconnect {
	var all []client.Reconnect
	cfg.OnReconnect = func(r client.Reconnect) { all = append(all, r) }
	return &all
}

func TestS47_WhatAServerSaysOfItselfIsReplacedTogether(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy, capabilities: `{"tools":{}}`}
			var c *client.Client
			var seen []string
			look := func() {
				s := c.Server()
				seen = append(seen, fmt.Sprintf("%s %s prompts=%t", s.Info.Name, s.Info.Version, s.Capabilities.Prompts != nil))
			}
			cfg := client.Config{}
			cfg.OnReconnect = func(client.Reconnect) { look() }
			cfg.OnEnd = func(client.Ended) { look() }
			c = connect(t, p, cfg)
			look()
			p.capabilities = `{"tools":{},"prompts":{}}`
			p.kill()
			pass(defaultDelay)
			look()
			want := []string{
				"scripted 1 prompts=false", "scripted 1 prompts=false",
				"scripted 2 prompts=true", "scripted 2 prompts=true",
			}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestS48_ARecoveryMakesEachKindStaleOnce(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, d := &peer{legacy: legacy, capabilities: `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}}`}, &diary{}
			cfg := d.of(client.Config{OnListChanged: func(k client.Kind) { d.write("%s are stale", k) }})
			c := connect(t, p, cfg)
			listen(t, c, everything, &diary{}) // opened again, it makes nothing stale a second time
			if got := d.read(); len(got) != 0 {
				t.Errorf("the first server makes stale: %v", got)
			}
			p.kill()
			pass(defaultDelay)
			want := []string{
				"1 ended: killed by the test; the next in 100ms",
				"tools are stale", "prompts are stale", "resources are stale", "2 serves",
			}
			if diff := cmp.Diff(want, d.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A stream that could not be opened for a while has missed what changed meanwhile.
func TestS48_AStreamOpenedLateMakesItsKindsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		p, d := &peer{on: func(_ *life, m message) (bool, error) {
			if m.Method == "subscriptions/listen" {
				tries++
			}
			return m.Method == "subscriptions/listen" && tries < 3, nil
		}}, &diary{}
		c := connect(t, p, client.Config{RequestTimeout: time.Second, OnListChanged: func(k client.Kind) { d.write("%s are stale", k) }})
		listen(t, c, client.Filter{Tools: true, URIs: []string{"a"}}, &diary{})
		pass(time.Minute)
		if diff := cmp.Diff([]string{"tools are stale"}, d.read()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestB084_AfterARecoveryTheCatalogueIsTheNewServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{capabilities: `{"tools":{},"prompts":{}}`}
		p.on = func(l *life, m message) (bool, error) {
			name := []string{"", "old", "new"}[l.gen]
			var call struct{ Name string }
			_ = json.Unmarshal(m.Params, &call)
			switch {
			case m.Method == "tools/list":
				l.result(m, `{"tools":[{"name":%q,"inputSchema":{"type":"object","title":"of %d"}}],"ttlMs":3600000}`, name, l.gen)
			case m.Method == "tools/call" && call.Name != name:
				l.fail(m, -32602, "unknown tool: "+call.Name)
			default:
				return false, nil
			}
			return true, nil
		}
		var stale []client.Kind
		cfg := client.Config{Cache: true, OnListChanged: func(k client.Kind) { stale = append(stale, k) }}
		again := reconnects(&cfg)
		c := connect(t, p, cfg)
		list := func() (names []string) {
			for tool, err := range c.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				title := tool.InputSchema.(map[string]any)["title"]
				names = append(names, fmt.Sprint(tool.Name, " ", title))
			}
			return names
		}
		if diff := cmp.Diff([]string{"old of 1"}, slices.Concat(list(), list())[:1]); diff != "" {
			t.Error(diff)
		}
		p.capabilities = `{"tools":{}}`
		p.kill()
		pass(defaultDelay)
		if diff := cmp.Diff([]string{"1 server/discover", "1 tools/list", "2 server/discover"}, p.received()); diff != "" {
			t.Errorf("asked by itself: %s", diff)
		}
		if diff := cmp.Diff([]string{"new of 2"}, list()); diff != "" {
			t.Error(diff)
		}
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "old"})
		if peer := new(client.PeerError); !errors.As(err, &peer) || !cmp.Equal(*peer, client.PeerError{Code: -32602, Message: "unknown tool: old"}) {
			t.Errorf("the old tool: %v", err)
		}
		if got := c.Server().Capabilities; got.Prompts != nil || got.Tools == nil {
			t.Errorf("the capabilities are %+v", got)
		}
		if diff := cmp.Diff([]client.Kind{client.Tools, client.Prompts, client.Resources}, stale); diff != "" {
			t.Errorf("stale: %s", diff)
		}
		want := []client.Reconnect{{
			Generation: 2, Cause: errKilled, Downtime: defaultDelay,
			Changed: []string{"serverInfo", "capabilities"},
		}}
		if diff := cmp.Diff(want, *again, sameError); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOnReconnect_CountsWhatWasSentAgainAndOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := swallowing("resources/read", 1)
		cfg := client.Config{RetryLost: true, WaitForReady: true}
		again := reconnects(&cfg)
		c := connect(t, p, cfg)
		read := client.Request{Method: "resources/read", Params: mine}
		said := []<-chan string{
			start(func() string { return generation(t.Context(), c, read) }),
			start(func() string { return generation(t.Context(), c, read) }),
			start(func() string { return generation(t.Context(), c, client.Request{Method: "vendor/do", Params: mine}) }),
		}
		listen(t, c, client.Filter{Tools: true}, &diary{})
		listen(t, c, client.Filter{Prompts: true}, &diary{})
		listen(t, c, client.Filter{Prompts: true}, &diary{}).Close()
		p.kill()
		synctest.Wait()
		said = append(said, start(func() string { return generation(t.Context(), c, read) })) // was never sent
		for _, s := range said {
			<-s
		}
		synctest.Wait()
		want := []client.Reconnect{{
			Generation: 2, Cause: errKilled, Downtime: defaultDelay, Retried: 2, Reopened: 2, Changed: []string{"serverInfo"},
		}}
		if diff := cmp.Diff(want, *again, sameError); diff != "" {
			t.Error(diff)
		}
	})
}

// eraChange is a peer of one era whose incarnations from 2 on are of the other and
// know nothing else: they meet the wrong opening as wrong says.
func eraChange(toLegacy bool, wrong func(l *life, m message) error) *peer {
	old, grown := &peer{legacy: !toLegacy}, &peer{legacy: toLegacy}
	opening := "initialize"
	if toLegacy {
		opening = "server/discover"
	}
	p := &peer{legacy: !toLegacy}
	p.on = func(l *life, m message) (bool, error) {
		l.peer = old
		if l.gen == 1 {
			return m.Method == "resources/read", nil
		}
		l.peer = grown
		switch m.Method {
		case opening:
			return true, wrong(l, m)
		case "resources/read":
			l.result(m, `{"contents":[]}`)
			return true, nil
		}
		return false, nil
	}
	return p
}

func TestB095_AServerThatChangedItsEraWhileItWasDownIsServed(t *testing.T) {
	refuse := func(code int) func(*life, message) error {
		return func(l *life, m message) error { l.fail(m, code, "no"); return nil }
	}
	unsupported := func(l *life, m message) error {
		l.Write(m.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`, m.ID))
		return nil
	}
	exit := func(*life, message) error { return errKilled }
	silent := func(*life, message) error { return nil }
	for _, tt := range []struct {
		name     string
		toLegacy bool
		wrong    func(*life, message) error
		deaths   int // of replacements
	}{
		{"to modern, -32601", false, refuse(-32601), 0},
		{"to modern, -32600", false, refuse(-32600), 0},
		{"to modern, -32022", false, unsupported, 0},
		{"to modern, it exits", false, exit, 1},
		{"to modern, silence", false, silent, 1},
		{"to legacy, -32601", true, refuse(-32601), 0},
		{"to legacy, -32602", true, refuse(-32602), 0},
		{"to legacy, -32000", true, refuse(-32000), 0},
		{"to legacy, it exits", true, exit, 2},
		{"to legacy, silence", true, silent, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := eraChange(tt.toLegacy, tt.wrong)
				var stale []client.Kind
				cfg := client.Config{
					RetryLost: true, StartTimeout: 20 * time.Second,
					OnListChanged: func(k client.Kind) { stale = append(stale, k) },
				}
				again := reconnects(&cfg)
				c := connect(t, p, cfg)
				if err := c.SetLogLevel(t.Context(), "error"); err != nil {
					t.Fatal(err)
				}
				s := listen(t, c, client.Filter{URIs: []string{"a"}}, &diary{})
				said := start(func() string {
					return generation(t.Context(), c, client.Request{Method: "resources/read", Params: mine})
				})
				synctest.Wait()
				p.kill()
				pass(30 * time.Second)
				serves := 2 + tt.deaths
				if got, want := <-said, fmt.Sprintf("answered by %d", serves); got != want {
					t.Errorf("a read in flight: %s, want %s", got, want)
				}
				if got := tool(t.Context(), c); got != fmt.Sprintf("generation %d", serves) {
					t.Errorf("a call: %s", got)
				}
				if got, err := s.Acknowledged(t.Context()); err != nil || !cmp.Equal(got.URIs, []string{"a"}) {
					t.Errorf("the subscription holds %v, %v", got, err)
				}
				if len(*again) != 1 || !slices.Contains((*again)[0].Changed, "era") || !slices.Contains((*again)[0].Changed, "version") {
					t.Errorf("told: %+v", *again)
				}
				if diff := cmp.Diff([]client.Kind{client.Tools, client.Prompts, client.Resources}, stale); diff != "" {
					t.Errorf("stale: %s", diff)
				}
				// What the replacement got is of its own era.
				const meta = "io.modelcontextprotocol/protocolVersion"
				var got []string
				for _, m := range p.messages() {
					if m.Gen != serves || m.Method == "server/discover" || m.Method == "initialize" {
						continue
					}
					got = append(got, m.Method)
					if modern := strings.Contains(string(m.Params), meta); modern == tt.toLegacy && m.Method != "notifications/initialized" {
						t.Errorf("%s has the metadata %s", m.Method, m.Params)
					}
				}
				want := []string{"resources/read", "subscriptions/listen", "tools/call"}
				if tt.toLegacy {
					want = []string{"notifications/initialized", "logging/setLevel", "resources/read", "resources/subscribe", "tools/call"}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("it got: %s", diff)
				}
				if last := p.got("tools/call")[0]; strings.Contains(string(last.Params), `logLevel":"error"`) == tt.toLegacy {
					t.Errorf("the log level is not as its era has it: %s", last.Params)
				}
				pass(time.Minute) // the budget forgets, and the new era is remembered
				p.kill()
				pass(defaultDelay)
				if got := tool(t.Context(), c); got != fmt.Sprintf("generation %d", serves+1) {
					t.Errorf("after one more death: %s", got)
				}
			})
		})
	}
}

func TestS50_AnotherVersionThatBothKnowIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, cfg := &peer{legacy: true}, client.Config{}
		again := reconnects(&cfg)
		c := connect(t, p, cfg)
		for i, v := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
			p.version = v
			p.kill()
			pass(defaultDelay)
			if got := c.Server().Version; got != v {
				t.Errorf("the version is %s, want %s", got, v)
			}
			if diff := cmp.Diff([]string{"version", "serverInfo"}, (*again)[i].Changed); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestS50_WithNoCommonVersionTheErrorNamesBothSides(t *testing.T) {
	const ours = "2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05"
	refusal := func(l *life, m message) {
		l.Write(m.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}}`, m.ID))
	}
	for _, tt := range []struct {
		name   string
		legacy bool
		answer func(l *life, m message)
		theirs string
	}{
		{"a modern server lists others", false, func(l *life, m message) { l.result(m, `{"supportedVersions":["2099-01-01","2099-02-02"]}`) }, "2099-01-01 2099-02-02"},
		{"a modern server refuses", false, refusal, "2099-01-01"},
		{"a legacy server chooses another", true, func(l *life, m message) { l.result(m, `{"protocolVersion":"1999-01-01"}`) }, "1999-01-01"},
		{"a modern one follows a legacy one", true, refusal, "2099-01-01"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{legacy: tt.legacy, on: func(l *life, m message) (bool, error) {
					opens := m.Method == "server/discover" || m.Method == "initialize"
					if l.gen > 1 && opens {
						tt.answer(l, m)
					}
					return l.gen > 1 && opens, nil
				}}
				c := connect(t, p, client.Config{})
				p.kill()
				pass(time.Minute)
				exhausted, version := new(client.ExhaustedError), new(client.VersionError)
				if err := c.Err(); !errors.As(err, &exhausted) || !errors.As(err, &version) {
					t.Fatalf("the client ended with %v", err)
				}
				if got := strings.Join(version.Ours, " "); got != ours {
					t.Errorf("ours are %s", got)
				}
				if got := strings.Join(version.Theirs, " "); got != tt.theirs {
					t.Errorf("theirs are %s, want %s", got, tt.theirs)
				}
				if p.spawned() != 2 || c.State() != fsm.Exhausted {
					t.Errorf("%d servers were started, and it is %s", p.spawned(), c.State())
				}
			})
		})
	}
}
