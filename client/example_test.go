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
	server := stdio.Command("npx", "-y", "@modelcontextprotocol/server-everything", "stdio")
	c, err := client.Connect(ctx, server, &client.Config{WaitForReady: true})
	if err != nil {
		log.Fatal(err) // the first start failed, and nothing is left running
	}
	defer c.Close(ctx)
	echo := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}}
	res, err := c.CallTool(ctx, echo)            // if the server was killed, by a new one
	fmt.Println(client.OutcomeOf(err), res, err) // answered, not executed, or outcome unknown
}
