package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/respawn-mcp/respawn/policy"
)

// epoch carries a monotonic reading, as every death that the engine reports.
var epoch = time.Now()

// at is a death at an offset from epoch, of an incarnation that never served.
func at(offset time.Duration) Death { return Death{At: epoch.Add(offset)} }

// spend charges deaths one after the other and returns the verdicts and the
// ledger that is left. Numbers of generations run from 1.
func spend(b Budget, rnd float64, deaths ...Death) ([]Verdict, Ledger) {
	var l Ledger
	verdicts := make([]Verdict, len(deaths))
	for i, d := range deaths {
		d.Gen = uint64(i + 1)
		l, verdicts[i] = b.Spend(l, d, rnd)
	}
	return verdicts, l
}

// crashLoop is n deaths of a peer that never serves: each as soon as the delay
// of the verdict before is over. It stops after a verdict that ends supervision.
func crashLoop(b Budget, n int) (verdicts []Verdict, outage time.Duration) {
	var l Ledger
	for i := range n {
		var v Verdict
		l, v = b.Spend(l, Death{Gen: uint64(i + 1), At: epoch.Add(outage)}, 0)
		verdicts = append(verdicts, v)
		if !v.Respawn {
			break
		}
		outage += v.Delay
	}
	return verdicts, outage
}

func respawned(verdicts []Verdict) []bool {
	yes := make([]bool, len(verdicts))
	for i, v := range verdicts {
		yes[i] = v.Respawn
	}
	return yes
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func must(b Budget, err error) Budget {
	if err != nil {
		panic(err)
	}
	return b
}
