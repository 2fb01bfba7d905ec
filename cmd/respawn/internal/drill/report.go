package drill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// report prints what happens, as it happens, and keeps what was proved for the
// table at the end. Its methods are safe for concurrent use.
type report struct {
	out         io.Writer
	json, color bool
	began       time.Time

	mu     sync.Mutex
	part   string
	titled bool // the part's title was printed
	checks []check
	err    error // of the first write that failed
	over   bool  // the summary was printed, and nothing follows
}

// check is one line of the table.
type check struct {
	Part     string `json:"part"`
	Name     string `json:"check"`
	Result   string `json:"result"`
	Measured string `json:"measured"`
}

// The results of a check.
const (
	resultHeld    = "held"
	resultFailed  = "FAILED"
	resultMissing = "not reached"
)

// field is one value of an event in JSON.
type field struct {
	name  string
	value any
}

// begin starts a part of the drill. Its title is printed with its first event, so
// that a server which can't be started leaves its error alone.
func (r *report) begin(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part, r.titled = part, false
}

// expect says which checks the part is to reach.
func (r *report) expect(checks ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range checks {
		r.checks = append(r.checks, check{Part: r.part, Name: name, Result: resultMissing})
	}
}

// say prints one event: a kind of one word, a text for people, and fields for
// programs.
func (r *report) say(kind, text string, fields ...field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(kind, text, fields)
}

func (r *report) sayLocked(kind, text string, fields []field) {
	if r.over {
		return
	}
	at := seconds(time.Since(r.began))
	if r.json {
		r.printJSON(append([]field{{"seconds", at}, {"event", kind}, {"part", r.part}, {"text", text}}, fields...))
		return
	}
	if !r.titled {
		r.titled = true
		r.print(r.paint(bold, r.part) + "\n")
	}
	text = strings.ReplaceAll(text, "\n", " ") // an error may have several lines
	r.print(fmt.Sprintf("%s  %s %s\n", r.paint(dim, fmt.Sprintf("%8.3fs", at)), r.paint(hues[kind], fmt.Sprintf("%-8s", kind)), text))
}

// prove settles a check of the part that runs.
func (r *report) prove(name string, held bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.checks {
		c := &r.checks[i]
		if c.Part != r.part || c.Name != name {
			continue
		}
		if c.Result = resultFailed; held {
			c.Result = resultHeld
		}
		c.Measured = fmt.Sprintf(format, args...)
		if r.json || !held {
			r.sayLocked("check", c.Result+": "+name+": "+c.Measured, []field{
				{"check", name}, {"result", c.Result}, {"measured", c.Measured},
			})
		}
		return
	}
	panic("a check that was not announced: " + name)
}

// finish prints the table, or the summary, and reports whether every check held. What a
// client tells of its end after that is for nobody.
func (r *report) finish(failure error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	held := 0
	for _, c := range r.checks {
		if c.Result == resultHeld {
			held++
		}
	}
	all := failure == nil && held == len(r.checks) && held > 0
	took := seconds(time.Since(r.began))
	if r.json {
		fields := []field{{"seconds", took}, {"event", "summary"}, {"held", all}, {"checks", append([]check{}, r.checks...)}}
		if failure != nil {
			fields = append(fields, field{"error", failure.Error()})
		}
		r.printJSON(fields)
		return all && r.err == nil
	}
	if failure == nil {
		r.table()
		r.print(fmt.Sprintf("\n%d of %d held, in %.1f s\n", held, len(r.checks), took))
	}
	return all && r.err == nil
}

// table prints every check under its part.
func (r *report) table() {
	wide, wider, part := 0, 0, ""
	for _, c := range r.checks {
		wide, wider = max(wide, len(c.Result)), max(wider, len(c.Name))
	}
	for _, c := range r.checks {
		if c.Part != part {
			part = c.Part
			r.print("\n" + r.paint(bold, part+", what was proved") + "\n")
		}
		line := fmt.Sprintf("  %s  %-*s  %s", r.paint(hues[c.Result], fmt.Sprintf("%-*s", wide, c.Result)), wider, c.Name, c.Measured)
		r.print(strings.TrimRight(line, " ") + "\n")
	}
}

// seconds has as many digits as anybody looks at.
func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

// The colours of a terminal (ECMA-48, SGR).
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

var hues = map[string]string{
	"state": cyan, "kill": yellow, "cut": yellow, "restart": yellow, "delete": yellow, "untried": yellow, "end": yellow, "error": red, "check": red,
	resultHeld: green, resultFailed: red, resultMissing: red,
}

func (r *report) paint(hue, text string) string {
	if !r.color || hue == "" {
		return text
	}
	return "\x1b[" + hue + "m" + text + "\x1b[0m"
}

// printJSON prints one object on one line, its fields in their order.
func (r *report) printJSON(fields []field) {
	var b bytes.Buffer
	for i, f := range fields {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			panic(err) // all values are this package's
		}
		b.WriteByte(sep)
		b.WriteString(text(f.name) + ":")
		b.Write(value)
	}
	r.print(b.String() + "}\n")
}

func (r *report) print(s string) {
	if _, err := io.WriteString(r.out, s); err != nil && r.err == nil {
		r.err = err
	}
}
