// Package policy decides and does nothing else: no goroutine, no clock, no I/O.
// It imports nobody who defines causes; a cause says itself whether it is
// permanent, by a method Permanent() bool found with errors.As.
package policy

import "time"

// Death is what a budget is asked about: one ending of a live incarnation.
type Death struct {
	Gen    uint64        // the generation that ended
	At     time.Time     // when, with its monotonic reading
	Uptime time.Duration // how long it served; 0 if it never did
	Cause  error
}

// Verdict is a budget's answer.
type Verdict struct {
	Respawn bool          // a replacement is promised
	OnUse   bool          // ... but only once somebody waits for it
	Parked  bool          // ... as the budget was spent, and Park tries on
	Delay   time.Duration // from the decision to the earliest spawn
	Why     string        // one clause for logs and errors
}

// Ledger is what a budget remembers of one peer. The zero value is an empty one.
// It is a value: Spend returns a new one and never changes the old.
type Ledger struct {
	Restarts []time.Time // restarts that still count, oldest first
	Streak   int         // deaths in a row without an uptime of ResetUptime: the exponent of a backoff
	Parked   bool        // Park has taken over, until an incarnation serves for ResetUptime
}

// Budget decides how many deaths are forgiven. Implementations are immutable.
type Budget interface {
	// Spend charges one death to a ledger. rnd is in [0, 1) and the only source
	// of randomness; 0 means none.
	Spend(l Ledger, d Death, rnd float64) (Ledger, Verdict)
}
