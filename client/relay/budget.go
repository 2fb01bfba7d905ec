package relay

import (
	"errors"

	"github.com/respawn-mcp/respawn/policy"
)

// faithful is a budget that forgives everything but a replacement that is another
// server than the host agreed with: what the host believes would be wrong for good.
// One that is parked may find the old server again.
type faithful struct{ policy.Budget }

func (b faithful) Spend(l policy.Ledger, d policy.Death, rnd float64) (policy.Ledger, policy.Verdict) {
	l, v := b.Budget.Spend(l, d, rnd)
	if v.Respawn && !l.Parked && errors.As(d.Cause, new(*DriftError)) {
		return l, policy.Verdict{Why: "the replacement is another server than the host agreed with"}
	}
	return l, v
}
