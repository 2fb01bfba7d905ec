package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "github.com/respawn-mcp/respawn/policy"
)

const window = time.Minute

func TestS14_WindowOpensAtTheFirstRestartDecision(t *testing.T) {
	b := must(Tumbling(2, window, Backoff{}))
	restart := func(n int) Verdict {
		return Verdict{Respawn: true, Why: fmt.Sprintf("restart %d of 2 within 1m0s", n)}
	}
	spent := Verdict{Why: "3rd death within 1m0s, 2 restarts used"}
	const opens = time.Hour // long after the start, which opens nothing
	tests := []struct {
		name   string
		deaths []time.Duration // after the first one
		want   []Verdict
	}{
		{"a death exactly at window end is inside", []time.Duration{1, window}, []Verdict{restart(1), restart(2), spent}},
		{"the first past it opens a fresh window", []time.Duration{1, window + 1}, []Verdict{restart(1), restart(2), restart(1)}},
		{
			"which ends a window after that death, not after the first",
			[]time.Duration{window + 1, 2*window + 1, 2*window + 1},
			[]Verdict{restart(1), restart(1), restart(2), spent},
		},
		{
			"and whose end is inside again",
			[]time.Duration{window + 1, 2*window + 2, 2*window + 3},
			[]Verdict{restart(1), restart(1), restart(1), restart(2)},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			deaths := []Death{at(opens)}
			for _, offset := range tc.deaths {
				deaths = append(deaths, at(opens+offset))
			}
			verdicts, _ := spend(b, 0, deaths...)
			equal(t, "verdicts", tc.want, verdicts)
		})
	}
}

func TestS15_ThreeRespawnsAndTheFourthDeathEndsSupervision(t *testing.T) {
	verdicts, l := spend(Contract(), 0, at(0), at(time.Second), at(2*time.Second), at(window))
	equal(t, "verdicts", []Verdict{
		{Respawn: true, Delay: 100 * ms, Why: "restart 1 of 3 within 1m0s"},
		{Respawn: true, Delay: 100 * ms, Why: "restart 2 of 3 within 1m0s"},
		{Respawn: true, Delay: 100 * ms, Why: "restart 3 of 3 within 1m0s"},
		{Why: "4th death within 1m0s, 3 restarts used"},
	}, verdicts)
	equal(t, "ledger", Ledger{
		Restarts: []time.Time{epoch, epoch.Add(time.Second), epoch.Add(2 * time.Second)}, Streak: 4,
	}, l)
}

func TestS16_UptimeRefillsNoBudget(t *testing.T) {
	long := func(offset time.Duration) Death { return Death{At: epoch.Add(offset), Uptime: time.Hour} }
	for name, b := range map[string]Budget{
		"tumbling": must(Tumbling(2, window, Backoff{})),
		"sliding":  must(Sliding(2, window, Backoff{})),
	} {
		t.Run(name, func(t *testing.T) {
			verdicts, _ := spend(b, 0, long(0), long(20*time.Second), long(40*time.Second))
			equal(t, "respawned", []bool{true, true, false}, respawned(verdicts))
		})
	}
}

func TestS16_UptimeResetsTheExponentOfABackoff(t *testing.T) {
	wait := Backoff{Base: time.Second, Factor: 2}
	served := func(offset, uptime time.Duration) Death { return Death{At: epoch.Add(offset), Uptime: uptime} }
	for name, b := range map[string]Budget{
		"tumbling": must(Tumbling(9, time.Hour, wait)),
		"sliding":  must(Sliding(9, time.Hour, wait)),
	} {
		t.Run(name, func(t *testing.T) {
			verdicts, _ := spend(b, 0, served(0, 0), served(1, ResetUptime-1), served(2, ResetUptime), served(3, 0))
			var delays []time.Duration
			for _, v := range verdicts {
				delays = append(delays, v.Delay)
			}
			equal(t, "delays", []time.Duration{time.Second, 2 * time.Second, time.Second, 2 * time.Second}, delays)
		})
	}
}

