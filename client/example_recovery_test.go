package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

// What a recovery changed, told once per replacement that serves. The budget
// forgives more than the default one and starts the first replacement at once.
func ExampleConfig_onReconnect() {
	ctx := context.Background()
	server, kill := fragileServer()
	back := make(chan struct{})
	c, err := client.Connect(ctx, server, &client.Config{
		Budget: policy.Patient(),
		OnEnd: func(e client.Ended) {
			if e.Verdict.Respawn {
				fmt.Printf("life %d ended: %v; %s\n", e.Gen, e.Cause, e.Verdict.Why)
			}
		},
		OnReconnect: func(r client.Reconnect) {
			fmt.Printf("life %d serves; changed: %v\n", r.Generation, r.Changed)
			close(back)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	kill()
	<-back
	// Output:
	// life 1 ended: killed by the test; restart 1 of 6 within 2m0s
	// life 2 serves; changed: [serverInfo]
}

// A server that hangs does not die by itself. With Liveness it is asked after a
// silence, and replaced when it does not answer.
func ExampleLiveness() {
	ctx := context.Background()
	ended := make(chan error, 10)
	c, err := client.Connect(ctx, sleepyServer(), &client.Config{
		WaitForReady: true,
		// Real ones are longer: 30 s, and the defaults of 10 s and 3 misses.
		Liveness: client.Liveness{Idle: 10 * time.Millisecond, Timeout: 500 * time.Millisecond, Misses: 1},
		OnEnd:    func(e client.Ended) { ended <- e.Cause },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	fmt.Println(errors.Is(<-ended, client.ErrUnresponsive))
	fmt.Println(c.Ping(ctx)) // the replacement answers
	// Output:
	// true
	// <nil>
}

// A dashboard that follows a server through its lives.
func ExampleClient_WaitForStateChange() {
	ctx := context.Background()
	server, kill := fragileServer()
	slow, err := policy.Tumbling(3, time.Minute, policy.Constant(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Connect(ctx, server, &client.Config{Budget: slow})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	kill()
	state := fsm.Serving
	for c.WaitForStateChange(ctx, state) {
		state = c.State() // it may have changed more than once
		fmt.Println("reconnecting:", c.IsReconnecting())
		break
	}
	// Output: reconnecting: true
}
