package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/respawn-mcp/respawn/client"
)

// A subscription outlives the server: the replacement is asked for the same, and
// the callback goes on.
func ExampleClient_Listen() {
	ctx := context.Background()
	server, kill := changingServer()
	c, err := client.Connect(ctx, server, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	told := make(chan client.Notification)
	sub, err := c.Listen(ctx, client.Filter{Tools: true}, func(n client.Notification) { told <- n })
	if err != nil {
		log.Fatal(err)
	}
	granted, err := sub.Acknowledged(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("granted:", granted.Tools)
	n := <-told
	fmt.Println("life", n.Generation, n.Method)
	kill()
	n = <-told
	fmt.Println("life", n.Generation, n.Method)
	sub.Close()
	fmt.Println("ended:", sub.Wait(ctx))
	// Output:
	// granted: true
	// life 1 notifications/tools/list_changed
	// life 2 notifications/tools/list_changed
	// ended: <nil>
}
