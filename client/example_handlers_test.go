package client_test

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// callTool prints the text that a tool answers with.
func callTool(server func() (*client.Client, error)) {
	ctx := context.Background()
	c, err := server()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "notes"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*mcp.TextContent).Text)
}

// The user fills a form in while a tool waits. Fields that are left out get the
// defaults of the form. The handler is the same in both eras.
func ExampleConfig_elicit() {
	callTool(func() (*client.Client, error) {
		return client.Connect(context.Background(), formServer(), &client.Config{
			Elicit: func(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				fmt.Println(p.Message)
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "gopher"}}, nil
			},
		})
	})
	// Output:
	// Who are you?
	// hello, gopher
}

// A server has a model of the client's say something.
func ExampleConfig_createMessage() {
	server := askingServer("sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"2+2?"}}],"maxTokens":5}`)
	callTool(func() (*client.Client, error) {
		return client.Connect(context.Background(), server, &client.Config{
			CreateMessage: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
				fmt.Println(p.Messages[0].Content.(*mcp.TextContent).Text)
				return &mcp.CreateMessageResult{Role: "assistant", Model: "abacus", Content: &mcp.TextContent{Text: "4"}}, nil
			},
		})
	})
	// Output:
	// 2+2?
	// {"content":{"type":"text","text":"4"},"model":"abacus","role":"assistant"}
}

// A server asks where it may work.
func ExampleConfig_listRoots() {
	callTool(func() (*client.Client, error) {
		return client.Connect(context.Background(), askingServer("roots/list", `{}`), &client.Config{
			ListRoots: func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) {
				return &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///home/me/notes", Name: "notes"}}}, nil
			},
		})
	})
	// Output: {"roots":[{"name":"notes","uri":"file:///home/me/notes"}]}
}
