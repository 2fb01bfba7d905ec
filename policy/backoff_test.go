package policy_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	. "github.com/respawn-mcp/respawn/policy"
)

const ms = time.Millisecond

func TestBackoff_DelaysByDeathInARow(t *testing.T) {
	tests := []struct {
		name    string
		backoff Backoff
		rnd     float64
		want    []time.Duration // of the 1st, 2nd, ... death
	}{
		{"the zero value waits nothing", Backoff{}, 0.5, []time.Duration{0, 0, 0}},
		{"constant", Constant(100 * ms), 0.5, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"a factor of 1 is constant", Backoff{Base: 2, Factor: 1}, 0, []time.Duration{2, 2, 2}},
		{"exponential", Backoff{Base: 100 * ms, Factor: 2}, 0, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms}},
		{
			"exponential up to a cap",
			Backoff{Base: 100 * ms, Factor: 4, Cap: time.Second},
			0,
			[]time.Duration{100 * ms, 400 * ms, time.Second, time.Second},
		},
		{
			"first at once, then the base",
			Backoff{AtOnce: true, Base: 100 * ms, Factor: 4},
			0,
			[]time.Duration{0, 100 * ms, 400 * ms},
		},
		{"at once and no base is always at once", Backoff{AtOnce: true}, 0, []time.Duration{0, 0}},
		{
			"jitter adds its fraction of rnd",
			Backoff{Base: 100 * ms, Factor: 2, Jitter: 0.2},
			0.5,
			[]time.Duration{110 * ms, 220 * ms},
		},
		{
			"jitter is added after the cap",
			Backoff{Base: time.Second, Factor: 2, Cap: time.Second, Jitter: 0.5},
			0.5,
			[]time.Duration{1250 * ms, 1250 * ms},
		},
		{"no randomness, no jitter", Backoff{Base: time.Second, Jitter: 1}, 0, []time.Duration{time.Second}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := make([]time.Duration, len(tc.want))
			for i := range got {
				got[i] = tc.backoff.Delay(i+1, tc.rnd)
			}
			equal(t, "delays", tc.want, got)
		})
	}
}

func TestBackoff_NeverOverflows(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	tests := []struct {
		name    string
		backoff Backoff
		n       int
		rnd     float64
		want    time.Duration
	}{
		{"uncapped, many deaths", Backoff{Base: 1, Factor: 2}, 64, 0, most},
		{"uncapped, as many deaths as an int holds", Backoff{Base: 1, Factor: 2}, math.MaxInt, 0, most},
		{"capped, as many deaths as an int holds", Backoff{Base: 1, Factor: 2, Cap: time.Second}, math.MaxInt, 0, time.Second},
		{"the longest base with jitter", Backoff{Base: most, Jitter: 1}, 1, 0.999, most},
		{"a base of 0 times infinity", Backoff{Factor: 10}, math.MaxInt, 0.5, 0},
		{"a count below 1 is the first", Backoff{Base: ms, Factor: 2}, math.MinInt, 0, ms},
		{"randomness that is no number", Backoff{Base: ms, Jitter: 1}, 1, math.NaN(), ms},
		{"an unvalidated negative base", Backoff{Base: -ms}, 1, 0, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			equal(t, "delay", tc.want, tc.backoff.Delay(tc.n, tc.rnd))
		})
	}
}

func TestBackoff_StaysBetweenBaseAndCapPlusJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "base"))
		b := Backoff{
			Base:   base,
			Factor: rapid.Float64Range(1, 100).Draw(t, "factor"),
			Cap:    base + time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "above")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(1, math.MaxInt-1).Draw(t, "n")
		rnd := rapid.Float64Range(0, 0.999).Draw(t, "rnd")
		if err := b.Validate(); err != nil {
			t.Fatalf("valid backoff refused: %v", err)
		}
		d := b.Delay(n, rnd)
		if most := time.Duration(float64(b.Cap)*(1+b.Jitter)) + 1; d < b.Base || d > most {
			t.Fatalf("%v: delay %d is %v, outside %v to %v", b, n, d, b.Base, most)
		}
		if next := b.Delay(n+1, rnd); next < d {
			t.Fatalf("%v: delay shrinks from %v to %v", b, d, next)
		}
	})
}

func TestBackoff_RefusesWhatMakesNoSense(t *testing.T) {
	tests := []struct {
		name    string
		backoff Backoff
		want    string // "" is valid
	}{
		{"zero value", Backoff{}, ""},
		{"constant", Constant(time.Second), ""},
		{"cap equal to base", Backoff{Base: 1, Cap: 1}, ""},
		{"negative base", Constant(-1), "policy: invalid value: backoff base -1ns is negative"},
		{"negative cap", Backoff{Cap: -1}, "policy: invalid value: backoff cap -1ns is negative"},
		{"cap below base", Backoff{Base: 2, Cap: 1}, "policy: invalid value: backoff cap 1ns is below its base 2ns"},
		{"factor below 1", Backoff{Factor: 0.5}, "policy: invalid value: backoff factor 0.5 is below 1 or infinite"},
		{"infinite factor", Backoff{Factor: math.Inf(1)}, "policy: invalid value: backoff factor +Inf is below 1 or infinite"},
		{"factor that is no number", Backoff{Factor: math.NaN()}, "policy: invalid value: backoff factor NaN is below 1 or infinite"},
		{"negative jitter", Backoff{Jitter: -0.1}, "policy: invalid value: backoff jitter -0.1 is outside 0 to 1"},
		{"jitter above 1", Backoff{Jitter: 1.1}, "policy: invalid value: backoff jitter 1.1 is outside 0 to 1"},
		{"jitter that is no number", Backoff{Jitter: math.NaN()}, "policy: invalid value: backoff jitter NaN is outside 0 to 1"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err, got := tc.backoff.Validate(), ""
			if err != nil {
				got = err.Error()
			}
			equal(t, "error", tc.want, got)
			equal(t, "wraps ErrInvalid", tc.want != "", errors.Is(err, ErrInvalid))
		})
	}
}
