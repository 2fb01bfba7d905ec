package fsm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompileRefusesWhatIsNoTable(t *testing.T) {
	for _, tc := range []struct {
		name    string
		initial State
		onInit  []Action
		rows    []Row
		want    string
	}{
		{"an unknown initial state", numStates, nil, nil, "unknown initial state State(5)"},
		{"an unknown first action", Starting, []Action{numActions}, nil, "unknown action Action(9) before any event"},
		{"a row from an unknown state", Starting, nil, []Row{{numStates, Up, Serving, nil, "why"}}, "row 0: unknown name in State(5) --up--> serving"},
		{"a row on an unknown event", Starting, nil, []Row{{Starting, numEvents, Serving, nil, "why"}}, "row 0: unknown name in starting --Event(6)--> serving"},
		{"a row to an unknown state", Starting, nil, []Row{{Starting, Up, numStates, nil, "why"}}, "row 0: unknown name in starting --up--> State(5)"},
		{"a row with an unknown action", Starting, nil, []Row{{Starting, Up, Serving, []Action{numActions}, "why"}}, "row 0: unknown action Action(9)"},
		{"a row without a reason", Starting, nil, []Row{{Starting, Up, Serving, nil, ""}}, "row 0: up in starting has no Why"},
		{
			"two rows for one pair", Starting, nil,
			[]Row{{Starting, Up, Serving, nil, "why"}, {Starting, Up, Closed, nil, "why"}},
			"row 1: a second row for up in starting",
		},
		{
			"rows that no run reaches", Starting, nil,
			[]Row{{Starting, Up, Serving, nil, "why"}, {Dead, Due, Starting, nil, "why"}},
			"dead-awaiting-respawn cannot be reached from starting",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := Compile(tc.initial, tc.onInit, tc.rows)
			if table != nil || !errors.Is(err, ErrTable) {
				t.Fatalf("Compile = %v, %v; want no table and an ErrTable", table, err)
			}
			if want := "fsm: invalid table: " + tc.want; err.Error() != want {
				t.Errorf("error\n %s\nwant\n %s", err, want)
			}
		})
	}
}

func TestMustCompilePanicsOnABadTable(t *testing.T) {
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, ErrTable) {
			t.Errorf("recovered %v, want an ErrTable", err)
		}
	}()
	MustCompile(numStates, nil, nil)
}

func TestATableSharesNothingWithItsMaker(t *testing.T) {
	first, do := []Action{Spawn}, []Action{Announce}
	rows := []Row{{Starting, Up, Serving, do, "why"}}
	table := MustCompile(Starting, first, rows)
	first[0], do[0], rows[0].To = Fail, Fail, Closed
	table.Rows()[0].Do[0] = Fail

	want := []Row{{Starting, Up, Serving, []Action{Announce}, "why"}}
	if diff := cmp.Diff(want, table.Rows()); diff != "" {
		t.Errorf("the table changed (-want +got):\n%s", diff)
	}
	start, onInit := table.Init()
	if diff := cmp.Diff([]Action{Spawn}, onInit); diff != "" {
		t.Errorf("its first actions changed (-want +got):\n%s", diff)
	}
	_, got, _ := table.Step(start, Input{Up, 1})
	if len(got) != cap(got) || len(onInit) != cap(onInit) {
		t.Error("an append to a returned slice would write into the table")
	}
}

