package main

import (
	"context"

	"github.com/respawn-mcp/respawn/transports"
)

// guardArg is the hidden command that makes this program the guard of another one
// of itself: a process that outlives it by as long as it takes to kill the server's
// group. A process that is killed (SIGKILL) can't do that itself, and the system
// ends at most its direct child.
const guardArg = "guard-the-server-of-my-parent"

// guarded returns a factory whose servers the guard is told of: it forgets each one
// when its group is gone, before its number can mean another.
func guarded(f transports.Factory, g *guard) transports.Factory {
	unguarded := f.New
	f.New = func() transports.Transport { return guardedTransport{unguarded(), g} }
	return f
}

type guardedTransport struct {
	transports.Transport
	g *guard
}

func (t guardedTransport) Serve(ctx context.Context, emit func(transports.Event)) error {
	defer t.g.forget()
	return t.Transport.Serve(ctx, emit)
}
