package conformance_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/fsm"
)

// altered compiles the lifecycle with some rows put in place of those for the
// same state and event. Rows without a reason are dropped ones.
func altered(t *testing.T, rows ...fsm.Row) *fsm.Table {
	t.Helper()
	at, do := fsm.Lifecycle.Init()
	all := fsm.Lifecycle.Rows()
	for _, r := range rows {
		all = slices.DeleteFunc(all, func(old fsm.Row) bool { return old.From == r.From && old.On == r.On })
		if r.Why != "" {
			all = append(all, r)
		}
	}
	table, err := fsm.Compile(at.State, do, all)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestAnExtensionStatesWhatDiffers(t *testing.T) {
	t.Run("a peer that starts on first use", func(t *testing.T) {
		lazy := fsm.MustCompile(fsm.Dead, []fsm.Action{fsm.Arm}, fsm.Lifecycle.Rows())
		conformance.TestTable(t, lazy, conformance.Cells{"first": "dead-awaiting-respawn: arm"})
	})
	t.Run("a second up is absorbed", func(t *testing.T) {
		patient := altered(t, row(fsm.Serving, fsm.Up, fsm.Serving))
		conformance.TestTable(t, patient, conformance.Cells{"serving up": "serving"})
	})
}

// The kit is only worth something if it fails: a child process runs it on tables
// that are wrong in one place each.
func TestTestTableFails(t *testing.T) {
	const wrong = "RESPAWN_WRONG_TABLE"
	cases := map[string]struct {
		table  *fsm.Table
		failed []string
	}{
		"a cell that differs from its twin by hand": {
			altered(t, row(fsm.Serving, fsm.Up, fsm.Serving)),
			[]string{"its_cells_are_those_written_by_hand"},
		},
		"a row that a stop is missing in": {
			altered(t, row(fsm.Serving, fsm.Lost, fsm.Dead, fsm.Settle, fsm.Report, fsm.Arm)),
			[]string{"its_cells_are_those_written_by_hand", "every_run_keeps_the_invariants", "nothing_that_may_happen_is_illegal"},
		},
		"a blank reason": {
			altered(t, fsm.Row{From: fsm.Exhausted, On: fsm.Close, To: fsm.Closed, Why: " "}),
			[]string{"its_cells_are_those_written_by_hand"},
		},
	}
	if name := os.Getenv(wrong); name != "" {
		conformance.TestTable(t, cases[name].table)
		return
	}
	failed := regexp.MustCompile(`(?m)^ +--- FAIL: TestTestTableFails/(\S+)`)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestTestTableFails$", "-test.v")
			child.Env = append(os.Environ(), wrong+"="+name)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("it passed:\n%s", out)
			}
			var got []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				got = append(got, m[1])
			}
			if diff := cmp.Diff(tc.failed, got); diff != "" {
				t.Errorf("failed subtests (-want +got):\n%s\n%s", diff, out)
			}
		})
	}
}

// row is a row that somebody might write.
func row(in fsm.State, on fsm.Event, to fsm.State, do ...fsm.Action) fsm.Row {
	return fsm.Row{From: in, On: on, To: to, Do: do, Why: "it seemed right"}
}

