package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at are samples of one side, a round each, in which a call took so long.
func at(perCall ...time.Duration) []sample {
	var out []sample
	for _, d := range perCall {
		out = append(out, sample{calls: 1, elapsed: d})
	}
	return out
}

func TestARatioComparesWithinARound(t *testing.T) {
	c := cells[0]
	s := &speed{base: nameLeast, samples: map[cell]map[string][]sample{c: {
		// The machine was ten times slower in the second round, for both.
		nameLeast: at(100, 1000, 110),
		nameOurs:  at(200, 2000, 220),
	}}}
	if got := s.ratio(c, nameOurs, nameLeast); got != 0.5 {
		t.Errorf("the ratio is %v, want 0.5", got)
	}
}

func TestTheBenchNamesEachExpectationThatIsNotMet(t *testing.T) {
	s := &speed{over: "stdio", samples: map[cell]map[string][]sample{}, expects: stdioExpects()}
	for _, c := range cells {
		s.samples[c] = map[string][]sample{
			nameLeast: at(80), nameOurs: at(100), nameRetry: at(101), nameTyped: at(110), nameSDK: at(200), nameMark: at(300),
		}
	}
	s.samples[cells[3]][nameMark] = at(105)
	r := &recovery{
		// The second kill met a slow moment of the machine, on every side.
		bare: []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond},
		ours: map[time.Duration][]time.Duration{
			delays[0]: {11 * time.Millisecond, 110 * time.Millisecond, 11 * time.Millisecond},
			delays[1]: {112 * time.Millisecond, 220 * time.Millisecond, 112 * time.Millisecond},
		},
	}
	want := []string{
		"stdio, 100 B sequential: respawn, Call is at 0.80 of the least client, expected at least 0.85",
		"stdio, 64 KiB, 64 at once: respawn, CallTool is at 0.95 of the mcp-go v1.2.1, expected at least 1.00",
		"recovery with a delay of 100ms, less that delay, takes 1.20 of the bare sequence, expected at most 1.10",
	}
	if diff := cmp.Diff(want, append(s.unmet(), r.unmet()...)); diff != "" {
		t.Errorf("not met (-want +got):\n%s", diff)
	}
}
