package conformance

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// PeerKind is how the far end of a transport under test behaves.
type PeerKind string

const (
	// PeerEcho answers each request at once, in order, with [EchoReply].
	PeerEcho PeerKind = "echo"
	// PeerSilent takes every message and never says anything.
	PeerSilent PeerKind = "silent"
	// PeerDeaf takes no message, so that a Pipe has to queue. It is asked for on
	// a Pipe only.
	PeerDeaf PeerKind = "deaf"
	// PeerAbsent is not there: a command that does not exist, an address that
	// refuses connections.
	PeerAbsent PeerKind = "absent"
)

// TransportPeer is a transport under test and what the test needs of its far end.
// A peer without a Factory skips the checks that need that kind.
type TransportPeer struct {
	Factory transports.Factory
	// Kill ends the peer of the running incarnation as a crash would; Serve must
	// return then. nil skips the checks of a death: over HTTP a server may die
	// and come back without an incarnation ending.
	Kill func()
	// Left names what is still running or open of the peer, after Serve returned
	// and Close was called: processes, connections. Goroutines are looked for
	// anyway. nil: nothing to name.
	Left func() []string
	// Close ends what the author started beside the transport, such as a test
	// server, before anything is looked for. nil: nothing.
	Close func()
}

// EchoReply is what a [PeerEcho] answers to a message: a result that is the
// request's params. ok is false for what is no request.
func EchoReply(message []byte) (reply []byte, ok bool) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(message, &m) != nil || m.ID == nil || m.Method == nil {
		return nil, false
	}
	if m.Params == nil {
		m.Params = json.RawMessage("{}")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, m.Params), true
}

// patience bounds every wait of a check, far beyond what a transport needs: a
// Pipe that stops a stubborn process may take some seconds.
const patience = 30 * time.Second

// TestTransport verifies that a transport keeps the contract of package
// transports. newPeer is called for each check and returns a fresh peer of the
// kind asked for, with a transport to it. Everything is checked with real time,
// so it does not run inside a testing/synctest bubble.
//
//	conformance.TestTransport(t, func(t *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
//		command := map[conformance.PeerKind]string{
//			conformance.PeerEcho: "./echo", conformance.PeerSilent: "./silent", …
//		}[kind]
//		return conformance.TransportPeer{Factory: stdio.Command(command)}
//	})
func TestTransport(t *testing.T, newPeer func(*testing.T, PeerKind) TransportPeer) {
	for _, c := range transportChecks {
		t.Run(c.name, func(t *testing.T) {
			problems, skipped := c.verify(patience, func() TransportPeer { return newPeer(t, c.kind) })
			for _, p := range problems {
				t.Error(p)
			}
			if skipped != "" {
				t.Skip(skipped)
			}
		})
	}
}

// transportCheck is one thing that every transport does.
type transportCheck struct {
	name  string
	kind  PeerKind
	needs need
	run   func(*rig)
}

type need uint8

const (
	anyShape need = iota
	aPipe         // the check speaks of a Pipe's order, or of its queue
	aDeath        // the check needs Kill
)