func TestS17_SlidingForgetsEachRestartOnItsOwn(t *testing.T) {
	b := must(Sliding(2, window, Backoff{}))
	tests := []struct {
		name   string
		deaths []time.Duration
		want   []bool
	}{
		{"a restart exactly a window ago counts", []time.Duration{0, 1, window}, []bool{true, true, false}},
		{"one past it does not", []time.Duration{0, 1, window + 1}, []bool{true, true, true}},
		{"but the second one still does", []time.Duration{0, 1, window + 1, window + 1}, []bool{true, true, true, false}},
		{"until its turn", []time.Duration{0, 1, window + 1, window + 2}, []bool{true, true, true, true}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var deaths []Death
			for _, offset := range tc.deaths {
				deaths = append(deaths, at(offset))
			}
			verdicts, _ := spend(b, 0, deaths...)
			equal(t, "respawned", tc.want, respawned(verdicts))
		})
	}
}

func TestS17_SlidingCountsFromTheSpawnNotFromTheDecision(t *testing.T) {
	b := must(Sliding(1, window, Constant(time.Second)))
	verdicts, _ := spend(b, 0, at(0), at(window+1), at(window+time.Second), at(window+time.Second+1))
	equal(t, "respawned", []bool{true, false, false, true}, respawned(verdicts))
}

// every is a peer that serves for an uptime and dies, n times.
func every(uptime time.Duration, n int) []Death {
	deaths := make([]Death, n)
	for i := range deaths {
		deaths[i] = Death{At: epoch.Add(time.Duration(i+1) * uptime), Uptime: uptime}
	}
	return deaths
}

func TestB055_OneCrashADayNeverExhausts(t *testing.T) {
	for name, b := range map[string]Budget{"contract": Contract(), "patient": Patient(), "unlimited": Unlimited()} {
		t.Run(name, func(t *testing.T) {
			verdicts, _ := spend(b, 0, every(24*time.Hour, 30)...)
			equal(t, "respawned", slices.Repeat([]bool{true}, 30), respawned(verdicts))
		})
	}
}

func TestB056_AServerThatServesAndDiesIsBoundedByTheWindow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		budget Budget
		limit  int
	}{{"contract", Contract(), 3}, {"patient", Patient(), 6}} {
		t.Run(tc.name, func(t *testing.T) {
			verdicts, _ := spend(tc.budget, 0, every(19*time.Second, tc.limit+1)...)
			equal(t, "every 19 s", append(slices.Repeat([]bool{true}, tc.limit), false), respawned(verdicts))
			verdicts, _ = spend(tc.budget, 0, every(21*time.Second, 100)...)
			equal(t, "every 21 s", slices.Repeat([]bool{true}, 100), respawned(verdicts))
		})
	}
}

// life draws a history that a peer can have: each death comes after the spawn
// that the verdict before promised. It returns when restarts were decided and
// when they were due.
func life(t *rapid.T, b Budget, unit time.Duration) (decided, due []time.Time) {
	var l Ledger
	now := epoch
	for i := range rapid.IntRange(1, 60).Draw(t, "deaths") {
		uptime := time.Duration(rapid.Int64Range(0, 4).Draw(t, "uptime")) * unit
		now = now.Add(uptime)
		var v Verdict
		l, v = b.Spend(l, Death{Gen: uint64(i + 1), At: now, Uptime: uptime}, rapid.Float64Range(0, 0.999).Draw(t, "rnd"))
		if v.Respawn {
			decided = append(decided, now)
			now = now.Add(v.Delay)
			due = append(due, now)
		}
	}
	return decided, due
}

// densest is the largest number of times in any closed interval of a width.
func densest(times []time.Time, width time.Duration) int {
	most := 0
	for i, from := range times {
		n := 0
		for _, t := range times[i:] {
			if t.Sub(from) <= width {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func drawBackoff(t *rapid.T) Backoff {
	base := time.Duration(rapid.Int64Range(0, int64(window)).Draw(t, "base"))
	return Backoff{
		Base: base, Factor: rapid.Float64Range(1, 4).Draw(t, "factor"), Cap: 2*base + 1,
		Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"), AtOnce: rapid.Bool().Draw(t, "at once"),
	}
}

func TestS17_TumblingNeverDecidesMoreThanTwiceMaxMinusOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "max")
		decided, _ := life(t, must(Tumbling(limit, window, drawBackoff(t))), window/8)
		if got := densest(decided, window); got > 2*limit-1 {
			t.Fatalf("%d restarts within one window's width, at most %d allowed", got, 2*limit-1)
		}
	})
}

