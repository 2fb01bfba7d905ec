package fsm

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteMermaid writes the table as a Mermaid state diagram. Rows that differ in
// their event only share one arrow. A name with a hyphen is a syntax error as a
// Mermaid id, so states get ids of a to z and _ and carry their names as labels.
func (t *Table) WriteMermaid(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("stateDiagram-v2\n")
	for _, s := range t.states() {
		fmt.Fprintf(&b, "    state %q as %s\n", s, mermaidID(s))
	}
	fmt.Fprintf(&b, "    [*] --> %s%s\n", mermaidID(t.initial), prefixed(": ", join(t.onInit)))
	for _, a := range t.arrows() {
		fmt.Fprintf(&b, "    %s --> %s: %s%s\n", mermaidID(a.From), mermaidID(a.To), join(a.on), prefixed(" / ", join(a.Do)))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteDOT writes the table as a Graphviz digraph, one edge for each row, with
// the event on the first line of its label and the actions on the second.
func (t *Table) WriteDOT(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("digraph lifecycle {\n    rankdir=LR;\n    node [shape=box, style=rounded];\n    \"\" [shape=point];\n")
	for _, s := range t.states() {
		fmt.Fprintf(&b, "    %q;\n", s)
	}
	fmt.Fprintf(&b, "    \"\" -> %q [label=%q];\n", t.initial, join(t.onInit))
	for _, r := range t.rows {
		fmt.Fprintf(&b, "    %q -> %q [label=%q];\n", r.From, r.To, r.On.String()+prefixed("\n", join(r.Do)))
	}
	b.WriteString("}\n")
	_, err := w.Write(b.Bytes())
	return err
}

// WriteMarkdown writes the table twice: as a matrix of states and events, and as
// a list of its rows with their reasons. In the matrix ✗ is an illegal pair and
// – an absorbed one.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("| |")
	for _, e := range Events() {
		fmt.Fprintf(&b, " %s |", e)
	}
	b.WriteString("\n|" + strings.Repeat("---|", int(numEvents)+1) + "\n")
	for _, s := range t.states() {
		fmt.Fprintf(&b, "| **%s** |", s)
		for _, e := range Events() {
			fmt.Fprintf(&b, " %s |", cell(t.cells[s][e]))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n| in | on | to | do | why |\n|---|---|---|---|---|\n")
	fmt.Fprintf(&b, "| | | %s | %s | the first actions, before any event |\n", t.initial, join(t.onInit))
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.From, r.On, r.To, join(r.Do), markdownCell.Replace(r.Why))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// states lists the states that a run can enter. Compile made sure that rows
// speak of no others.
func (t *Table) states() []State {
	return slices.DeleteFunc(States(), func(s State) bool {
		return s != t.initial && !slices.ContainsFunc(t.rows, func(r Row) bool { return r.To == s })
	})
}

// arrow is a set of rows that a reader of a diagram sees as one.
type arrow struct {
	Row
	on []Event
}

func (t *Table) arrows() []arrow {
	var arrows []arrow
	for _, r := range t.rows {
		i := slices.IndexFunc(arrows, func(a arrow) bool {
			return a.From == r.From && a.To == r.To && slices.Equal(a.Do, r.Do)
		})
		if i < 0 {
			i, arrows = len(arrows), append(arrows, arrow{Row: r})
		}
		arrows[i].on = append(arrows[i].on, r.On)
	}
	return arrows
}

func cell(r *Row) string {
	switch {
	case r == nil:
		return "✗"
	case r.From != r.To:
		return "→ " + r.To.String() + prefixed(": ", join(r.Do))
	case len(r.Do) == 0:
		return "–"
	default:
		return join(r.Do)
	}
}

func mermaidID(s State) string { return strings.ReplaceAll(s.String(), "-", "_") }

// markdownCell keeps a sentence inside its table cell.
var markdownCell = strings.NewReplacer("|", `\|`, "\n", " ")

func join[T fmt.Stringer](list []T) string {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.String()
	}
	return strings.Join(names, ", ")
}

// prefixed puts prefix before s, and nothing before nothing.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
