package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/client"
)

// The random walk: a client with any options does anything, its server is born,
// lives and dies anyhow, and what must hold in any life holds. A run is a plan,
// drawn beforehand, so that rapid can shrink it. It makes 100 runs, and 10,000 for
// make random.
type walk struct {
	Eras    []bool
	Births  []birth
	Fates   []fate
	Options options
	Steps   []pace
}

type options struct {
	RetryLost, WaitForReady, Liveness, Cache bool
	Budget                                   int
	MaxHeld                                  int
	Timeout                                  time.Duration
}

// pace is one step of the walk.
type pace struct {
	Do      string
	Method  string
	Wait    client.Wait
	Idle    time.Duration
	Patient time.Duration // of the caller; 0: any
	For     time.Duration
	Which   int
}

var (
	whats = []string{
		"call", "call", "call", "call", "call", "pass", "pass", "settle", "kill", "kill",
		"listen", "listen", "unlisten", "announce", "announce", "level", "subscribe", "notify", "list", "close",
	}
	methods = []string{"tools/call", "tools/call", "resources/read", "resources/read", "prompts/get", "vendor/do"}
	spans   = []time.Duration{0, 1, time.Millisecond, 99 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond, time.Second, 5 * time.Second, 40 * time.Second, 2 * time.Minute}
)

func drawWalk(t *rapid.T) walk {
	flag := rapid.Bool()
	return walk{
		Eras:   rapid.SliceOfN(flag, 1, 4).Draw(t, "legacy"),
		Births: rapid.SliceOfN(rapid.Custom(drawBirth), 0, 5).Draw(t, "births"),
		Fates:  rapid.SliceOfN(rapid.Custom(drawFate), 1, 20).Draw(t, "fates"),
		Options: options{
			flag.Draw(t, "RetryLost"), flag.Draw(t, "WaitForReady"), flag.Draw(t, "Liveness"), flag.Draw(t, "Cache"),
			rapid.IntRange(0, 4).Draw(t, "Budget"), rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "MaxHeld"),
			rapid.SampledFrom([]time.Duration{0, 0, time.Second}).Draw(t, "RequestTimeout"),
		},
		Steps: rapid.SliceOfN(rapid.Custom(drawPace), 20, 80).Draw(t, "steps"),
	}
}

// Most are born well and most requests are answered, so that walks come far.
func drawBirth(t *rapid.T) birth {
	return rapid.SampledFrom([]birth{isBorn, isBorn, isBorn, isBorn, stillborn, diesOpening, slowOpening, refusesOpening}).Draw(t, "birth")
}

func drawFate(t *rapid.T) fate {
	if rapid.Bool().Draw(t, "well") {
		return answers
	}
	return fate(rapid.IntRange(0, int(fates)-1).Draw(t, "fate"))
}

func drawPace(t *rapid.T) pace {
	return pace{
		Do: rapid.SampledFrom(whats).Draw(t, "do"), Method: rapid.SampledFrom(methods).Draw(t, "method"),
		Wait:    client.Wait(rapid.IntRange(0, 2).Draw(t, "wait")),
		Idle:    rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Millisecond, 3 * time.Second, -1}).Draw(t, "idle"),
		Patient: rapid.SampledFrom([]time.Duration{0, 0, 0, 1, 150 * time.Millisecond, 10 * time.Second}).Draw(t, "patience"),
		For:     rapid.SampledFrom(spans).Draw(t, "for"), Which: rapid.IntRange(0, 5).Draw(t, "which"),
	}
}

func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWalk(rt)
		var faults []string
		synctest.Test(t, func(*testing.T) { faults = newWalker(w).run() })
		for _, fault := range faults {
			rt.Error(fault)
		}
	})
}