func TestStep(t *testing.T) {
	serving3 := Snapshot{Serving, 3}
	for _, tc := range []struct {
		name string
		from Snapshot
		in   Input
		want Snapshot
		do   []Action
		err  error
	}{
		{name: "a live event does what its row says", from: Snapshot{Starting, 1}, in: Input{Up, 1}, want: Snapshot{Serving, 1}, do: []Action{Announce}},
		{name: "an ending moves the generation on", from: serving3, in: Input{Lost, 3}, want: Snapshot{Dead, 4}, do: []Action{Settle, Stop, Report, Arm}},
		{name: "so does the last one", from: serving3, in: Input{Spent, 3}, want: Snapshot{Exhausted, 4}, do: []Action{Stop, Fail, Report}},
		{name: "due carries the promised generation", from: Snapshot{Dead, 4}, in: Input{Due, 4}, want: Snapshot{Starting, 4}, do: []Action{Spawn}},
		{name: "close comes from no incarnation", from: serving3, in: Input{Close, 0}, want: Snapshot{Closed, 3}, do: []Action{Stop, Fail, Report}},
		{name: "close does not look at a generation", from: serving3, in: Input{Close, 9}, want: Snapshot{Closed, 3}, do: []Action{Stop, Fail, Report}},
		{name: "an ending after close is absorbed and counted", from: Snapshot{Closed, 3}, in: Input{Spent, 3}, want: Snapshot{Closed, 4}},
		{name: "a stale event does nothing", from: serving3, in: Input{Lost, 2}, want: serving3},
		{name: "a stale event does nothing even where a live one is illegal", from: serving3, in: Input{Due, 2}, want: serving3},
		{name: "a pair without a row is illegal", from: serving3, in: Input{Up, 3}, want: serving3, err: &IllegalError{serving3, Input{Up, 3}}},
		{name: "a generation of the future is illegal", from: serving3, in: Input{Message, 4}, want: serving3, err: &IllegalError{serving3, Input{Message, 4}}},
		{name: "an unknown event is illegal, stale or not", from: serving3, in: Input{numEvents, 2}, want: serving3, err: &IllegalError{serving3, Input{numEvents, 2}}},
		{name: "an unknown state is illegal", from: Snapshot{numStates, 1}, in: Input{Close, 0}, want: Snapshot{numStates, 1}, err: &IllegalError{Snapshot{numStates, 1}, Input{Close, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next, do, err := Lifecycle.Step(tc.from, tc.in)
			if next != tc.want {
				t.Errorf("next = %v, want %v", next, tc.want)
			}
			if diff := cmp.Diff(tc.do, do); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.err, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnIllegalEventSaysWhatHappenedWhere(t *testing.T) {
	_, _, err := Lifecycle.Step(Snapshot{Dead, 4}, Input{Up, 5})
	const want = "fsm: illegal event up of generation 5 in dead-awaiting-respawn of generation 4"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		from Snapshot
		in   Input
	}{
		{"a message", Snapshot{Serving, 7}, Input{Message, 7}},
		{"an ending", Snapshot{Serving, 7}, Input{Lost, 7}},
		{"a stale event", Snapshot{Serving, 7}, Input{Up, 6}},
	} {
		if got := testing.AllocsPerRun(1000, func() { Lifecycle.Step(tc.from, tc.in) }); got != 0 {
			t.Errorf("%s allocates %v times, want 0", tc.name, got)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	b.ReportAllocs()
	s, in := Snapshot{Serving, 7}, Input{Message, 7}
	for b.Loop() {
		Lifecycle.Step(s, in)
	}
}

// FuzzStep feeds whole runs. Each two bytes are an event and how far its
// generation is off.
func FuzzStep(f *testing.F) {
	f.Add([]byte{byte(Up), 1, byte(Lost), 1, byte(Due), 1, byte(Close), 0, byte(Spent), 1})
	f.Add([]byte{200, 0, byte(Message), 255, byte(Up), 2})
	f.Fuzz(func(t *testing.T, run []byte) {
		s, _ := Lifecycle.Init()
		for ; len(run) >= 2; run = run[2:] {
			in := Input{Event: Event(run[0]), Gen: s.Gen + uint64(run[1]) - 1}
			next, do, err := Lifecycle.Step(s, in)
			switch moved := next.Gen - s.Gen; {
			case err != nil && (next != s || do != nil):
				t.Fatalf("illegal %v in %v moved to %v and asked for %v", in, s, next, do)
			case err == nil && in.Event != Close && in.Gen < s.Gen && (next != s || do != nil):
				t.Fatalf("stale %v in %v moved to %v and asked for %v", in, s, next, do)
			case moved > 1 || moved == 1 && !in.Event.ending():
				t.Fatalf("%v in %v moved the generation to %d", in, s, next.Gen)
			case s.State.Terminal() && !next.State.Terminal():
				t.Fatalf("%v revived %v to %v", in, s, next)
			}
			s = next
		}
	})
}

// FuzzCompile feeds rows of four bytes: from, event, to, action.
func FuzzCompile(f *testing.F) {
	f.Add(byte(Starting), []byte{byte(Starting), byte(Up), byte(Serving), byte(Announce)})
	f.Add(byte(9), []byte{})
	f.Fuzz(func(t *testing.T, initial byte, raw []byte) {
		rows := []Row{}
		for b := range slices.Chunk(raw, 4) {
			if len(b) == 4 {
				rows = append(rows, Row{State(b[0]), Event(b[1]), State(b[2]), []Action{Action(b[3])}, "why"})
			}
		}
		table, err := Compile(State(initial), nil, rows)
		if err != nil {
			if !errors.Is(err, ErrTable) {
				t.Fatalf("error %v is no ErrTable", err)
			}
			return
		}
		if diff := cmp.Diff(rows, table.Rows()); diff != "" {
			t.Fatalf("rows (-given +kept):\n%s", diff)
		}
		var md strings.Builder
		if err := table.WriteMarkdown(&md); err != nil || strings.Contains(md.String(), "(") {
			t.Fatalf("Markdown with an unknown name, or error %v:\n%s", err, &md)
		}
	})
}