func TestInvariantsNameTheShortestRunThatBreaksThem(t *testing.T) {
	ending := []fsm.Action{fsm.Settle, fsm.Stop, fsm.Report, fsm.Arm}
	for _, tc := range []struct {
		name string
		row  fsm.Row
		want string
	}{
		{"a peer that serves and says it starts", row(fsm.Starting, fsm.Message, fsm.Serving, fsm.Deliver), "after message(1): the state is serving, the truth is starting"},
		{"a message that reaches nobody", row(fsm.Serving, fsm.Message, fsm.Serving), "after up(1), message(1): 0 deliveries, want 1"},
		{"an opening that nobody hears of", row(fsm.Starting, fsm.Up, fsm.Serving), "after up(1): the state is serving, the truth is starting"},
		{"an ending that is not reported", row(fsm.Serving, fsm.Spent, fsm.Exhausted, fsm.Stop, fsm.Fail), "after up(1), spent(1): 0 close reports, want 1"},
		{"an incarnation that is not stopped", row(fsm.Serving, fsm.Close, fsm.Closed, fsm.Fail, fsm.Report), "after up(1), close: 0 stops, want 1"},
		{"requests that are never decided", row(fsm.Starting, fsm.Close, fsm.Closed, fsm.Stop, fsm.Report), "after close: 0 times settle or fail, want 1"},
		{"requests kept for nobody", row(fsm.Starting, fsm.Close, fsm.Closed, fsm.Settle, fsm.Stop, fsm.Report), "after close: [settle stop report] in closed: settle comes with a promise, fail without one"},
		{"requests failed in spite of a promise", row(fsm.Starting, fsm.Lost, fsm.Dead, fsm.Stop, fsm.Fail, fsm.Report, fsm.Arm), "after lost(1): [stop fail report arm] in dead-awaiting-respawn: settle comes with a promise, fail without one"},
		{"a promise without a timer", row(fsm.Starting, fsm.Lost, fsm.Dead, ending[:3]...), "after lost(1): the state is dead-awaiting-respawn, the truth is exhausted"},
		{"a timer that is not disarmed", row(fsm.Dead, fsm.Close, fsm.Closed, fsm.Fail, fsm.Report), "after lost(1), close: in closed the timer is armed: true"},
		{"two timers", row(fsm.Starting, fsm.Lost, fsm.Dead, append(ending, fsm.Arm)...), "after lost(1): armed twice"},
		{"a timer disarmed that never was", row(fsm.Serving, fsm.Close, fsm.Closed, fsm.Disarm, fsm.Stop, fsm.Fail, fsm.Report), "after up(1), close: disarmed, and nothing was armed"},
		{"two incarnations at once", row(fsm.Dead, fsm.Due, fsm.Starting, fsm.Spawn, fsm.Spawn), "after lost(1), due(2): 3 spawns and 1 endings"},
		{"a replacement that never comes", row(fsm.Dead, fsm.Due, fsm.Starting), "after lost(1), due(2): the state is starting, the truth is exhausted"},
		{"a start after close that leaks", row(fsm.Closed, fsm.Up, fsm.Closed), "after close, up(1): 1 stops, want 2"},
		{"a second close report", row(fsm.Closed, fsm.Spent, fsm.Closed, fsm.Report), "after close, spent(1): 2 close reports, want 1"},
		{"a close that a timer undoes", row(fsm.Closed, fsm.Due, fsm.Exhausted), "after lost(1), close, due(2): the state is exhausted, the truth is closed"},
		{"a close that is illegal", fsm.Row{From: fsm.Exhausted, On: fsm.Close}, "after spent(1), close: it can happen, and is illegal: fsm: illegal event close of generation 0 in exhausted of generation 2"},
		{"an ending of nobody", row(fsm.Dead, fsm.Lost, fsm.Dead), "after lost(1), lost(2): it cannot happen, and has an effect"},
		{"a timer that stops early", row(fsm.Starting, fsm.Lost, fsm.Dead, fsm.Settle, fsm.Stop, fsm.Arm, fsm.Report), "after lost(1): report after arm"},
		{"an owner told too early", row(fsm.Starting, fsm.Spent, fsm.Exhausted, fsm.Stop, fsm.Report, fsm.Fail), "after spent(1): fail after report"},
		{"a message and a spawn in one step", row(fsm.Dead, fsm.Due, fsm.Starting, fsm.Spawn, fsm.Deliver), "after lost(1), due(2): 1 deliveries, want 0"},
	} {
		err := conformance.Invariants(altered(t, tc.row))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n %v\nwant\n %s", tc.name, err, tc.want)
		}
	}
	if err := conformance.Invariants(fsm.Lifecycle); err != nil {
		t.Errorf("the lifecycle itself: %v", err)
	}
}

