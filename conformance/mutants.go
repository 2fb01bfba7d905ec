package conformance

import (
	"fmt"
	"slices"

	"github.com/respawn-mcp/respawn/fsm"
)

// Mutant is a table with one mistake in it.
type Mutant struct {
	Mistake string
	Table   *fsm.Table
}

// Mutants makes every table that differs from this one by a small mistake:
// another initial state, a row dropped, a target changed, an action dropped, or
// moved within its row or to any place in another one. A row that absorbs an
// event outside closed is not dropped: with it or without it nothing happens.
func Mutants(table *fsm.Table) []Mutant {
	var m mutants
	at, first := table.Init()
	rows := table.Rows()
	for _, s := range fsm.States() {
		if s != at.State {
			m.add(fmt.Sprintf("the initial state is %s", s), s, first, rows)
		}
	}
	for i := range first {
		m.add(fmt.Sprintf("no %s before any event", first[i]), at.State, without(first, i), rows)
	}
	for i, r := range rows {
		if r.From == fsm.Closed || r.To != r.From || len(r.Do) > 0 {
			m.add(fmt.Sprintf("no row for %s in %s", r.On, r.From), at.State, first, without(rows, i))
		}
		for _, s := range fsm.States() {
			if s != r.To {
				m.add(fmt.Sprintf("%s in %s goes to %s", r.On, r.From, s), at.State, first, with(rows, i, func(r *fsm.Row) { r.To = s }))
			}
		}
		for j, a := range r.Do {
			dropped := with(rows, i, func(r *fsm.Row) { r.Do = without(r.Do, j) })
			m.add(fmt.Sprintf("no %s on %s in %s", a, r.On, r.From), at.State, first, dropped)
			for k, to := range dropped {
				for place := range len(to.Do) + 1 {
					moved := with(dropped, k, func(r *fsm.Row) { r.Do = slices.Insert(slices.Clone(r.Do), place, a) })
					if !slices.Equal(moved[i].Do, r.Do) {
						m.add(fmt.Sprintf("%s on %s in %s moved to place %d on %s in %s", a, r.On, r.From, place, to.On, to.From),
							at.State, first, moved)
					}
				}
			}
		}
	}
	return m
}

type mutants []Mutant

// add compiles a mutant. A mistake can cut states off, and no table compiles
// with rows that no run reaches, so it loses these.
func (m *mutants) add(mistake string, initial fsm.State, first []fsm.Action, rows []fsm.Row) {
	reached := map[fsm.State]bool{initial: true}
	for range fsm.States() {
		for _, r := range rows {
			reached[r.To] = reached[r.To] || reached[r.From]
		}
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r fsm.Row) bool { return !reached[r.From] })
	*m = append(*m, Mutant{mistake, fsm.MustCompile(initial, first, rows)})
}

func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }

func with(rows []fsm.Row, i int, change func(*fsm.Row)) []fsm.Row {
	rows = slices.Clone(rows)
	change(&rows[i])
	return rows
}
