package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

// since lists what a generation got, with the params of requests that set state.
func since(p *peer, gen int) (got []string) {
	for _, m := range p.messages() {
		if m.Gen != gen {
			continue
		}
		line := m.Method
		if strings.HasPrefix(line, "resources/") || line == "logging/setLevel" {
			line += " " + string(m.Params)
		}
		got = append(got, line)
	}
	return got
}

// subscribe asks for a resource by the generic call.
func subscribe(t *testing.T, c *client.Client, method, uri string) {
	t.Helper()
	if err := c.Call(t.Context(), "resources/"+method, map[string]string{"uri": uri}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestS49_WhatALegacyServerWasToldItsReplacementIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true}
		c := connect(t, p, client.Config{WaitForReady: true, RetryLost: true})
		for _, level := range []string{"debug", "error"} {
			if err := c.Call(t.Context(), "logging/setLevel", map[string]string{"level": level}, nil); err != nil {
				t.Fatal(err)
			}
		}
		subscribe(t, c, "subscribe", "b")
		subscribe(t, c, "subscribe", "a")
		subscribe(t, c, "subscribe", "c")
		subscribe(t, c, "subscribe", "a")
		subscribe(t, c, "unsubscribe", "c")
		subscribe(t, c, "unsubscribe", "never")
		listen(t, c, client.Filter{URIs: []string{"a", "d"}}, &diary{}) // a is subscribed already
		for gen := 2; gen <= 3; gen++ {
			p.kill()
			synctest.Wait()
			if got := tool(t.Context(), c); got != fmt.Sprintf("generation %d", gen) {
				t.Error(got)
			}
			want := []string{
				"initialize", "notifications/initialized", `logging/setLevel {"level":"error"}`,
				`resources/subscribe {"uri":"b"}`, `resources/subscribe {"uri":"a"}`, `resources/subscribe {"uri":"d"}`,
				"tools/call",
			}
			if diff := cmp.Diff(want, since(p, gen)); diff != "" {
				t.Errorf("generation %d: %s", gen, diff)
			}
		}
	})
}

func TestS49_OnlyWhatAServerAcceptedIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
			switch {
			case l.gen > 1:
			case strings.Contains(string(m.Params), "refused"):
				l.fail(m, -32602, "no")
				return true, nil
			case strings.Contains(string(m.Params), "unanswered"):
				return true, nil
			}
			return false, nil
		}}
		c := connect(t, p, client.Config{RequestTimeout: time.Second})
		for _, params := range []map[string]string{{"level": "refused"}, {"level": "unanswered"}, {"other": "1"}} {
			_ = c.Call(t.Context(), "logging/setLevel", params, nil)
		}
		for _, params := range []map[string]string{{"uri": "refused"}, {"uri": "unanswered"}, {"other": "1"}} {
			_ = c.Call(t.Context(), "resources/subscribe", params, nil)
		}
		p.kill()
		pass(time.Second)
		if diff := cmp.Diff([]string{"initialize", "notifications/initialized"}, since(p, 2)); diff != "" {
			t.Error(diff)
		}
	})
}

// A server that takes its state back slowly, or never, keeps nobody waiting for
// longer than the bound.
func TestS49_TheReplayIsBounded(t *testing.T) {
	for _, tt := range []struct {
		takes, want time.Duration
		lost        int
	}{{time.Second, time.Second, 0}, {4 * time.Second, 4 * time.Second, 0}, {time.Hour, 5 * time.Second, 3}} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
				if l.gen > 1 && (m.Method == "logging/setLevel" || m.Method == "resources/subscribe") {
					l.later(tt.takes, func() { l.answer(m) })
					return true, nil
				}
				return false, nil
			}}
			log, logger := logbook()
			cfg := client.Config{WaitForReady: true, Logger: logger}
			again := reconnects(&cfg)
			c := connect(t, p, cfg)
			if err := c.SetLogLevel(t.Context(), "error"); err != nil {
				t.Fatal(err)
			}
			subscribe(t, c, "subscribe", "a")
			subscribe(t, c, "subscribe", "b")
			p.kill()
			synctest.Wait()
			begun := time.Now()
			if got := tool(t.Context(), c); got != "generation 2" {
				t.Error(got)
			}
			if took := time.Since(begun) - defaultDelay; took != tt.want {
				t.Errorf("a call waited for %s, want %s", took, tt.want)
			}
			synctest.Wait()
			if len(*again) != 1 || len((*again)[0].Lost) != tt.lost {
				t.Errorf("told: %+v", *again)
			}
			if n := strings.Count(log.String(), "did not take back its state"); n != tt.lost {
				t.Errorf("%d losses were logged: %s", n, log)
			}
		})
	}
}

