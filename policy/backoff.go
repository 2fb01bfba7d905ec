package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// ErrInvalid is wrapped by every error of a constructor or a Validate of this
// package.
var ErrInvalid = errors.New("policy: invalid value")

// ResetUptime is how long an incarnation must have served for its death to
// start a new streak, that is, to reset the exponent of a backoff. It never
// refills a budget: only the window does. Ten seconds is longer than any crash
// at start-up and shorter than any useful session.
const ResetUptime = 10 * time.Second

// Backoff is the delay between a death and its replacement. It is stateless:
// the caller counts. The zero value waits nothing, which is legal.
type Backoff struct {
	// Base is the first delay that is not "at once". Default 0: no delay at all.
	Base time.Duration
	// Factor multiplies the delay at each further death in a row. 0 and 1 mean a
	// constant delay; below 1 is invalid.
	Factor float64
	// Cap bounds the delay before jitter. 0 means no bound.
	Cap time.Duration
	// Jitter is the largest fraction that chance adds, from 0 (default, none) to
	// 1. It only ever adds, and it is added after Cap, so that peers that have
	// reached the cap still spread: the longest delay is Cap × (1 + Jitter).
	Jitter float64
	// AtOnce makes the first delay 0; the second is then Base.
	AtOnce bool
}

// Constant is a Backoff that always waits d.
func Constant(d time.Duration) Backoff { return Backoff{Base: d} }

// Delay answers for the nth death in a row, counted from 1; a smaller n counts
// as 1. rnd is in [0, 1) and 0 means no jitter. The result is never negative and
// never overflows, at any n and for any value of the fields.
func (b Backoff) Delay(n int, rnd float64) time.Duration {
	n = max(n, 1)
	if b.AtOnce {
		if n == 1 {
			return 0
		}
		n--
	}
	if b.Base <= 0 {
		return 0
	}
	d := float64(b.Base)
	if b.Factor > 1 {
		d *= math.Pow(b.Factor, float64(n-1)) // may be +Inf, which the bounds below absorb
	}
	if b.Cap > 0 {
		d = min(d, float64(b.Cap))
	}
	if rnd > 0 && b.Jitter > 0 { // false for NaN
		d += d * min(b.Jitter, 1) * min(rnd, 1)
	}
	// float64(math.MaxInt64) is 2^63, one more than a Duration holds.
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

// Validate reports, wrapping [ErrInvalid], a negative duration, a factor that
// would shrink the delay, a cap below the base and a jitter outside [0, 1].
func (b Backoff) Validate() error {
	switch {
	case b.Base < 0:
		return fmt.Errorf("%w: backoff base %v is negative", ErrInvalid, b.Base)
	case b.Cap < 0:
		return fmt.Errorf("%w: backoff cap %v is negative", ErrInvalid, b.Cap)
	case b.Cap > 0 && b.Cap < b.Base:
		return fmt.Errorf("%w: backoff cap %v is below its base %v", ErrInvalid, b.Cap, b.Base)
	case b.Factor != 0 && !(b.Factor >= 1) || math.IsInf(b.Factor, 0): // the negation catches NaN
		return fmt.Errorf("%w: backoff factor %v is below 1 or infinite", ErrInvalid, b.Factor)
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return fmt.Errorf("%w: backoff jitter %v is outside 0 to 1", ErrInvalid, b.Jitter)
	}
	return nil
}

// String is a phrase such as "at once, then 100ms ×4 up to 15s, jitter 0 to +20 %".
func (b Backoff) String() string {
	var s strings.Builder
	if b.AtOnce {
		s.WriteString("at once")
		if b.Base <= 0 {
			return s.String()
		}
		s.WriteString(", then ")
	}
	s.WriteString(short(max(b.Base, 0)))
	if b.Base > 0 && b.Factor > 1 {
		fmt.Fprintf(&s, " ×%g", b.Factor)
		if b.Cap > 0 {
			fmt.Fprintf(&s, " up to %s", short(b.Cap))
		}
	}
	if b.Base > 0 && b.Jitter > 0 {
		fmt.Fprintf(&s, ", jitter 0 to +%g %%", b.Jitter*100)
	}
	return s.String()
}

// short is d without the zero units that Duration.String appends: "1m", not
// "1m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
