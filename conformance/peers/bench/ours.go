package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// Names in the table.
const (
	nameOurs  = "respawn, Call"
	nameRetry = "respawn, Call, RetryLost"
	nameTyped = "respawn, CallTool"
)

// oursCall is this project's client by its generic call, which does what the
// least client does.
type oursCall struct{ client *client.Client }

func dialOurs(ctx context.Context, t target, cfg *client.Config) (*client.Client, error) {
	return client.Connect(ctx, stdio.Command(t.path, t.args()...), cfg)
}

func dialOursCall(ctx context.Context, t target) (peer, error) {
	c, err := dialOurs(ctx, t, nil)
	return oursCall{c}, err
}

// dialOursRetry is the same with what it costs to be able to send a read again.
func dialOursRetry(ctx context.Context, t target) (peer, error) {
	c, err := dialOurs(ctx, t, &client.Config{RetryLost: true})
	return oursCall{c}, err
}

func (c oursCall) call(ctx context.Context, text string) (string, error) {
	var result callResult
	params := callParams{Name: "echo", Arguments: callArguments{Text: text}}
	if err := c.client.Call(ctx, "tools/call", params, &result); err != nil {
		return "", err
	}
	return result.text()
}

func (c oursCall) close() error { return c.client.Close(context.Background()) }

// oursTyped is the typed call, which decodes into the official SDK's types as
// the SDK's own client does.
type oursTyped struct{ oursCall }

func dialOursTyped(ctx context.Context, t target) (peer, error) {
	c, err := dialOurs(ctx, t, nil)
	return oursTyped{oursCall{c}}, err
}

func (c oursTyped) call(ctx context.Context, text string) (string, error) {
	res, err := c.client.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: callArguments{Text: text}})
	if err != nil {
		return "", err
	}
	return sdkText(res)
}

// survivor is a client whose server may be killed without end.
type survivor struct {
	client *client.Client
	text   string
}

func dialSurvivor(ctx context.Context, t target, kills int, delay time.Duration) (*survivor, error) {
	budget, err := policy.Tumbling(kills, time.Hour, policy.Constant(delay))
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler) // or each kill is two lines between the tables
	c, err := dialOurs(ctx, t, &client.Config{Budget: budget, WaitForReady: true, Logger: quiet})
	if err != nil {
		return nil, err
	}
	return &survivor{c, text(sizes[0])}, nil
}

// recovery kills the server and calls until a call is answered. A call that was
// made before the death was noticed may be lost, and is made again.
func (s *survivor) recovery(ctx context.Context) (time.Duration, error) {
	var server struct {
		PID int `json:"pid"`
	}
	if err := s.client.Call(ctx, "bench/pid", nil, &server); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := kill(server.PID); err != nil {
		return 0, err
	}
	for {
		_, err := oursCall{s.client}.call(ctx, s.text)
		if err == nil {
			return time.Since(start), nil
		}
		if s.client.Err() != nil {
			return 0, fmt.Errorf("no recovery: %w", err)
		}
	}
}
