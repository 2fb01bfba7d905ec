package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/client"
)

// The storm: a client over HTTP whose server refuses, breaks, delays, can't be
// reached, forgets its sessions and changes its era, in any order, while its
// callers call, give up and listen. Whatever happens, what must hold holds. A run
// is a plan, drawn beforehand, so that rapid can shrink it.
type storm struct {
	Legacy, Bare, Stream bool
	Options              stormOptions
	Weather              []weather
	Gusts                []gust
}

type stormOptions struct {
	RetryLost, WaitForReady bool
	Timeout                 time.Duration
	MaxHeld                 int
}

// weather is what becomes of one exchange.
type weather uint8

const (
	fair          weather = iota
	late                  // answered after a while
	refused               // 404: the server has forgotten its sessions
	suspected             // 400, and the session may be known or not
	busy                  // 503
	cutBefore             // the response ends, and nothing ran
	cutAfter              // it ran, and the response ends
	cutResumable          // it ran, and the response ends after an event id
	noConnection          // provably nothing arrived
	mute                  // it ran, and nothing comes
	wrongID               // it ran, and the answer names another request
	anError               // it ran, and the peer says that it failed
	lateCut               // cutAfter, after a while
	lateRefused           // refused, after a while
	failed400             // anError, with the status of a forgotten session
	endOfWeathers         //
)

// gust is one step.
type gust struct {
	Do      string
	Method  string
	Wait    client.Wait
	Timeout time.Duration
	Patient time.Duration // of the caller; 0: any
	For     time.Duration
	Which   int
}

var (
	gusts = []string{
		"call", "call", "call", "call", "call", "call", "pass", "pass", "pass",
		"forget", "down", "up", "cut stream", "listen", "unlisten", "list", "notify", "change era", "close",
	}
	stormMethods = []string{"pay", "pay", "look", "resources/read", "acme/do"}
	delays       = []time.Duration{0, 0, 1, time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 6 * time.Second, 31 * time.Second, 2 * time.Minute}
)

func drawStorm(t *rapid.T) storm {
	flag := rapid.Bool()
	return storm{
		Legacy: flag.Draw(t, "legacy"), Bare: rapid.IntRange(0, 5).Draw(t, "bare") == 0, Stream: flag.Draw(t, "stream"),
		Options: stormOptions{
			flag.Draw(t, "RetryLost"), flag.Draw(t, "WaitForReady"),
			rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second, 40 * time.Second}).Draw(t, "RequestTimeout"),
			rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "MaxHeld"),
		},
		Weather: rapid.SliceOfN(rapid.Custom(drawWeather), 1, 60).Draw(t, "weather"),
		Gusts:   rapid.SliceOfN(rapid.Custom(drawGust), 10, 80).Draw(t, "gusts"),
	}
}

func drawWeather(t *rapid.T) weather {
	if rapid.Bool().Draw(t, "fair") {
		return fair
	}
	return weather(rapid.IntRange(0, int(endOfWeathers)-1).Draw(t, "weather"))
}

func drawGust(t *rapid.T) gust {
	return gust{
		Do: rapid.SampledFrom(gusts).Draw(t, "do"), Method: rapid.SampledFrom(stormMethods).Draw(t, "method"),
		Wait:    client.Wait(rapid.IntRange(0, 2).Draw(t, "wait")),
		Timeout: rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Millisecond, 5 * time.Second}).Draw(t, "timeout"),
		Patient: rapid.SampledFrom([]time.Duration{0, 0, 0, 1, 150 * time.Millisecond, 10 * time.Second}).Draw(t, "patience"),
		For:     rapid.SampledFrom(delays).Draw(t, "for"), Which: rapid.IntRange(0, 5).Draw(t, "which"),
	}
}

func TestRandomStormsOverHTTP(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawStorm(rt)
		var faults []string
		synctest.Test(t, func(*testing.T) { faults = newSailor(s).run() })
		for _, fault := range faults {
			rt.Error(fault)
		}
	})
}
