package conformance

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Status says how far a requirement is fulfilled.
type Status uint8

const (
	Gap           Status = iota // not proved, or not in every part
	Met                         // the tests of Evidence prove it
	NotApplicable               // out of scope, for the reason in Why
)

var statusNames = [...]string{"gap", "met", "not applicable"}

// String returns "gap", "met" or "not applicable".
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Requirement is one row of the register: something that respawn must do, and
// the tests that prove it.
type Requirement struct {
	ID       string // a letter and a number: S14, H2, M6, T16, R4, B026; or a name
	Sentence string
	Status   Status
	Why      string   // NotApplicable: the reason. Gap: the part that is missing, where another part has tests
	Evidence []string // names of top-level tests anywhere in this module
}

func met(id, sentence string, tests ...string) Requirement {
	return Requirement{ID: id, Sentence: sentence, Status: Met, Evidence: tests}
}

func notApplicable(id, sentence, why string) Requirement {
	return Requirement{ID: id, Sentence: sentence, Status: NotApplicable, Why: why}
}

// chapter is the part of the register that shares a letter.
type chapter struct {
	letter, title string
	rows          []Requirement
}

var chapters = []chapter{
	{"S", "Supervision of a peer that can die", registerS},
	{"H", "A legacy HTTP session that the server forgot", registerH},
	{"M", "A modern response stream that broke", registerM},
	{"T", "Traps that others fell into", registerT},
	{"R", "The relay and its command, as a host sees them", registerR},
	{"B", "Faults met in the field", registerB},
	{"N", "Requirements that have a name", registerNamed},
}

// Register returns every requirement, in the order of the docs.
func Register() []Requirement {
	var all []Requirement
	for _, c := range chapters {
		all = append(all, c.rows...)
	}
	return all
}

// WriteRegister writes the register as Markdown: a count, then a table for each
// chapter.
func WriteRegister(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("| | met | gap | not applicable |\n|---|---|---|---|\n")
	for _, c := range chapters {
		fmt.Fprintf(&b, "| %s: %s | %d | %d | %d |\n", c.letter, c.title,
			count(c.rows, Met), count(c.rows, Gap), count(c.rows, NotApplicable))
	}
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n### %s: %s\n\n| | what must hold | status | evidence |\n|---|---|---|---|\n", c.letter, c.title)
		for _, r := range c.rows {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.ID, cell(r.Sentence), r.Status, cell(r.proof()))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func count(rows []Requirement, s Status) int {
	n := 0
	for _, r := range rows {
		if r.Status == s {
			n++
		}
	}
	return n
}

// proof is the last column: the tests, and what they do not prove.
func (r Requirement) proof() string {
	var parts []string
	for _, name := range r.Evidence {
		parts = append(parts, "`"+name+"`")
	}
	if r.Why != "" {
		parts = append(parts, r.Why)
	}
	return strings.Join(parts, "; ")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
