package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

// block is a piece of a document that is generated from the code. A document
// holds it between two lines,
//
//	<!-- respawn:begin NAME -->
//	<!-- respawn:end -->
//
// each at the start of its line. Indented ones are text about blocks.
type block struct {
	name  string
	write func(io.Writer) error
}

var blocks = []block{
	{"lifecycle-mermaid", fenced("mermaid", fsm.Lifecycle.WriteMermaid)},
	{"lifecycle-dot", fenced("dot", fsm.Lifecycle.WriteDOT)},
	{"lifecycle-table", fsm.Lifecycle.WriteMarkdown},
	{"policy-budgets", policy.WriteBudgets},
	{"policy-rules", policy.WriteRules},
	{"policy-signals", policy.WriteSignals},
	{"conformance-register", conformance.WriteRegister},
	{"run-flags", writeRunFlags},
	{"run-exits", writeRunExits},
	{"relay-errors", writeRelayErrors},
}

// fenced puts generated text into a code block of its language.
func fenced(language string, write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		fmt.Fprintf(w, "```%s\n", language)
		err := write(w)
		fmt.Fprintf(w, "```\n")
		return err
	}
}

// staleBlock is a block whose text is not what the code generates.
type staleBlock struct {
	line       int // of its begin marker, from 1
	block      string
	have, want string
}

// marker takes everything that looks like a marker, so that a misspelt one is an
// error and not a block that nobody checks.
var (
	marker = regexp.MustCompile(`^<!--\s*respawn:`)
	begin  = regexp.MustCompile(`^<!-- respawn:begin (\S+) -->$`)
)

const end = "<!-- respawn:end -->"

// regenerate returns doc with the text of every block generated anew, and those
// that differed. name is for errors alone.
func regenerate(name, doc string, blocks []block) (string, []staleBlock, error) {
	var out, have strings.Builder
	var open *block
	var opened int
	var stale []staleBlock
	n := 0
	for line := range strings.Lines(doc) {
		n++
		text := strings.TrimRight(line, "\r\n")
		at := func(format string, args ...any) (string, []staleBlock, error) {
			return "", nil, fmt.Errorf("%s:%d: %w", name, n, fmt.Errorf(format, args...))
		}
		switch {
		case !marker.MatchString(text):
			if open != nil {
				have.WriteString(line)
				continue
			}
		case text == end:
			if open == nil {
				return at("%s without a begin", end)
			}
			want, err := open.text()
			if err != nil {
				return at("block %s: %v", open.name, err)
			}
			if have.String() != want {
				stale = append(stale, staleBlock{opened, open.name, have.String(), want})
			}
			out.WriteString(want)
			open = nil
		case open != nil:
			return at("a marker inside block %s, which began on line %d and has no %s", open.name, opened, end)
		default:
			m := begin.FindStringSubmatch(text)
			if m == nil {
				return at("malformed marker %q", text)
			}
			if open = find(blocks, m[1]); open == nil {
				return at("unknown block %q (known: %s)", m[1], names(blocks))
			}
			opened = n
			have.Reset()
		}
		out.WriteString(line)
	}
	if open != nil {
		return "", nil, fmt.Errorf("%s:%d: block %s has no %s", name, opened, open.name, end)
	}
	return out.String(), stale, nil
}

// text is the generated text between the markers. Blank lines keep Markdown from
// reading it as part of the comments.
func (b block) text() (string, error) {
	var buf bytes.Buffer
	buf.WriteByte('\n')
	err := b.write(&buf)
	buf.WriteByte('\n')
	return buf.String(), err
}

func find(blocks []block, name string) *block {
	for i := range blocks {
		if blocks[i].name == name {
			return &blocks[i]
		}
	}
	return nil
}

func names(blocks []block) string {
	list := make([]string, len(blocks))
	for i, b := range blocks {
		list[i] = b.name
	}
	return strings.Join(list, ", ")
}
