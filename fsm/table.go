package fsm

import (
	"errors"
	"fmt"
	"slices"
)

// Row is one cell of a table: in From, On takes the peer to To and asks for Do.
// A row with From == To and no actions absorbs the event. A missing row makes
// the pair illegal. Why is one sentence for people; every row has one.
type Row struct {
	From State
	On   Event
	To   State
	Do   []Action
	Why  string
}

// Snapshot is a peer's state and the generation of its current incarnation.
// Gen is 1 + the number of endings, so it moves on with the ending itself and
// whatever the ended incarnation still says is stale at once.
type Snapshot struct {
	State State
	Gen   uint64
}

// Input is one event and the generation it speaks of. A Close comes from the
// owner, from no incarnation: its Gen is 0 and never looked at.
type Input struct {
	Event Event
	Gen   uint64
}

// IllegalError says that the table has no row for an event in a state, or that
// the event names a generation that was never handed out. It is a bug of the
// caller: production counts and logs it, tests fail on it.
type IllegalError struct {
	From  Snapshot
	Input Input
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("fsm: illegal event %s of generation %d in %s of generation %d",
		e.Input.Event, e.Input.Gen, e.From.State, e.From.Gen)
}

// ErrTable is wrapped by every error of [Compile].
var ErrTable = errors.New("fsm: invalid table")

// Table is a compiled, immutable set of rows. Its methods are safe for
// concurrent use.
type Table struct {
	initial State
	onInit  []Action
	rows    []Row                      // as given, for the renderers
	cells   [numStates][numEvents]*Row // for Step
}

// Compile checks rows and builds a Table. Unknown states, events or actions,
// duplicate pairs, a row without a Why and states that cannot be reached from
// initial are errors that wrap [ErrTable].
func Compile(initial State, onInit []Action, rows []Row) (*Table, error) {
	t := &Table{initial: initial, onInit: frozen(onInit)}
	if initial >= numStates {
		return nil, fmt.Errorf("%w: unknown initial state %s", ErrTable, initial)
	}
	if a, ok := unknownAction(onInit); ok {
		return nil, fmt.Errorf("%w: unknown action %s before any event", ErrTable, a)
	}
	t.rows = make([]Row, len(rows))
	for i, r := range rows {
		if r.From >= numStates || r.To >= numStates || r.On >= numEvents {
			return nil, fmt.Errorf("%w: row %d: unknown name in %s --%s--> %s", ErrTable, i, r.From, r.On, r.To)
		}
		if r.Why == "" {
			return nil, fmt.Errorf("%w: row %d: %s in %s has no Why", ErrTable, i, r.On, r.From)
		}
		if a, ok := unknownAction(r.Do); ok {
			return nil, fmt.Errorf("%w: row %d: unknown action %s", ErrTable, i, a)
		}
		if t.cells[r.From][r.On] != nil {
			return nil, fmt.Errorf("%w: row %d: a second row for %s in %s", ErrTable, i, r.On, r.From)
		}
		r.Do = frozen(r.Do)
		t.rows[i] = r
		t.cells[r.From][r.On] = &t.rows[i]
	}
	if s, ok := t.unreachable(); ok {
		return nil, fmt.Errorf("%w: %s cannot be reached from %s", ErrTable, s, initial)
	}
	return t, nil
}

// MustCompile is [Compile] for tables that are part of a program's text.
func MustCompile(initial State, onInit []Action, rows []Row) *Table {
	t, err := Compile(initial, onInit, rows)
	if err != nil {
		panic(err)
	}
	return t
}

// frozen copies actions that many callers will share. Without spare capacity, an
// append by one of them copies instead of writing where another one reads.
func frozen(do []Action) []Action { return slices.Clip(slices.Clone(do)) }

func unknownAction(do []Action) (Action, bool) {
	if i := slices.IndexFunc(do, func(a Action) bool { return a >= numActions }); i >= 0 {
		return do[i], true
	}
	return 0, false
}

// unreachable names a state that some row speaks of and no run can enter.
func (t *Table) unreachable() (State, bool) {
	var seen [numStates]bool
	seen[t.initial] = true
	for again := true; again; {
		again = false
		for _, r := range t.rows {
			if seen[r.From] && !seen[r.To] {
				seen[r.To], again = true, true
			}
		}
	}
	for _, r := range t.rows {
		if !seen[r.From] {
			return r.From, true
		}
	}
	return 0, false
}

// Init returns the first snapshot and the actions that come before any event.
// The caller must not modify the slice.
func (t *Table) Init() (Snapshot, []Action) { return Snapshot{State: t.initial, Gen: 1}, t.onInit }

// Rows returns a copy of the rows, in the order in which they were written.
func (t *Table) Rows() []Row {
	rows := make([]Row, len(t.rows))
	for i, r := range t.rows {
		r.Do = slices.Clone(r.Do)
		rows[i] = r
	}
	return rows
}

// Step looks in up in state s. It returns the next snapshot and the actions to
// perform, in order; the caller must not modify the slice. An event of an
// earlier generation is stale: nothing happens. An event the table has no row
// for, or of a generation that does not exist yet, is an [*IllegalError] and
// leaves s as it is. Step is pure and allocates only for that error.
func (t *Table) Step(s Snapshot, in Input) (Snapshot, []Action, error) {
	next, row, err := t.step(s, in)
	if row == nil {
		return next, nil, err
	}
	return next, row.Do, nil
}

func (t *Table) step(s Snapshot, in Input) (Snapshot, *Row, error) {
	if s.State >= numStates || in.Event >= numEvents {
		return s, nil, &IllegalError{From: s, Input: in}
	}
	if in.Event != Close && in.Gen != s.Gen {
		if in.Gen < s.Gen {
			return s, nil, nil
		}
		return s, nil, &IllegalError{From: s, Input: in}
	}
	row := t.cells[s.State][in.Event]
	if row == nil {
		return s, nil, &IllegalError{From: s, Input: in}
	}
	next := Snapshot{State: row.To, Gen: s.Gen}
	if in.Event.ending() {
		next.Gen++
	}
	return next, row, nil
}
