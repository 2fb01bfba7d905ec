package client_test

import (
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
)

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
