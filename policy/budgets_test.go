package policy_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"testing"
	"time"

	. "github.com/respawn-mcp/respawn/policy"
)

func TestS1_Defaults(t *testing.T) {
	tests := []struct {
		name   string
		budget Budget
		text   string
		first  Verdict
	}{
		{
			"contract", Contract(), "3 restarts per 1m (tumbling), delay 100ms",
			Verdict{Respawn: true, Delay: 100 * ms, Why: "restart 1 of 3 within 1m0s"},
		},
		{
			"patient", Patient(),
			"6 restarts in any 2m (sliding), delay at once, then 100ms ×4 up to 15s, jitter 0 to +20 %",
			Verdict{Respawn: true, Why: "restart 1 of 6 within 2m0s"},
		},
		{
			"unlimited", Unlimited(),
			"unlimited restarts on use, delay at once, then 100ms ×2 up to 30s, jitter 0 to +20 %",
			Verdict{Respawn: true, OnUse: true, Why: "1st death in a row, restarts are unlimited"},
		},
		{"never", Never(), "no restart", Verdict{Why: "the budget forgives no death"}},
		{
			"parked", must(Park(Never(), time.Minute)), "no restart, then one try per 1m on use",
			Verdict{Respawn: true, OnUse: true, Parked: true, Delay: time.Minute, Why: "parked, one try per 1m0s: the budget forgives no death"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			equal(t, "text", tc.text, fmt.Sprint(tc.budget))
			verdicts, _ := spend(tc.budget, 0, at(0))
			equal(t, "first verdict", []Verdict{tc.first}, verdicts)
		})
	}
}

func TestS1_InvalidValuesAreErrorsWhenBuilt(t *testing.T) {
	type build func(int, time.Duration, Backoff) (Budget, error)
	kinds := map[string]build{"tumbling": Tumbling, "sliding": Sliding}
	tests := []struct {
		name   string
		limit  int
		window time.Duration
		wait   Backoff
		want   string // "" is valid
	}{
		{"one restart per nanosecond, zero delay", 1, 1, Backoff{}, ""},
		{"no restarts", 0, 1, Backoff{}, "policy: invalid value: 0 restarts is not positive (Never forgives none)"},
		{"negative restarts", -1, 1, Backoff{}, "policy: invalid value: -1 restarts is not positive (Never forgives none)"},
		{"no window", 1, 0, Backoff{}, "policy: invalid value: window 0s is not positive"},
		{"negative window", 1, -1, Backoff{}, "policy: invalid value: window -1ns is not positive"},
		{"negative delay", 1, 1, Constant(-1), "policy: invalid value: backoff base -1ns is negative"},
	}
	for kind, build := range kinds {
		for _, tc := range tests {
			t.Run(kind+", "+tc.name, func(t *testing.T) {
				b, err := build(tc.limit, tc.window, tc.wait)
				got := ""
				if err != nil {
					got = err.Error()
				}
				equal(t, "error", tc.want, got)
				equal(t, "wraps ErrInvalid", tc.want != "", errors.Is(err, ErrInvalid))
				equal(t, "built", tc.want == "", b != nil)
			})
		}
	}
}

func TestS1_ParkRefusesNoBudgetAndNoInterval(t *testing.T) {
	for _, tc := range []struct {
		name  string
		inner Budget
		every time.Duration
		want  string
	}{
		{"no budget", nil, time.Minute, "policy: invalid value: no budget to park"},
		{"no interval", Contract(), 0, "policy: invalid value: parking interval 0s is not positive"},
		{"negative interval", Contract(), -1, "policy: invalid value: parking interval -1ns is not positive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := Park(tc.inner, tc.every)
			equal(t, "error", tc.want, fmt.Sprint(err))
			equal(t, "wraps ErrInvalid", true, errors.Is(err, ErrInvalid))
			equal(t, "built", false, b != nil)
		})
	}
}

func TestS13_DelayIsConstantByDefault(t *testing.T) {
	verdicts, _ := spend(Contract(), 0.999, at(0), at(time.Second), at(2*time.Second))
	for i, v := range verdicts {
		equal(t, fmt.Sprintf("delay after death %d", i+1), 100*ms, v.Delay)
	}
}

// permanentCause says itself whether another try could help.
type permanentCause bool

func (permanentCause) Error() string     { return "no common protocol version" }
func (p permanentCause) Permanent() bool { return bool(p) }

