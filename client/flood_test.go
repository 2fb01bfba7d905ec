package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// A server may talk faster than callbacks listen. What waits is bounded, and what is
// dropped is counted.
func TestAServerThatTalksTooMuchForItsListenersCostsBoundedMemory(t *testing.T) {
	const said, bound = 10000, 8192
	for _, tt := range []struct {
		what, frame string
		listen      func(*client.Config, func())
		told        int
		untold      uint64
	}{
		{
			"log messages", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
			func(cfg *client.Config, hear func()) { cfg.OnLog = func(*mcp.LoggingMessageParams) { hear() } }, bound + 1, said - bound,
		},
		{
			"notifications", `{"jsonrpc":"2.0","method":"vendor/chatter"}`,
			func(cfg *client.Config, hear func()) { cfg.OnNotification = func(client.Notification) { hear() } }, bound + 1, said - bound,
		},
		{
			"changed listings, which are told together", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			func(cfg *client.Config, hear func()) { cfg.OnListChanged = func(client.Kind) { hear() } }, 64 + 1, 0,
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: on("resources/read", func(l *life, m message) error {
					for range said {
						l.Write(0, tt.frame)
					}
					l.result(m, `{"contents":[]}`)
					return nil
				})}
				told, first, slow := 0, make(chan struct{}), make(chan struct{})
				hear := func() {
					if told++; told == 1 {
						close(first)
					}
					<-slow
				}
				cfg := client.Config{Logger: quiet()}
				tt.listen(&cfg, hear)
				c := connect(t, p, cfg)
				p.last().Write(0, tt.frame)
				<-first
				if err := c.Call(t.Context(), "resources/read", map[string]string{"uri": "x"}, nil); err != nil {
					t.Error(err)
				}
				close(slow)
				synctest.Wait()
				want := fmt.Sprintf("told %d, dropped %d", tt.told, tt.untold)
				if diff := cmp.Diff(want, fmt.Sprintf("told %d, dropped %d", told, c.Stats().Untold)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
