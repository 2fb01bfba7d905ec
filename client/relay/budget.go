package relay

import (
	"errors"
	"sync/atomic"

	"github.com/respawn-mcp/respawn/policy"
)

// faithful is a budget that forgives everything but a replacement that is another
// server than the host agreed with: what the host believes would be wrong for good.
// One that is parked may find the old server again.
//
// Nor does it forgive a second death before anything was answered. The engine sees to
// that where the host opens; one that asks nothing is taken at its word, and its
// server was not heard yet.
type faithful struct {
	policy.Budget
	served *atomic.Bool // nil: over HTTP, where no server dies of itself
}

func (b faithful) Spend(l policy.Ledger, d policy.Death, rnd float64) (policy.Ledger, policy.Verdict) {
	switch early := b.served != nil && !b.served.Load(); {
	case early && d.Gen > 1:
		return l, policy.Verdict{Why: "the second death before anything was answered"}
	case early:
		return l, policy.Verdict{Respawn: true, Why: "one death before anything was answered is forgiven"}
	}
	l, v := b.Budget.Spend(l, d, rnd)
	if v.Respawn && !l.Parked && errors.As(d.Cause, new(*DriftError)) {
		return l, policy.Verdict{Why: "the replacement is another server than the host agreed with"}
	}
	return l, v
}
