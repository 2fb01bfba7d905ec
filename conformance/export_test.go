package conformance

import (
	"testing"
	"time"
)

// TransportProblem runs one check of TestTransport with a patience of its own and
// returns what it finds wrong.
func TransportProblem(t *testing.T, check string, patience time.Duration, newPeer func(*testing.T, PeerKind) TransportPeer) []string {
	for _, c := range transportChecks {
		if c.name == check {
			problems, skipped := c.verify(patience, func() TransportPeer { return newPeer(t, c.kind) })
			if skipped != "" {
				t.Fatalf("%q was skipped: %s", check, skipped)
			}
			return problems
		}
	}
	t.Fatalf("no check %q", check)
	return nil
}
