package policy_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	. "github.com/respawn-mcp/respawn/policy"
)

// fullDisk takes nothing.
type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

var writers = map[string]func(io.Writer) error{"budgets": WriteBudgets, "rules": WriteRules, "signals": WriteSignals}

func TestTables_AreTheSameEachTimeAndPassErrorsOn(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			var first, second bytes.Buffer
			if err := errors.Join(write(&first), write(&second)); err != nil {
				t.Fatal(err)
			}
			equal(t, "text", first.String(), second.String())
			equal(t, "error", true, errors.Is(write(fullDisk{}), errFull))
		})
	}
}

func TestTables_AreWellFormedMarkdown(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			columns := 0
			for _, line := range strings.Split(b.String(), "\n") {
				if !strings.HasPrefix(line, "|") {
					columns = 0
					continue
				}
				if columns == 0 {
					columns = strings.Count(line, "|")
				}
				if strings.Count(line, "|") != columns || strings.Contains(line, "|  |") {
					t.Errorf("a row with an empty cell, or not of %d columns: %s", columns-1, line)
				}
			}
		})
	}
}

func TestTables_PrintARowForEachRule(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRules(&b); err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", len(DefaultRules())+2, strings.Count(b.String(), "\n|")+1)
	for _, method := range readSet {
		if !strings.Contains(b.String(), "`"+method+"`") {
			t.Errorf("the read set misses %s", method)
		}
	}
	for _, row := range []string{
		"| 3 | refused, or broken and not resumable · already sent again once for that | fail | it was sent again once, and a second loss is not a blip |\n",
		"| 4 | refused · a listing with a cursor | fail with `ErrCursorLost` | its cursor belonged to the session that is gone |\n",
		"| 5 | refused | send again, new id, on a newer incarnation | a refusal proves that it did not run |\n",
		"| 10 | anything else | fail | it may have run, and nothing says that running it twice does no harm |\n",
	} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("missing: %s", row)
		}
	}
}

func TestTables_TellWhatABudgetAnswersToACrashLoop(t *testing.T) {
	var b bytes.Buffer
	if err := WriteBudgets(&b); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| `Contract()` | 3 restarts per 1m (tumbling), delay 100ms | 100ms, 100ms, 100ms, then spent, 300ms after the first death |\n",
		"| 0s, 100ms, 400ms, 1.6s, 6.4s, 15s, then spent, 23.5s after the first death |\n",
		"| `Never()` | no restart | spent at the first death |\n",
		"| 100ms, 100ms, 100ms, 1m, 1m,",
	} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("missing: %s", row)
		}
	}
}
