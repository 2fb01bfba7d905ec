package policy

import "strings"

// Cond is one named condition of a table of decisions. The name is what the
// docs print, so it says in a few words what Holds checks.
type Cond[T any] struct {
	Name  string
	Holds func(T) bool
}

// all holds if every condition does; none of them always holds.
func all[T any](conds []Cond[T], facts T) bool {
	for _, c := range conds {
		if !c.Holds(facts) {
			return false
		}
	}
	return true
}

func either[T any](conds ...Cond[T]) Cond[T] {
	name := join(conds, " or ")
	if strings.Contains(name, " and ") { // "a, or b and c" is read as it is meant
		name = join(conds, ", or ")
	}
	return Cond[T]{
		Name: name,
		Holds: func(facts T) bool {
			for _, c := range conds {
				if c.Holds(facts) {
					return true
				}
			}
			return false
		},
	}
}

func both[T any](conds ...Cond[T]) Cond[T] {
	return Cond[T]{Name: join(conds, " and "), Holds: func(facts T) bool { return all(conds, facts) }}
}

func not[T any](c Cond[T]) Cond[T] {
	return Cond[T]{Name: "not " + c.Name, Holds: func(facts T) bool { return !c.Holds(facts) }}
}

// join names conditions together, for people.
func join[T any](conds []Cond[T], with string) string {
	names := make([]string, len(conds))
	for i, c := range conds {
		names[i] = c.Name
	}
	return strings.Join(names, with)
}
