package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// A read that was in flight when the server died is made again on its
// replacement. Its caller sees the answer and nothing else.
func ExampleConfig_retryLost() {
	ctx := context.Background()
	server, _ := fragileServer("resources/read")
	c, err := client.Connect(ctx, server, &client.Config{RetryLost: true})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	r, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///notes"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Contents[0].Text)
	// Output: read by life 2
}

// A tool is never made to run twice. The error says that it may have run once.
func ExampleOutcomeOf() {
	ctx := context.Background()
	server, _ := fragileServer("tools/call")
	c, err := client.Connect(ctx, server, &client.Config{RetryLost: true})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	_, err = c.CallTool(ctx, &mcp.CallToolParams{Name: "pay"})
	switch client.OutcomeOf(err) {
	case client.Answered:
		fmt.Println("the server answered", err)
	case client.NotExecuted:
		fmt.Println("it is safe to try again")
	case client.OutcomeUnknown:
		fmt.Println("look whether it took effect before you try again")
	}
	// Output: look whether it took effect before you try again
}

// While nobody serves a call is refused at once, unless it may wait. Either can be
// said for all calls or for one.
func ExampleConfig_waitForReady() {
	ctx := context.Background()
	server, kill := fragileServer()
	down := make(chan client.Ended, 2) // the second is Close
	c, err := client.Connect(ctx, server, &client.Config{
		WaitForReady: true,
		OnEnd:        func(e client.Ended) { down <- e },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	kill()
	<-down
	_, err = c.Do(ctx, client.Request{Method: "tools/call", Wait: client.WaitNever})
	refused := new(client.NotServingError)
	fmt.Println("refused:", errors.As(err, &refused))
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "work"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*mcp.TextContent).Text)
	// Output:
	// refused: true
	// done by life 2
}

// Progress is told in order, before the call returns.
func ExampleClient_Do_progress() {
	ctx := context.Background()
	server, _ := fragileServer()
	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	resp, err := c.Do(ctx, client.Request{
		Method:   "tools/call",
		Params:   &mcp.CallToolParams{Name: "work"},
		Progress: func(p client.Progress) { fmt.Println("progress", p.Progress) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("answered by life", resp.Generation)
	// Output:
	// progress 1
	// progress 2
	// answered by life 1
}

// All pages, one tool after the other.
func ExampleClient_Tools() {
	ctx := context.Background()
	c, err := client.Connect(ctx, pagedServer(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for tool, err := range c.Tools(ctx) {
		if errors.Is(err, client.ErrCursorLost) {
			log.Fatal("the server died between two pages: start over")
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tool.Name)
	}
	// Output:
	// 1/1
	// 1/2
	// 1/3
}
