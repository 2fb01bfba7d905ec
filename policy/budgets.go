package policy

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Contract is the default for a process: a tumbling window of 3 restarts per
// minute, each after 100 ms. It is enough for an occasional crash and small
// enough that a broken installation is reported within a second.
func Contract() Budget {
	return tumbling{limit: 3, window: time.Minute, wait: Constant(100 * time.Millisecond)}
}

// The numbers of [Patient].
const (
	PatientLimit  = 6
	PatientWindow = 2 * time.Minute
)

// Patient is a sliding window of 6 restarts in any 2 minutes, after
// [PatientDelay].
func Patient() Budget {
	return sliding{limit: PatientLimit, window: PatientWindow, wait: PatientDelay()}
}

// PatientDelay restarts at once the first time, so that a blip is invisible, then
// after 100 ms ×4 up to 15 s, so that the six restarts of [Patient] last through
// an outage of 20 s.
func PatientDelay() Backoff {
	return Backoff{AtOnce: true, Base: 100 * time.Millisecond, Factor: 4, Cap: 15 * time.Second, Jitter: 0.2}
}

// Unlimited forgives every death, permanent causes included, once somebody
// waits: the first at once, then after 100 ms ×2 up to 30 s. It is the default
// for Posts, where a new session costs one exchange and nobody's process.
// The cap is half of the default request timeout, so that a request that
// meets the longest delay still has its turn.
func Unlimited() Budget {
	return unlimited{wait: Backoff{
		AtOnce: true, Base: 100 * time.Millisecond, Factor: 2, Cap: 30 * time.Second, Jitter: 0.2,
	}}
}

// Never forgives no death: no supervision.
func Never() Budget { return never{} }

// Park turns the end of b, a permanent cause included, into one try per every,
// made on use. Parked, b is not asked: a try that does not serve for
// [ResetUptime] waits the interval again, so that a window of b that opens
// meanwhile does not turn one try into several. After such an uptime b decides
// again. Parking what is parked already changes nothing.
//
// b must not be nil and every must be positive; the error wraps [ErrInvalid].
func Park(b Budget, every time.Duration) (Budget, error) {
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: no budget to park", ErrInvalid)
	case every <= 0:
		return nil, fmt.Errorf("%w: parking interval %v is not positive", ErrInvalid, every)
	}
	if p, ok := b.(parked); ok {
		return p, nil
	}
	return parked{b, every}, nil
}

type unlimited struct{ wait Backoff }

func (b unlimited) Spend(l Ledger, d Death, rnd float64) (Ledger, Verdict) {
	l = l.charge(d)
	return l, Verdict{
		Respawn: true,
		OnUse:   true,
		Delay:   b.wait.Delay(l.Streak, rnd),
		Why:     fmt.Sprintf("%s death in a row, restarts are unlimited", ordinal(l.Streak)),
	}
}

func (b unlimited) String() string {
	return fmt.Sprintf("unlimited restarts on use, delay %s", b.wait)
}

type never struct{}

func (never) Spend(l Ledger, d Death, _ float64) (Ledger, Verdict) {
	l = l.charge(d)
	if permanent(d.Cause) {
		return l, spentPermanently
	}
	return l, Verdict{Why: "the budget forgives no death"}
}

func (never) String() string { return "no restart" }

type parked struct {
	Budget
	every time.Duration
}

func (b parked) Spend(l Ledger, d Death, rnd float64) (Ledger, Verdict) {
	if l.Parked && d.Uptime < ResetUptime {
		l = l.charge(d)
		return l, b.verdict("the last try failed")
	}
	l, v := b.Budget.Spend(l, d, rnd)
	l.Parked = !v.Respawn
	if v.Respawn {
		return l, v
	}
	return l, b.verdict(v.Why)
}

func (b parked) verdict(why string) Verdict {
	return Verdict{
		Respawn: true,
		OnUse:   true,
		Parked:  true,
		Delay:   b.every,
		Why:     fmt.Sprintf("parked, one try per %v: %s", b.every, why),
	}
}

func (b parked) String() string {
	return fmt.Sprintf("%v, then one try per %s on use", b.Budget, short(b.every))
}

// spentPermanently is the verdict on a permanent cause.
var spentPermanently = Verdict{Why: "the cause is permanent, a restart would meet it again"}

// permanent asks the cause itself, so that policy knows nobody who defines one.
func permanent(cause error) bool {
	var p interface{ Permanent() bool }
	return errors.As(cause, &p) && p.Permanent()
}

// charge counts a death into the streak.
func (l Ledger) charge(d Death) Ledger {
	if d.Uptime >= ResetUptime {
		l.Streak = 0
	}
	if l.Streak < math.MaxInt { // a peer that dies for ever must not turn its streak negative
		l.Streak++
	}
	return l
}

// now is when d happened, but never before the last restart: a clock that runs
// backwards (a death without a monotonic reading) neither opens a window nor
// empties one.
func (l Ledger) now(d Death) time.Time {
	if n := len(l.Restarts); n > 0 && d.At.Before(l.Restarts[n-1]) {
		return l.Restarts[n-1]
	}
	return d.At
}
