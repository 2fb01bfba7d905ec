package main

import (
	"context"
	"errors"
	"os/exec"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var errNoText = errors.New("the result is not one text")

// sdk is the official Go SDK's client.
type sdk struct{ session *mcp.ClientSession }

func dialSDK(ctx context.Context, t target) (peer, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(t.path, t.args()...)}, nil)
	if err != nil {
		return nil, err
	}
	return &sdk{session}, nil
}

func (c *sdk) call(ctx context.Context, text string) (string, error) {
	res, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: callArguments{Text: text}})
	if err != nil {
		return "", err
	}
	return sdkText(res)
}

// sdkText reads the echo out of a result in the SDK's types.
func sdkText(res *mcp.CallToolResult) (string, error) {
	if len(res.Content) != 1 {
		return "", errNoText
	}
	content, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		return "", errNoText
	}
	return content.Text, nil
}

func (c *sdk) close() error { return c.session.Close() }

// markLabs is mark3labs/mcp-go's client.
type markLabs struct{ client *mcpgoclient.Client }

func dialMarkLabs(ctx context.Context, t target) (peer, error) {
	c, err := mcpgoclient.NewStdioMCPClient(t.path, nil, t.args()...)
	if err != nil {
		return nil, err
	}
	var init mcpgo.InitializeRequest
	init.Params.ClientInfo = mcpgo.Implementation{Name: "bench", Version: "1"}
	if _, err := c.Initialize(ctx, init); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &markLabs{c}, nil
}

func (c *markLabs) call(ctx context.Context, text string) (string, error) {
	var req mcpgo.CallToolRequest
	req.Params.Name = "echo"
	req.Params.Arguments = callArguments{Text: text}
	res, err := c.client.CallTool(ctx, req)
	if err != nil {
		return "", err
	}
	if len(res.Content) != 1 {
		return "", errNoText
	}
	content, ok := res.Content[0].(mcpgo.TextContent)
	if !ok {
		return "", errNoText
	}
	return content.Text, nil
}

func (c *markLabs) close() error { return c.client.Close() }
