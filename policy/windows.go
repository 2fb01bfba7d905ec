package policy

import (
	"fmt"
	"slices"
	"time"
)

// Tumbling is a budget of limit restarts per window. The window opens at the first
// restart decision, a death exactly at its end is inside it, and the first one
// past it opens a fresh window: so up to 2·limit−1 restarts can fall into one
// window's width across a boundary. Permanent causes are spent at once.
//
// limit and window must be positive and wait valid; the error wraps [ErrInvalid].
func Tumbling(limit int, window time.Duration, wait Backoff) (Budget, error) {
	if err := validWindow(limit, window, wait); err != nil {
		return nil, err
	}
	return tumbling{limit, window, wait}, nil
}

// Sliding is a budget of at most limit restarts in any interval as wide as window,
// ends included. A restart counts from its decision until window after its
// spawn was due, so the bound holds for decisions and for spawns. Permanent
// causes are spent at once.
//
// limit and window must be positive and wait valid; the error wraps [ErrInvalid].
func Sliding(limit int, window time.Duration, wait Backoff) (Budget, error) {
	if err := validWindow(limit, window, wait); err != nil {
		return nil, err
	}
	return sliding{limit, window, wait}, nil
}

func validWindow(limit int, window time.Duration, wait Backoff) error {
	switch {
	case limit <= 0:
		return fmt.Errorf("%w: %d restarts is not positive (Never forgives none)", ErrInvalid, limit)
	case window <= 0:
		return fmt.Errorf("%w: window %v is not positive", ErrInvalid, window)
	}
	return wait.Validate()
}

type tumbling struct {
	limit  int
	window time.Duration
	wait   Backoff
}

func (b tumbling) Spend(l Ledger, d Death, rnd float64) (Ledger, Verdict) {
	l = l.charge(d)
	if permanent(d.Cause) {
		return l, spentPermanently
	}
	now := l.now(d)
	if len(l.Restarts) > 0 && now.Sub(l.Restarts[0]) > b.window {
		l.Restarts = nil
	}
	return grant(l, b.limit, b.window, now, b.wait.Delay(l.Streak, rnd))
}

func (b tumbling) String() string {
	return fmt.Sprintf("%s per %s (tumbling), delay %s", restarts(b.limit), short(b.window), b.wait)
}

type sliding struct {
	limit  int
	window time.Duration
	wait   Backoff
}

func (b sliding) Spend(l Ledger, d Death, rnd float64) (Ledger, Verdict) {
	l = l.charge(d)
	if permanent(d.Cause) {
		return l, spentPermanently
	}
	now := l.now(d)
	expired := 0
	for expired < len(l.Restarts) && now.Sub(l.Restarts[expired]) > b.window {
		expired++
	}
	l.Restarts = l.Restarts[expired:]
	wait := b.wait.Delay(l.Streak, rnd)
	return grant(l, b.limit, b.window, now.Add(wait), wait)
}

func (b sliding) String() string {
	return fmt.Sprintf("%s in any %s (sliding), delay %s", restarts(b.limit), short(b.window), b.wait)
}

// grant promises a restart, remembered as of at, if fewer than max still count.
func grant(l Ledger, limit int, window time.Duration, at time.Time, wait time.Duration) (Ledger, Verdict) {
	used := len(l.Restarts)
	if used >= limit {
		return l, Verdict{Why: fmt.Sprintf("%s death within %v, %s used", ordinal(used+1), window, restarts(used))}
	}
	l.Restarts = append(slices.Clone(l.Restarts), at)
	return l, Verdict{
		Respawn: true,
		Delay:   wait,
		Why:     fmt.Sprintf("restart %d of %d within %v", used+1, limit, window),
	}
}

func restarts(n int) string {
	if n == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", n)
}

// ordinal is 1st, 2nd, 3rd, 4th, 11th, 21st.
func ordinal(n int) string {
	suffix := "th"
	if teens := n % 100; teens < 11 || teens > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