func TestS20_PermanentCauseIsSpentAtOnce(t *testing.T) {
	permanently := Verdict{Why: "the cause is permanent, a restart would meet it again"}
	restart := func(n, of int, window string, d time.Duration) Verdict {
		return Verdict{Respawn: true, Delay: d, Why: fmt.Sprintf("restart %d of %d within %s", n, of, window)}
	}
	unlimited := Verdict{Respawn: true, OnUse: true, Why: "1st death in a row, restarts are unlimited"}
	wrapped := fmt.Errorf("opening exchange: %w", permanentCause(true))
	tests := []struct {
		name   string
		budget Budget
		cause  error
		want   Verdict
	}{
		{"contract", Contract(), permanentCause(true), permanently},
		{"contract, wrapped", Contract(), wrapped, permanently},
		{"contract, joined", Contract(), errors.Join(fs.ErrClosed, wrapped), permanently},
		{"contract, a cause that says it is not", Contract(), permanentCause(false), restart(1, 3, "1m0s", 100*ms)},
		{"contract, a cause that says nothing", Contract(), fs.ErrPermission, restart(1, 3, "1m0s", 100*ms)},
		{"contract, no cause", Contract(), nil, restart(1, 3, "1m0s", 100*ms)},
		{"patient", Patient(), wrapped, permanently},
		{"never", Never(), wrapped, permanently},
		{"unlimited knows no permanent cause", Unlimited(), wrapped, unlimited},
		{"park tries it too, once per interval, on use", must(Park(Contract(), time.Minute)), wrapped, Verdict{
			Respawn: true, OnUse: true, Parked: true, Delay: time.Minute,
			Why: "parked, one try per 1m0s: the cause is permanent, a restart would meet it again",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, got := tc.budget.Spend(Ledger{}, Death{Gen: 1, At: epoch, Cause: tc.cause}, 0)
			equal(t, "verdict", tc.want, got)
		})
	}
}

func TestUnlimited_BacksOffAndForgetsItAfterTenSecondsOfUptime(t *testing.T) {
	served := func(offset, uptime time.Duration) Death { return Death{At: epoch.Add(offset), Uptime: uptime} }
	verdicts, l := spend(Unlimited(), 0,
		served(0, 0), served(1, 0), served(2, ResetUptime-1), served(3, ResetUptime), served(4, 0))
	equal(t, "verdicts", []Verdict{
		{Respawn: true, OnUse: true, Why: "1st death in a row, restarts are unlimited"},
		{Respawn: true, OnUse: true, Delay: 100 * ms, Why: "2nd death in a row, restarts are unlimited"},
		{Respawn: true, OnUse: true, Delay: 200 * ms, Why: "3rd death in a row, restarts are unlimited"},
		{Respawn: true, OnUse: true, Why: "1st death in a row, restarts are unlimited"},
		{Respawn: true, OnUse: true, Delay: 100 * ms, Why: "2nd death in a row, restarts are unlimited"},
	}, verdicts)
	equal(t, "ledger", Ledger{Streak: 2}, l)
}

func TestUnlimited_ForEverNeitherGrowsNorOverflows(t *testing.T) {
	b := Unlimited()
	var l Ledger
	for i := range 100_000 {
		l, _ = b.Spend(l, at(time.Duration(i)), 0)
	}
	equal(t, "ledger after many deaths", Ledger{Streak: 100_000}, l)

	l, v := b.Spend(Ledger{Streak: math.MaxInt}, at(0), 0)
	equal(t, "ledger after as many as an int holds", Ledger{Streak: math.MaxInt}, l)
	equal(t, "delay", 30*time.Second, v.Delay)
}

func TestPatient_IsInvisibleOnABlipAndOutlastsTwentySeconds(t *testing.T) {
	verdicts, outage := crashLoop(Patient(), 10)
	delays := make([]time.Duration, len(verdicts))
	for i, v := range verdicts {
		delays[i] = v.Delay
	}
	equal(t, "delays", []time.Duration{0, 100 * ms, 400 * ms, 1600 * ms, 6400 * ms, 15 * time.Second, 0}, delays)
	equal(t, "last verdict", Verdict{Why: "7th death within 2m0s, 6 restarts used"}, verdicts[len(verdicts)-1])
	equal(t, "time of the last try", 23500*ms, outage)
}

func TestS19_ParkTriesOncePerIntervalOnUse(t *testing.T) {
	b := must(Park(Contract(), time.Minute))
	parked := func(why string) Verdict {
		return Verdict{Respawn: true, OnUse: true, Parked: true, Delay: time.Minute, Why: "parked, one try per 1m0s: " + why}
	}
	restart := func(n int) Verdict {
		return Verdict{Respawn: true, Delay: 100 * ms, Why: fmt.Sprintf("restart %d of 3 within 1m0s", n)}
	}
	verdicts, l := spend(b, 0,
		at(0), at(1), at(2), at(3),
		// The window is long over, yet a failed try earns no three more.
		at(time.Hour), at(2*time.Hour),
		// A try that served long enough gives the decision back to the budget.
		Death{At: epoch.Add(3 * time.Hour), Uptime: ResetUptime}, at(3*time.Hour+1))
	equal(t, "verdicts", []Verdict{
		restart(1), restart(2), restart(3), parked("4th death within 1m0s, 3 restarts used"),
		parked("the last try failed"), parked("the last try failed"),
		restart(1), restart(2),
	}, verdicts)
	equal(t, "ledger", Ledger{Restarts: []time.Time{epoch.Add(3 * time.Hour), epoch.Add(3*time.Hour + 1)}, Streak: 2}, l)
}

func TestPark_OfAParkedBudgetChangesNothing(t *testing.T) {
	once := must(Park(Contract(), time.Minute))
	twice := must(Park(once, time.Hour))
	equal(t, "text", fmt.Sprint(once), fmt.Sprint(twice))
}
