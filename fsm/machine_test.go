package fsm

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMachineStartsWithTheTablesFirstActions(t *testing.T) {
	m, do := New(Lifecycle)
	if diff := cmp.Diff([]Action{Spawn}, do); diff != "" {
		t.Errorf("first actions (-want +got):\n%s", diff)
	}
	if got, want := m.Snapshot(), (Snapshot{Starting, 1}); got != want {
		t.Errorf("first snapshot %v, want %v", got, want)
	}
}

func TestAMachineLivesThroughALifeAndTellsEachStep(t *testing.T) {
	m, _ := New(Lifecycle)
	ending := []Action{Settle, Stop, Report, Arm}
	for _, want := range []Transition{
		{Starting, Message, Starting, 1, []Action{Deliver}, "the opening exchange needs its answers"},
		{Starting, Up, Serving, 1, []Action{Announce}, "the opening exchange succeeded"},
		{Serving, Lost, Dead, 2, ending, "it died; the budget grants another"},
		{Dead, Due, Starting, 2, []Action{Spawn}, "the delay is over"},
		{Starting, Lost, Dead, 3, ending, "it died before it served; the budget grants another"},
		{Dead, Close, Closed, 3, []Action{Disarm, Fail, Report}, "the owner withdrew the promised replacement"},
		{Closed, Due, Closed, 3, nil, "a timer that lost to close"},
	} {
		got, err := m.Step(Input{want.Event, m.Snapshot().Gen})
		if err != nil {
			t.Fatalf("%s in %s: %v", want.Event, want.From, err)
		}
		if diff := cmp.Diff(want, got, nilIsEmpty); diff != "" {
			t.Fatalf("%s in %s (-want +got):\n%s", want.Event, want.From, diff)
		}
		if got, want := m.Snapshot(), (Snapshot{want.To, want.Gen}); got != want || m.State() != want.State {
			t.Fatalf("snapshot %v and state %s, want %v", got, m.State(), want)
		}
		if m.keep.Current() != want.To.String() {
			t.Fatalf("looplab is in %s, want %s", m.keep.Current(), want.To)
		}
	}
}

var nilIsEmpty = cmp.Transformer("nilIsEmpty", func(do []Action) []string {
	names := []string{}
	for _, a := range do {
		names = append(names, a.String())
	}
	return names
})

func TestT2_AStaleEventChangesNothingInAMachine(t *testing.T) {
	m, _ := New(Lifecycle)
	for _, in := range []Input{{Up, 1}, {Lost, 1}, {Due, 2}, {Up, 2}} {
		if _, err := m.Step(in); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range Events() {
		if e == Close {
			continue // it is never stale
		}
		got, err := m.Step(Input{e, 1})
		if err != nil {
			t.Errorf("a stale %s: %v", e, err)
		}
		if diff := cmp.Diff(Transition{From: Serving, Event: e, To: Serving, Gen: 2}, got); diff != "" {
			t.Errorf("a stale %s (-want +got):\n%s", e, diff)
		}
	}
}

func TestAnIllegalEventChangesNothingInAMachine(t *testing.T) {
	m, _ := New(Lifecycle)
	got, err := m.Step(Input{Due, 1})
	want := &IllegalError{Snapshot{Starting, 1}, Input{Due, 1}}
	var illegal *IllegalError
	if !errors.As(err, &illegal) || *illegal != *want {
		t.Errorf("error %v, want %v", err, want)
	}
	if diff := cmp.Diff(Transition{From: Starting, Event: Due, To: Starting, Gen: 1}, got); diff != "" {
		t.Errorf("transition (-want +got):\n%s", diff)
	}
	if _, err := m.Step(Input{Up, 1}); err != nil || m.State() != Serving {
		t.Errorf("the machine is stuck in %s: %v", m.State(), err)
	}
}

// The tables of a machine and of looplab come from the same rows; if they ever
// disagree, the machine must refuse rather than go on in two states.
func TestAMachineRefusesWhatLooplabRefuses(t *testing.T) {
	m, _ := New(Lifecycle)
	m.keep.SetState(Exhausted.String())
	_, err := m.Step(Input{Up, 1})
	var illegal *IllegalError
	if !errors.As(err, &illegal) || m.Snapshot() != (Snapshot{Starting, 1}) {
		t.Errorf("went to %v with error %v, want no move and an IllegalError", m.Snapshot(), err)
	}
}

func TestLooplabKnowsTheSameEventsInEachState(t *testing.T) {
	keep := Lifecycle.looplab()
	for _, s := range States() {
		keep.SetState(s.String())
		got := keep.AvailableTransitions()
		var want []string
		for _, r := range Lifecycle.Rows() {
			if r.From == s {
				want = append(want, r.On.String())
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in %s (-rows +looplab):\n%s", s, diff)
		}
	}
}

// State and generation are published together: nobody sees the state of one
// life with the number of another.
func TestReadersSeeStateAndGenerationTogether(t *testing.T) {
	const lives = 2000
	m, _ := New(Lifecycle)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := Snapshot{Starting, 1}
			for {
				s := m.Snapshot()
				if s.Gen < last.Gen || s.Gen == 1 && s.State == Dead || !slices.Contains(States(), m.State()) {
					t.Errorf("read %v after %v", s, last)
					return
				}
				last = s
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for gen := uint64(1); gen <= lives; gen++ {
		for _, in := range []Input{{Up, gen}, {Message, gen}, {Lost, gen}, {Due, gen + 1}} {
			if _, err := m.Step(in); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	readers.Wait()
	if got, want := m.Snapshot(), (Snapshot{Starting, lives + 1}); got != want {
		t.Errorf("ended in %v, want %v", got, want)
	}
}

// Each message of a served peer passes here, so it must cost nothing.
func TestAMachineAllocatesNothingForAMessage(t *testing.T) {
	m, _ := New(Lifecycle)
	if got := testing.AllocsPerRun(1000, func() { m.Step(Input{Message, 1}) }); got != 0 {
		t.Errorf("a message allocates %v times, want 0", got)
	}
}
