package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

var errKilled = errors.New("killed by the test")

// memoryPeer is the reference transport for the kit, in one shape.
func memoryPeer(shape transports.Shape) func(*testing.T, conformance.PeerKind) conformance.TransportPeer {
	return func(_ *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
		kill := make(chan struct{})
		peers := map[conformance.PeerKind]memory.Peer{
			conformance.PeerEcho: func(ctx context.Context, c *memory.Conn) error {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				go func() {
					select {
					case <-kill:
						cancel(errKilled)
					case <-ctx.Done():
					}
				}()
				for {
					out, err := c.Read(ctx)
					if err != nil {
						return err
					}
					if reply, ok := conformance.EchoReply(out.Frame); ok {
						c.Write(out.Ref, string(reply))
					}
				}
			},
			conformance.PeerSilent: func(ctx context.Context, c *memory.Conn) error {
				for {
					if _, err := c.Read(ctx); err != nil {
						return err
					}
				}
			},
			conformance.PeerDeaf: func(ctx context.Context, _ *memory.Conn) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}
		if peers[kind] == nil {
			return conformance.TransportPeer{}
		}
		return conformance.TransportPeer{
			Factory: memory.Factory(shape, string(kind), peers[kind]),
			Kill:    func() { close(kill) },
		}
	}
}

func TestTheReferenceTransportKeepsTheContract(t *testing.T) {
	for _, shape := range []transports.Shape{transports.Pipe, transports.Posts} {
		t.Run(shape.String(), func(t *testing.T) { conformance.TestTransport(t, memoryPeer(shape)) })
	}
}
