//go:build !race

// The race detector allocates too, so nothing is counted under it.

package client_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// echo is a modern server that costs next to nothing: it answers each call with
// 100 bytes.
func echo(ctx context.Context, c *memory.Conn) error {
	const discovered = `"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`
	answer := `"result":{"text":"` + strings.Repeat("x", 100) + `"}}`
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		body := answer
		if out.Method == "server/discover" {
			body = discovered
		}
		frame := append(make([]byte, 0, 256), `{"jsonrpc":"2.0","id":`...)
		frame = append(append(append(frame, out.ID...), ','), body...)
		c.Emit(transports.Message{Frame: frame})
	}
}

// A call of 100 bytes may cost 30 allocations and 4 KiB, those of the transport and
// the server in this process included.
func TestACallOf100BytesCostsAtMost30AllocationsAnd4KiB(t *testing.T) {
	const (
		calls     = 1000
		mostCount = 30
		mostBytes = 4 << 10
	)
	c, err := client.Connect(t.Context(), memory.Factory(transports.Pipe, "echo", echo), &client.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	params := map[string]string{"text": strings.Repeat("x", 100)}
	var result struct {
		Text string `json:"text"`
	}
	call := func() {
		if err := c.Call(t.Context(), "tools/call", params, &result); err != nil || len(result.Text) != 100 {
			t.Errorf("%q, %v", result.Text, err)
		}
	}
	call() // what is made once is no cost of a call
	count := testing.AllocsPerRun(calls, call)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		call()
	}
	runtime.ReadMemStats(&after)
	size := (after.TotalAlloc - before.TotalAlloc) / calls
	t.Logf("%.0f allocations and %d bytes a call", count, size)
	if count > mostCount || size > mostBytes {
		t.Errorf("a call costs %.0f allocations and %d bytes, more than %d and %d", count, size, mostCount, mostBytes)
	}
}
