package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
)

func text(t *testing.T, r *mcp.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

func TestTheMainJob(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{legacy: legacy}
			c := connect(t, p, client.Config{})
			wantEra := map[bool]string{false: "modern", true: "legacy"}[legacy]
			if got := c.Server().Era; got != wantEra {
				t.Errorf("the server is of the %s era, want %s", got, wantEra)
			}
			r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			if got := text(t, r, err); got != "generation 1" {
				t.Errorf("the first call was answered %q", got)
			}
			p.kill()
			synctest.Wait()
			if c.State() != fsm.Dead || !c.IsReconnecting() {
				t.Errorf("after the kill the state is %s", c.State())
			}
			_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			if notServing := new(client.NotServingError); !errors.As(err, &notServing) || client.OutcomeOf(err) != client.NotExecuted {
				t.Errorf("a call between a death and its replacement: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			r, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			if got := text(t, r, err); got != "generation 2" {
				t.Errorf("the call after the respawn was answered %q", got)
			}
			want := []string{"1 server/discover", "1 tools/call", "2 server/discover", "2 tools/call"}
			if legacy {
				want = []string{
					"1 server/discover", "1 initialize", "1 notifications/initialized", "1 tools/call",
					"2 initialize", "2 notifications/initialized", "2 tools/call",
				}
			}
			if diff := cmp.Diff(want, p.received()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