func TestB087_OneRefusalIsReportedAndNotFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
			if l.gen == 2 && string(m.Params) == `{"uri":"b"}` {
				l.fail(m, -32602, "no such resource")
				return true, nil
			}
			return false, nil
		}}
		cfg := client.Config{WaitForReady: true}
		again := reconnects(&cfg)
		c := connect(t, p, cfg)
		for _, uri := range []string{"a", "b", "c"} {
			subscribe(t, c, "subscribe", uri)
		}
		subscribe(t, c, "unsubscribe", "c")
		if err := c.SetLogLevel(t.Context(), "warning"); err != nil {
			t.Fatal(err)
		}
		p.kill()
		synctest.Wait()
		if got := tool(t.Context(), c); got != "generation 2" {
			t.Error(got)
		}
		want := []string{
			"initialize", "notifications/initialized", `logging/setLevel {"level":"warning"}`,
			`resources/subscribe {"uri":"a"}`, `resources/subscribe {"uri":"b"}`, "tools/call",
		}
		if diff := cmp.Diff(want, since(p, 2)); diff != "" {
			t.Error(diff)
		}
		synctest.Wait()
		if len(*again) != 1 || len((*again)[0].Lost) != 1 ||
			fmt.Sprint((*again)[0].Lost[0]) != `client: not restored: resources/subscribe {"uri":"b"}: client: the server answered with an error: no such resource (code -32602)` {
			t.Errorf("what may have been missed, and was lost, is told: %+v", *again)
		}
		p.kill() // B is still wanted, and the third server takes it
		pass(defaultDelay)
		if diff := cmp.Diff(want[:5], since(p, 3)); diff != "" {
			t.Error(diff)
		}
		if n := len((*again)[1].Lost); n != 0 {
			t.Errorf("%d were lost", n)
		}
	})
}

// Subscriptions that were made by the legacy request have no equal in the modern
// era but a stream, which its caller must open: they are reported as lost.
func TestB087_LegacySubscriptionsThatAModernServerCantTakeAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := eraChange(false, func(l *life, m message) error { l.fail(m, -32601, "no"); return nil })
		cfg := client.Config{}
		again := reconnects(&cfg)
		c := connect(t, p, cfg)
		subscribe(t, c, "subscribe", "a")
		listen(t, c, client.Filter{URIs: []string{"b"}}, &diary{})
		p.kill()
		pass(time.Second)
		var lost []string
		for _, err := range (*again)[0].Lost {
			lost = append(lost, err.Error())
		}
		if diff := cmp.Diff([]string{`client: not restored: resources/subscribe {"uri":"a"}: the server is modern and knows no such request`}, lost); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSetLogLevel_IsARequestToALegacyServerAndMetadataToAModernOne(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy}
			c := connect(t, p, client.Config{})
			if err := c.SetLogLevel(t.Context(), "notice"); err != nil {
				t.Fatal(err)
			}
			if got := tool(t.Context(), c); got != "generation 1" {
				t.Error(got)
			}
			asked, carried := len(p.got("logging/setLevel")), strings.Contains(string(p.got("tools/call")[0].Params), `"io.modelcontextprotocol/logLevel":"notice"`)
			if legacy != (asked == 1) || legacy == carried {
				t.Errorf("legacy %t: %d requests, and in the metadata: %t", legacy, asked, carried)
			}
		})
	}
}
