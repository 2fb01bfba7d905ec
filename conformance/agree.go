package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	looplab "github.com/looplab/fsm"

	"github.com/respawn-mcp/respawn/fsm"
)

// generations holds that in every state stale events do nothing, events of the
// future are illegal, and an ending alone moves the generation, by one.
func generations(table *fsm.Table) error {
	for _, s := range fsm.States() {
		at := fsm.Snapshot{State: s, Gen: 7}
		for _, e := range fsm.Events() {
			var illegal *fsm.IllegalError
			if e != fsm.Close { // it comes from no incarnation
				if next, do, err := table.Step(at, fsm.Input{Event: e, Gen: 6}); next != at || do != nil || err != nil {
					return fmt.Errorf("a stale %s in %s: %v, %v, %v", e, s, next, do, err)
				}
				if next, do, err := table.Step(at, fsm.Input{Event: e, Gen: 8}); next != at || do != nil || !errors.As(err, &illegal) {
					return fmt.Errorf("%s of the future in %s: %v, %v, %v", e, s, next, do, err)
				}
			}
			want := at.Gen
			next, _, err := table.Step(at, fsm.Input{Event: e, Gen: 7})
			if err == nil && (e == fsm.Lost || e == fsm.Spent) {
				want++
			}
			if next.Gen != want {
				return fmt.Errorf("%s in %s moved the generation from 7 to %d", e, s, next.Gen)
			}
		}
	}
	return nil
}

// inLooplab translates rows on its own, apart from what [fsm.Machine] does.
func inLooplab(table *fsm.Table) *looplab.FSM {
	var events looplab.Events
	for _, r := range table.Rows() {
		events = append(events, looplab.EventDesc{Name: r.On.String(), Src: []string{r.From.String()}, Dst: r.To.String()})
	}
	first, _ := table.Init()
	return looplab.NewFSM(first.State.String(), events, nil)
}

func looplabAgrees(table *fsm.Table) error {
	other := inLooplab(table)
	for _, s := range fsm.States() {
		var legal []string
		for _, e := range fsm.Events() {
			if _, _, err := table.Step(fsm.Snapshot{State: s, Gen: 1}, fsm.Input{Event: e, Gen: 1}); err == nil {
				legal = append(legal, e.String())
			}
		}
		other.SetState(s.String())
		available := other.AvailableTransitions()
		slices.Sort(legal)
		slices.Sort(available)
		if !slices.Equal(legal, available) {
			return fmt.Errorf("in %s %v are legal, looplab says %v", s, legal, available)
		}
	}
	return nil
}

// machineDepth is how long the runs are that a machine is led through: three
// events reach every cell. Each run needs a machine of its own and goes on after
// stale and illegal events too, so more would only cost time.
const machineDepth = 3

// machineAgrees leads machines through every run, stale and illegal events among
// them, and compares each step with the table's.
func machineAgrees(table *fsm.Table) error { return lead(table, nil) }

func lead(table *fsm.Table, run trail) error {
	m, do := fsm.New(table)
	at, first := table.Init()
	if m.Snapshot() != at || !slices.Equal(do, first) {
		return fmt.Errorf("a new machine is in %v and asks for %v", m.Snapshot(), do)
	}
	for _, in := range run {
		next, do, err := table.Step(at, in)
		got, gotErr := m.Step(in)
		want := fsm.Transition{From: at.State, Event: in.Event, To: next.State, Gen: next.Gen, Do: do, Why: got.Why}
		if !reflect.DeepEqual(want, got) || m.Snapshot() != next || (err == nil) != (gotErr == nil) {
			return run.wrong(fmt.Errorf("the machine is in %v with error %v; the table says %v, %v (-table +machine):\n%s",
				m.Snapshot(), gotErr, next, err, cmp.Diff(want, got)))
		}
		at = next
	}
	if len(run) == machineDepth {
		return nil
	}
	for _, e := range fsm.Events() {
		for _, gen := range []uint64{at.Gen - 1, at.Gen} {
			if err := lead(table, run.with(fsm.Input{Event: e, Gen: gen})); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	dotEdge     = regexp.MustCompile(`(?m)^\s*"([^"]+)" -> "([^"]+)" \[\s*label\s*=\s*"([^"\\]+)`)
	mermaidName = regexp.MustCompile(`(?m)^\s*state "([^"]+)" as (\S+)$`)
	mermaidEdge = regexp.MustCompile(`(?m)^\s*(\S+) --> (\S+): ([^/\n]+)`)
	mermaidID   = regexp.MustCompile(`^[a-z_]+$`)
)

// diagramsAgree compares the edges of both diagrams with those that looplab's
// own renderer draws, and holds that Mermaid can read its ids.
func diagramsAgree(table *fsm.Table) error {
	var dot, mermaid bytes.Buffer
	if err := errors.Join(table.WriteDOT(&dot), table.WriteMermaid(&mermaid)); err != nil {
		return err
	}
	graphviz, err := looplab.VisualizeWithType(inLooplab(table), looplab.GRAPHVIZ)
	if err != nil {
		return err
	}
	want := dotEdges(graphviz)
	if diff := cmp.Diff(want, dotEdges(dot.String())); diff != "" {
		return fmt.Errorf("edges in DOT (-looplab +ours):\n%s", diff)
	}
	names := map[string]string{}
	for _, m := range mermaidName.FindAllStringSubmatch(mermaid.String(), -1) {
		if !mermaidID.MatchString(m[2]) {
			return fmt.Errorf("the Mermaid id %q does not match %s", m[2], mermaidID)
		}
		names[m[2]] = m[1]
	}
	if diff := cmp.Diff(want, mermaidEdges(mermaid.String(), names)); diff != "" {
		return fmt.Errorf("edges in Mermaid (-looplab +ours):\n%s", diff)
	}
	return nil
}

func dotEdges(text string) []string {
	var edges []string
	for _, m := range dotEdge.FindAllStringSubmatch(text, -1) {
		edges = append(edges, fmt.Sprintf("%s --%s--> %s", m[1], m[3], m[2]))
	}
	slices.Sort(edges)
	return edges
}

// mermaidEdges splits the arrows that several events share. The first arrow
// comes from no state.
func mermaidEdges(text string, names map[string]string) []string {
	var edges []string
	for _, m := range mermaidEdge.FindAllStringSubmatch(text, -1) {
		if m[1] == "[*]" {
			continue
		}
		for _, e := range strings.Split(strings.TrimSpace(m[3]), ", ") {
			edges = append(edges, fmt.Sprintf("%s --%s--> %s", names[m[1]], e, names[m[2]]))
		}
	}
	slices.Sort(edges)
	return edges
}