func TestInvariantsHoldBeforeAnyEvent(t *testing.T) {
	for _, tc := range []struct {
		first fsm.State
		do    []fsm.Action
		want  string
	}{
		{fsm.Starting, nil, "before any event: the state is starting, the truth is exhausted"},
		{fsm.Starting, []fsm.Action{fsm.Spawn, fsm.Spawn}, "before any event: 2 spawns and 0 endings"},
		{fsm.Starting, []fsm.Action{fsm.Disarm, fsm.Spawn}, "before any event: disarmed, and nothing was armed"},
	} {
		err := conformance.Invariants(fsm.MustCompile(tc.first, tc.do, fsm.Lifecycle.Rows()))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%v in %s: %v, want %s", tc.do, tc.first, err, tc.want)
		}
	}
}

// An engine's transitions can be checked as they come, without a table.
func TestALifeTakesTheTransitionsOfAMachine(t *testing.T) {
	m, do := fsm.New(fsm.Lifecycle)
	life, err := conformance.NewLife(m.Snapshot(), do)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []fsm.Input{
		{Event: fsm.Up, Gen: 1},
		{Event: fsm.Message, Gen: 1},
		{Event: fsm.Lost, Gen: 1},
		{Event: fsm.Due, Gen: 2},
		{Event: fsm.Close},
		{Event: fsm.Up, Gen: 2},
		{Event: fsm.Spent, Gen: 2},
	} {
		tr, err := m.Step(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := life.Observe(tr); err != nil {
			t.Fatalf("%s in %s: %v", tr.Event, tr.From, err)
		}
	}
	for _, tc := range []struct {
		tr   fsm.Transition
		want string
	}{
		{fsm.Transition{From: fsm.Serving, Event: fsm.Close, To: fsm.Closed, Gen: 3}, "a step from serving, but the peer is in closed"},
		{fsm.Transition{From: fsm.Closed, Event: fsm.Message, To: fsm.Closed, Gen: 3}, "message, and nobody is there to cause it"},
		{fsm.Transition{From: fsm.Closed, Event: fsm.Close, To: fsm.Closed, Gen: 4}, "generation 4 after 2 endings, want 3"},
		{fsm.Transition{From: fsm.Closed, Event: fsm.Close, To: fsm.Exhausted, Gen: 3}, "the state is exhausted, the truth is closed"},
	} {
		wrong := life // a value: a bad step spoils the copy alone
		if err := wrong.Observe(tc.tr); err == nil || err.Error() != tc.want {
			t.Errorf("%v: %v, want %s", tc.tr, err, tc.want)
		}
	}
}

func TestMutantsAreEachOneMistakeAway(t *testing.T) {
	seen := map[string]bool{}
	kinds := map[string]int{}
	for _, m := range conformance.Mutants(fsm.Lifecycle) {
		if seen[m.Mistake] {
			t.Errorf("twice: %s", m.Mistake)
		}
		seen[m.Mistake] = true
		at, do := m.Table.Init()
		was, wasDo := fsm.Lifecycle.Init()
		if at == was && cmp.Equal(do, wasDo) && cmp.Equal(m.Table.Rows(), fsm.Lifecycle.Rows()) {
			t.Errorf("no mistake: %s", m.Mistake)
		}
		switch {
		case strings.HasPrefix(m.Mistake, "the initial state"):
			kinds["another start"]++
		case strings.HasPrefix(m.Mistake, "no row"):
			kinds["row dropped"]++
		case strings.Contains(m.Mistake, " goes to "):
			kinds["target changed"]++
		case strings.Contains(m.Mistake, " moved to "):
			kinds["action moved"]++
		default:
			kinds["action dropped"]++
		}
	}
	// 18 rows with 4 other targets each; 28 actions, and the first one.
	want := map[string]int{"another start": 4, "row dropped": 18, "target changed": 72, "action dropped": 29}
	moved := kinds["action moved"]
	delete(kinds, "action moved")
	if diff := cmp.Diff(want, kinds); diff != "" || moved < 1000 {
		t.Errorf("%d actions moved, and (-want +got):\n%s", moved, diff)
	}
}