func TestS17_TumblingReachesTwiceMaxMinusOneAcrossABoundary(t *testing.T) {
	b := must(Tumbling(3, window, Backoff{}))
	verdicts, _ := spend(b, 0, at(0), at(window), at(window), at(window+1), at(window+1), at(window+1))
	equal(t, "respawned", []bool{true, true, true, true, true, true}, respawned(verdicts))
}

func TestS17_SlidingNeverDecidesNorSpawnsMoreThanMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "max")
		decided, due := life(t, must(Sliding(limit, window, drawBackoff(t))), window/8)
		if got := densest(decided, window); got > limit {
			t.Fatalf("%d restarts decided within one window's width, at most %d allowed", got, limit)
		}
		if got := densest(due, window); got > limit {
			t.Fatalf("%d restarts due within one window's width, at most %d allowed", got, limit)
		}
	})
}

func drawBudget(t *rapid.T) (Budget, int) {
	limit := rapid.IntRange(1, 4).Draw(t, "max")
	b := rapid.SampledFrom([]Budget{
		Contract(), Patient(), Unlimited(), Never(),
		must(Tumbling(limit, window, drawBackoff(t))), must(Sliding(limit, window, drawBackoff(t))),
	}).Draw(t, "budget")
	if rapid.Bool().Draw(t, "park") {
		b = must(Park(b, window))
	}
	return b, 6 // the largest Max of them all, Patient's
}

func TestSpend_IsPureAndItsLedgerBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, bound := drawBudget(t)
		var l Ledger
		now := epoch
		for i := range rapid.IntRange(1, 40).Draw(t, "deaths") {
			now = now.Add(time.Duration(rapid.Int64Range(-10, 30).Draw(t, "step")) * time.Second)
			d := Death{
				Gen: uint64(i + 1), At: now,
				Uptime: time.Duration(rapid.Int64Range(0, 20).Draw(t, "uptime")) * time.Second,
			}
			if rapid.IntRange(0, 9).Draw(t, "permanent") == 0 {
				d.Cause = permanentCause(true)
			}
			rnd := rapid.Float64Range(0, 0.999).Draw(t, "rnd")
			before := Ledger{slices.Clone(l.Restarts), l.Streak, l.Parked}
			next, verdict := b.Spend(l, d, rnd)
			again, same := b.Spend(l, d, rnd)
			if diff := cmp.Diff([]any{next, verdict}, []any{again, same}); diff != "" {
				t.Fatalf("the same death was answered twice in different ways:\n%s", diff)
			}
			if diff := cmp.Diff(before, l); diff != "" {
				t.Fatalf("Spend changed the ledger it was given:\n%s", diff)
			}
			if len(next.Restarts) > bound || !slices.IsSortedFunc(next.Restarts, time.Time.Compare) {
				t.Fatalf("the ledger grew beyond %d or lost its order: %v", bound, next.Restarts)
			}
			if verdict.Delay < 0 || verdict.Why == "" {
				t.Fatalf("verdict with a negative delay or no reason: %+v", verdict)
			}
			l = next
		}
	})
}

func TestSpend_TwoFuturesOfOneLedgerDoNotTouch(t *testing.T) {
	b := Contract()
	_, l := spend(b, 0, at(0))
	left, _ := b.Spend(l, at(1), 0)
	right, _ := b.Spend(l, at(2), 0)
	equal(t, "left", []time.Time{epoch, epoch.Add(1)}, left.Restarts)
	equal(t, "right", []time.Time{epoch, epoch.Add(2)}, right.Restarts)
}

func TestT13_TimeReadInsideABubbleIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Contract()
		var l Ledger
		var got []bool
		for _, wait := range []time.Duration{0, 20 * time.Second, 20 * time.Second, 20 * time.Second, 1} {
			time.Sleep(wait) // fake time
			var v Verdict
			l, v = b.Spend(l, Death{At: time.Now()}, 0)
			got = append(got, v.Respawn)
		}
		equal(t, "respawned", []bool{true, true, true, false, true}, got)
	})
}
