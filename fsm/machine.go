package fsm

import (
	"context"
	"sync/atomic"

	looplab "github.com/looplab/fsm"
)

// Transition is one step that a [Machine] made. A stale event leaves From, To
// and Gen equal and Do and Why empty.
type Transition struct {
	From  State
	Event Event
	To    State
	Gen   uint64   // after the step
	Do    []Action // shared with the table: not to be modified
	Why   string
}

// Machine runs one peer through a table. Step has one owner; State and Snapshot
// may be called from any goroutine.
//
// The state is held, and legality enforced a second time, by looplab/fsm. It is
// used without callbacks (Event from a callback deadlocks, a panic in one wedges
// the machine), always with context.Background() (a cancelled context wedges it
// too), and never for self-loops (it reports those as errors). [Table.Step]
// decides what a step means.
type Machine struct {
	table *Table
	keep  *looplab.FSM
	snap  atomic.Uint64 // Gen<<stateBits | State, so that readers see both or neither
}

const stateBits = 8

// New returns a machine in the table's initial state, generation 1, and the
// actions to perform before the first event.
func New(t *Table) (*Machine, []Action) {
	first, do := t.Init()
	m := &Machine{table: t, keep: t.looplab()}
	m.store(first)
	return m, do
}

// looplab translates the rows, self-loops included, so that its own view of what
// is legal can be compared with ours.
func (t *Table) looplab() *looplab.FSM {
	events := make(looplab.Events, len(t.rows))
	for i, r := range t.rows {
		events[i] = looplab.EventDesc{Name: r.On.String(), Src: []string{r.From.String()}, Dst: r.To.String()}
	}
	return looplab.NewFSM(t.initial.String(), events, nil)
}

// State returns the current state.
func (m *Machine) State() State { return m.Snapshot().State }

// Snapshot returns the current state and generation, read together.
func (m *Machine) Snapshot() Snapshot {
	v := m.snap.Load()
	return Snapshot{State: State(v & (1<<stateBits - 1)), Gen: v >> stateBits}
}

func (m *Machine) store(s Snapshot) { m.snap.Store(s.Gen<<stateBits | uint64(s.State)) }

// Step applies one event. On an [*IllegalError] nothing changes.
func (m *Machine) Step(in Input) (Transition, error) {
	from := m.Snapshot()
	next, row, err := m.table.step(from, in)
	tr := Transition{From: from.State, Event: in.Event, To: next.State, Gen: next.Gen}
	if row == nil {
		return tr, err
	}
	if row.From != row.To {
		if m.keep.Event(context.Background(), in.Event.String()) != nil {
			return Transition{From: from.State, Event: in.Event, To: from.State, Gen: from.Gen},
				&IllegalError{From: from, Input: in}
		}
	}
	m.store(next)
	tr.Do, tr.Why = row.Do, row.Why
	return tr, nil
}
