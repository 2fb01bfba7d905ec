package conformance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/respawn-mcp/respawn/fsm"
)

// depth is how many events the runs of [Invariants] have: two whole lives (up,
// lost, due, up, lost) and what comes after them.
const depth = 6

// Invariants walks every run of a table, to six events, and returns the first
// one that breaks what [Life] holds. Besides, an event that is possible must be
// legal, one that is not must be illegal or without effect, and a stale one does
// nothing. It is pure and works on any table.
func Invariants(table *fsm.Table) error {
	at, do := table.Init()
	life, err := NewLife(at, do)
	if err != nil {
		return fmt.Errorf("before any event: %w", err)
	}
	for limit := 1; limit <= depth; limit++ { // the shortest run tells most
		if err := walk(table, life, nil, limit); err != nil {
			return err
		}
	}
	return nil
}

// walk leaves stale events out of its runs once it has seen that they change
// nothing: a run with them is the run without them.
func walk(table *fsm.Table, life Life, run trail, limit int) error {
	for _, e := range fsm.Events() {
		if e != fsm.Close {
			stale := fsm.Input{Event: e, Gen: life.at.Gen - 1}
			if next, do, err := table.Step(life.at, stale); err != nil || next != life.at || len(do) > 0 {
				return run.with(stale).wrong(fmt.Errorf("a stale event went to %v with %v, error %v", next, do, err))
			}
		}
	}
	if len(run) == limit {
		return nil
	}
	for _, e := range fsm.Events() {
		in := fsm.Input{Event: e, Gen: life.at.Gen}
		if e == fsm.Close {
			in.Gen = 0
		}
		run := run.with(in)
		next, do, err := table.Step(life.at, in)
		if !life.Possible(e) {
			// Closed absorbs whatever lost the race with it, so nobody asks there
			// whether it was possible.
			if err == nil && !life.closed && (next != life.at || len(do) > 0) {
				return run.wrong(errors.New("it cannot happen, and has an effect"))
			}
			continue
		}
		if err != nil {
			return run.wrong(fmt.Errorf("it can happen, and is illegal: %w", err))
		}
		after := life
		if err := after.Observe(fsm.Transition{From: life.at.State, Event: e, To: next.State, Gen: next.Gen, Do: do}); err != nil {
			return run.wrong(err)
		}
		if err := walk(table, after, run, limit); err != nil {
			return err
		}
	}
	return nil
}

// trail is the events of a run, oldest first.
type trail []fsm.Input

func (r trail) with(in fsm.Input) trail { return append(r[:len(r):len(r)], in) }

func (r trail) wrong(err error) error {
	names := make([]string, len(r))
	for i, in := range r {
		names[i] = in.Event.String()
		if in.Gen > 0 {
			names[i] += fmt.Sprintf("(%d)", in.Gen)
		}
	}
	return fmt.Errorf("after %s: %w", strings.Join(names, ", "), err)
}
