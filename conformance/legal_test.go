package conformance

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/fsm"
)

// The walk knows nothing of the table, so if it reaches every row, what can
// happen is what the table speaks of; and it reaches the traps: an opening, a
// message and a Serve of an incarnation that is over.
func TestT16_WhatAnEndedIncarnationStillDoesIsStale(t *testing.T) {
	e := explorer{step: fsm.Lifecycle.Step}
	if err := e.explore(fsm.Lifecycle.Init()); err != nil {
		t.Fatal(err)
	}
	want := []string{"stale message", "stale spent", "stale up"}
	for _, r := range fsm.Lifecycle.Rows() {
		if r.From == fsm.Closed && r.On == fsm.Lost {
			continue // after close nobody asks policy, so the loop says spent
		}
		want = append(want, r.From.String()+" "+r.On.String())
	}
	var got []string
	for name := range e.steps {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +walked):\n%s", diff)
	}
}

// The trap itself: the generation moves with the replacement and not with the
// ending. Then the old incarnation still speaks for the peer.
func TestT16_AGenerationThatMovesTooLateIsFound(t *testing.T) {
	late := func(s fsm.Snapshot, in fsm.Input) (fsm.Snapshot, []fsm.Action, error) {
		next, do, err := fsm.Lifecycle.Step(s, in)
		if err == nil && next.Gen > s.Gen {
			next.Gen = s.Gen
		}
		if err == nil && in.Event == fsm.Due && next.State == fsm.Starting {
			next.Gen++
		}
		return next, do, err
	}
	err := (&explorer{step: late}).explore(fsm.Lifecycle.Init())
	const want = "Serve returns, lost, on 1; the opening exchange succeeds on 1: " +
		"fsm: illegal event up of generation 1 in dead-awaiting-respawn of generation 1"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}

	deaf := func(s fsm.Snapshot, in fsm.Input) (fsm.Snapshot, []fsm.Action, error) {
		if in.Event != fsm.Close && in.Gen < s.Gen {
			in.Gen = s.Gen // as if nobody looked at generations
		}
		return fsm.Lifecycle.Step(s, in)
	}
	err = (&explorer{step: deaf}).explore(fsm.Lifecycle.Init())
	const wantDeaf = "Serve returns, lost, on 1; the opening exchange succeeds on 1: " +
		"fsm: illegal event up of generation 2 in dead-awaiting-respawn of generation 2"
	if err == nil || err.Error() != wantDeaf {
		t.Errorf("%v\nwant\n%s", err, wantDeaf)
	}
}

func TestTheLegalWalkNamesTheShortestWayToAMistake(t *testing.T) {
	for _, tc := range []struct{ mistake, want string }{
		{"no row for message in starting", "a message from 1: fsm: illegal event message of generation 1 in starting of generation 1"},
		{"no row for due in closed", "Serve returns, lost, on 1; the owner closes; the timer fires: fsm: illegal event due of generation 2 in closed of generation 2"},
		{"no stop on lost in serving", "the opening exchange succeeds on 1; Serve returns, lost, on 1: incarnation 1 was forgotten"},
		{"due in dead-awaiting-respawn goes to serving", "Serve returns, lost, on 1; the timer fires; the opening exchange succeeds on 2: fsm: illegal event up of generation 2 in serving of generation 2"},
		{"no spawn before any event", "the owner closes: a stop before any spawn"},
		{"no report on lost in serving", ""}, // what only an owner sees is not for this walk
	} {
		var err error
		found := false
		for _, m := range Mutants(fsm.Lifecycle) {
			if m.Mistake == tc.mistake {
				err, found = LegalWalk(m.Table), true
			}
		}
		if !found {
			t.Errorf("no mutant %q", tc.mistake)
		} else if got := text(err); got != tc.want {
			t.Errorf("%s:\n %s\nwant\n %s", tc.mistake, got, tc.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
