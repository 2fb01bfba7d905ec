package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func ExampleConnect() {
	ctx := context.Background()
	c, err := client.Connect(ctx, stdio.Command("npx", "-y", "@modelcontextprotocol/server-everything"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
	if err != nil {
		log.Fatal(err, client.OutcomeOf(err)) // not executed, or outcome unknown?
	}
	fmt.Println(result.Content[0])
}
