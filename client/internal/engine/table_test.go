package engine

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/go-cmp/cmp"
)

// tableOf returns a table whose calls have the serials and wire ids 1, 2, 3 and
// so on, and wait in the given phases.
func tableOf(phases ...phase) (*table, []*call) {
	t := newTable(0)
	var calls []*call
	for i, p := range phases {
		t.serial++
		c := &call{serial: t.serial, id: idText(t.serial), done: make(chan struct{})}
		c.Params = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
		t.wait(c, p)
		calls = append(calls, c)
	}
	return t, calls
}

// refs counts attempts.
func refs() func() uint64 {
	n := uint64(100)
	return func() uint64 { n++; return n }
}

func serials(calls []*call) []uint64 {
	var s []uint64
	for _, c := range calls {
		s = append(s, c.serial)
	}
	return s
}

func TestWhatWaitsIsReleasedOldestFirstAndWhatWasHeldBefore(t *testing.T) {
	for _, tt := range []struct {
		name    string
		waits   []phase
		release phase
		want    []uint64
		left    int
	}{
		{"nothing", nil, parked, nil, 0},
		{"parked", []phase{parked, parked, parked}, parked, []uint64{1, 2, 3}, 0},
		{"held before parked, whatever their age", []phase{parked, held, parked, held}, parked, []uint64{2, 4, 1, 3}, 0},
		{"the held ones alone", []phase{parked, held, parked, held}, held, []uint64{2, 4}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tab, _ := tableOf(tt.waits...)
			tab.opening()
			inc := &incarnation{gen: 7}
			if diff := cmp.Diff(tt.want, serials(tab.release(tt.release, inc, time.Time{}, refs()))); diff != "" {
				t.Error(diff)
			}
			if len(tab.waits) != tt.left || (tab.queued == 0) != (tt.left == 0) {
				t.Errorf("%d calls of %d bytes wait", len(tab.waits), tab.queued)
			}
			given := tab.given(inc)
			if len(given) != len(tt.want) {
				t.Errorf("%d calls are given to the incarnation", len(given))
			}
			for _, c := range given {
				if c.phase != sending || tab.byID[c.id] != c || tab.byRef[c.ref] != c {
					t.Errorf("call %d is %d under id %s and ref %d", c.serial, c.phase, c.id, c.ref)
				}
			}
		})
	}
}

func TestTheGateOpensOnceNothingParkedIsLeft(t *testing.T) {
	tab, _ := tableOf(parked, held)
	inc, ref := &incarnation{gen: 7}, refs()
	var got []bool
	release := func(p phase) {
		tab.release(p, inc, time.Time{}, ref)
		got = append(got, tab.open())
	}
	tab.opening()
	release(held)
	release(parked)
	tab.wait(&call{serial: 9, id: "9"}, parked) // it came meanwhile
	release(parked)
	release(held)
	release(parked)
	if diff := cmp.Diff([]bool{false, false, false, false, true}, got); diff != "" {
		t.Error(diff)
	}
}

func TestACallLeavesWhereverItIs(t *testing.T) {
	for _, p := range []phase{parked, held, sending, sent, over} {
		tab, calls := tableOf(parked, held, parked)
		c, others := calls[1], int64(calls[0].size()+calls[2].size())
		switch p {
		case parked, held:
			c.phase = p
		case sending, sent:
			tab.withdraw(c)
			tab.give(c, &incarnation{}, 101)
			c.phase = p
		case over:
			tab.withdraw(c)
			c.phase = over
		}
		for range 2 { // twice is once
			tab.withdraw(c)
			if len(tab.byID) != 0 || len(tab.byRef) != 0 || len(tab.waits) != 2 || tab.queued != others {
				t.Errorf("phase %d: %d by id, %d by ref, %d wait with %d bytes", p, len(tab.byID), len(tab.byRef), len(tab.waits), tab.queued)
			}
			if p == parked || p == held {
				c.phase = over // as drop does
			}
		}
	}
}

func TestAnAnswerFindsItsCallByItsIdHoweverItIsSpelled(t *testing.T) {
	tab, calls := tableOf(parked, parked)
	mine, other := &incarnation{gen: 1}, &incarnation{gen: 2}
	for i, c := range calls {
		tab.withdraw(c)
		tab.give(c, mine, uint64(101+i))
	}
	for id, want := range map[string]*call{
		`1`: calls[0], `2`: calls[1], `"1"`: calls[0], `1.0`: calls[0], `2e0`: calls[1], `"2.0"`: calls[1],
		`3`: nil, `0`: nil, `-1`: nil, `1.5`: nil, `""`: nil, `"x"`: nil, `null`: nil, `true`: nil, `[1]`: nil, `{}`: nil,
		`"+1"`: nil, `"0x1p0"`: nil, `"1_0"`: nil, `9007199254740993`: nil, `1e999`: nil, `"NaN"`: nil, `"Inf"`: nil, `"٢"`: nil,
	} {
		if got := tab.find(mine, []byte(id)); got != want {
			t.Errorf("%s finds %+v", id, got)
		}
		if got := tab.find(other, []byte(id)); got != nil {
			t.Errorf("%s finds a call of another incarnation", id)
		}
	}
}

func TestATableIsIdleWhileOnlyStreamsAndProbesAreOpen(t *testing.T) {
	for _, tt := range []struct {
		name string
		call *call
		want bool
	}{
		{"nothing", nil, true},
		{"a call", &call{id: "1"}, false},
		{"a stream", &call{id: "1", stream: &Stream{}}, true},
		{"a liveness probe", &call{id: "1", probe: true}, true},
	} {
		tab := newTable(0)
		if tt.call != nil {
			tab.give(tt.call, &incarnation{}, 101)
		}
		if idle, drained := tab.idle(), tab.drain(); idle != tt.want || drained != tt.want {
			t.Errorf("%s: idle %t, drained %t", tt.name, idle, drained)
		}
	}
}

func TestS31_ARefusedRequestLeavesNoProgressToken(t *testing.T) {
	e := New(Options{Clock: clock.New(), MaxHeld: 1, MaxHeldBytes: 1 << 20})
	e.shut(&Failure{Kind: KindClosed, Cause: ErrClosed})
	if _, f := e.Do(t.Context(), Request{Method: "tools/call", Progress: func(Progress) {}}); f == nil {
		t.Fatal("it was taken")
	}
	if n := len(e.calls.tokens); n > 0 {
		t.Errorf("%d tokens of requests that were refused are kept", n)
	}
}
