package conformance

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/fsm"
)

// Cells says what a table must answer, written by hand: the key is a state and
// an event, the value the next state and the actions in their order, or
// "illegal". The key "first" stands for the state and the actions before any
// event.
type Cells map[string]string

// lifecycle is [fsm.Lifecycle] a second time.
var lifecycle = Cells{
	"first": "starting: spawn",

	"starting up":      "serving: announce",
	"starting message": "starting: deliver",
	"starting lost":    "dead-awaiting-respawn: settle, stop, report, arm",
	"starting spent":   "exhausted: stop, fail, report",
	"starting due":     "illegal",
	"starting close":   "closed: stop, fail, report",

	"serving up":      "illegal",
	"serving message": "serving: deliver",
	"serving lost":    "dead-awaiting-respawn: settle, stop, report, arm",
	"serving spent":   "exhausted: stop, fail, report",
	"serving due":     "illegal",
	"serving close":   "closed: stop, fail, report",

	"dead-awaiting-respawn up":      "illegal",
	"dead-awaiting-respawn message": "illegal",
	"dead-awaiting-respawn lost":    "illegal",
	"dead-awaiting-respawn spent":   "illegal",
	"dead-awaiting-respawn due":     "starting: spawn",
	"dead-awaiting-respawn close":   "closed: disarm, fail, report",

	"exhausted up":      "illegal",
	"exhausted message": "illegal",
	"exhausted lost":    "illegal",
	"exhausted spent":   "illegal",
	"exhausted due":     "illegal",
	"exhausted close":   "closed",

	"closed up":      "closed: stop",
	"closed message": "closed",
	"closed lost":    "closed",
	"closed spent":   "closed",
	"closed due":     "closed",
	"closed close":   "closed",
}

// TestTable verifies a lifecycle table: [fsm.Lifecycle], or one that extends it.
// It asserts that
//
//   - its cells are those of the lifecycle, which are written a second time by
//     hand in this package and compared whole, but where differs says otherwise,
//     and each row has a reason;
//   - a stale event does nothing in any state, an event of the future is illegal;
//   - an [fsm.Machine] does what the table says, and looplab/fsm agrees in each
//     state about what is legal;
//   - no run breaks what [Life] holds ([Invariants]), and nothing that transports
//     and loop may do is illegal ([LegalWalk]);
//   - the invariants alone find every small mistake in it ([Mutants]);
//   - its diagrams show its edges, all of them and no others.
//
// An extension can begin elsewhere or absorb what cannot happen; it states such
// cells by hand, in differs:
//
//	conformance.TestTable(t, lazy, conformance.Cells{"first": "dead-awaiting-respawn: arm"})
//
// The invariants have no such door: a table that breaks them is another thing
// than a lifecycle, and the engine would do wrong with it. Whoever adds a state,
// an event or an action to package fsm adds its cells here and its meaning to
// [Life], and TestTable says what is missing until then.
func TestTable(t *testing.T, table *fsm.Table, differs ...Cells) {
	t.Helper()
	want := maps.Clone(lifecycle)
	for _, d := range differs {
		maps.Copy(want, d)
	}
	t.Run("its cells are those written by hand", func(t *testing.T) {
		if diff := cmp.Diff(want, cells(table)); diff != "" {
			t.Errorf("(-by hand +table):\n%s", diff)
		}
		for _, r := range table.Rows() {
			if strings.TrimSpace(r.Why) == "" {
				t.Errorf("%s in %s has no reason", r.On, r.From)
			}
		}
	})
	for _, holds := range []struct {
		what  string
		check func(*fsm.Table) error
	}{
		{"generations are minded in every state", generations},
		{"looplab agrees in each state", looplabAgrees},
		{"a machine does what the table says", machineAgrees},
		{"every run keeps the invariants", Invariants},
		{"nothing that may happen is illegal", LegalWalk},
		{"its diagrams show its edges", diagramsAgree},
	} {
		t.Run(holds.what, func(t *testing.T) {
			if err := holds.check(table); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("the invariants alone find every small mistake", func(t *testing.T) {
		for _, m := range Mutants(table) {
			if Invariants(m.Table) == nil {
				t.Errorf("nobody notices: %s", m.Mistake)
			}
		}
	})
}

// cells asks a table for each of its cells.
func cells(table *fsm.Table) Cells {
	at, do := table.Init()
	got := Cells{"first": answer(at.State, do)}
	for _, s := range fsm.States() {
		for _, e := range fsm.Events() {
			next, do, err := table.Step(fsm.Snapshot{State: s, Gen: 1}, fsm.Input{Event: e, Gen: 1})
			if err != nil {
				got[s.String()+" "+e.String()] = "illegal"
				continue
			}
			got[s.String()+" "+e.String()] = answer(next.State, do)
		}
	}
	return got
}

func answer(s fsm.State, do []fsm.Action) string {
	if len(do) == 0 {
		return s.String()
	}
	names := make([]string, len(do))
	for i, a := range do {
		names[i] = a.String()
	}
	return s.String() + ": " + strings.Join(names, ", ")
}
