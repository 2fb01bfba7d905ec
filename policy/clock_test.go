package policy_test

import (
	"testing"
	"time"
	"unsafe"

	. "github.com/respawn-mcp/respawn/policy"
)

// stepWall is t after somebody set the wall clock: the same instant to the
// monotonic clock, another one on the calendar. Package time offers no such
// value, so this writes the 33 bits of seconds that a Time with a monotonic
// reading holds; TestT13 checks that it did just that before it trusts it.
func stepWall(t time.Time, step time.Duration) time.Time {
	const shift = 30 // package time: the low 30 bits of wall are nanoseconds
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(int64(step/time.Second)) << shift
	return t
}

func TestT13_WallClockStepChangesNoVerdict(t *testing.T) {
	// Each death as the two clocks see it, after the first one at 0 and 0.
	type reading struct{ wall, mono time.Duration }
	tests := []struct {
		name   string
		deaths []reading
		want   []bool
	}{
		{"the wall jumps ahead by 8 h", []reading{{8 * time.Hour, 0}, {8 * time.Hour, 1}}, []bool{true, true, false}},
		{"the wall is set back by 1 h", []reading{{-time.Hour, time.Second}, {-time.Hour, window}}, []bool{true, true, false}},
		{"set back, and the window is over", []reading{{-time.Hour, time.Second}, {-time.Hour, window + 1}}, []bool{true, true, true}},
		{"both clocks run on for 1 h", []reading{{time.Hour, time.Hour}, {time.Hour, time.Hour}}, []bool{true, true, true}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			deaths := []Death{at(0)}
			for _, r := range tc.deaths {
				when := stepWall(epoch.Add(r.mono), (r.wall - r.mono).Truncate(time.Second))
				if got := when.Sub(epoch); got != r.mono {
					t.Fatalf("monotonic reading moved to %v", got)
				}
				if got := when.Round(0).Sub(epoch.Round(0)) - r.wall; got.Abs() > time.Second {
					t.Fatalf("wall clock is %v off", got)
				}
				deaths = append(deaths, Death{At: when})
			}
			for name, b := range map[string]Budget{
				"tumbling": must(Tumbling(2, window, Backoff{})),
				"sliding":  must(Sliding(2, window, Backoff{})),
			} {
				verdicts, _ := spend(b, 0, deaths...)
				equal(t, name+" respawned", tc.want, respawned(verdicts))
			}
		})
	}
}

func TestT13_TimeThatRunsBackwardsOpensNoWindow(t *testing.T) {
	wall := epoch.Round(0) // no monotonic reading: the calendar is all there is
	for name, b := range map[string]Budget{
		"tumbling": must(Tumbling(2, window, Backoff{})),
		"sliding":  must(Sliding(2, window, Backoff{})),
	} {
		t.Run(name, func(t *testing.T) {
			verdicts, l := spend(b, 0,
				Death{At: wall}, Death{At: wall.Add(-time.Hour)}, Death{At: wall.Add(-2 * time.Hour)},
				Death{At: wall.Add(window)}, Death{At: wall.Add(window + 1)})
			equal(t, "respawned", []bool{true, true, false, false, true}, respawned(verdicts))
			equal(t, "restarts that still count", wall.Add(window+1), l.Restarts[len(l.Restarts)-1])
		})
	}
}
