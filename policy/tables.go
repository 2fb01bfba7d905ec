package policy

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteBudgets writes the built-in budgets as a Markdown table, each with what
// it answers to a peer that never serves.
func WriteBudgets(w io.Writer) error {
	// Park's two errors are a nil budget and an interval that is not positive.
	parkedContract := parked{Contract(), time.Minute}
	var b bytes.Buffer
	b.WriteString("| budget | restarts and delay | delays before the tries of a peer that never serves, no jitter |\n|---|---|---|\n")
	for _, row := range []struct {
		name   string
		budget Budget
	}{
		{"Contract()", Contract()},
		{"Patient()", Patient()},
		{"Unlimited()", Unlimited()},
		{"Never()", Never()},
		{"Park(Contract(), time.Minute)", parkedContract},
	} {
		fmt.Fprintf(&b, "| `%s` | %v | %s |\n", row.name, row.budget, crashLoop(row.budget))
	}
	fmt.Fprintf(&b, "\nAn uptime of %v resets the exponent of a backoff, never a budget.\n", ResetUptime)
	_, err := w.Write(b.Bytes())
	return err
}

// crashLoop tells what becomes of a peer that dies whenever it is started.
func crashLoop(b Budget) string {
	const shown = 12 // one more than Unlimited needs to reach its cap
	var (
		l      Ledger
		delays []string
		outage time.Duration
	)
	at := time.Unix(0, 0)
	for gen := range uint64(shown) {
		var v Verdict
		l, v = b.Spend(l, Death{Gen: gen + 1, At: at.Add(outage)}, 0)
		if !v.Respawn {
			if gen == 0 {
				return "spent at the first death"
			}
			return fmt.Sprintf("%s, then spent, %s after the first death", strings.Join(delays, ", "), short(outage))
		}
		outage += v.Delay
		delays = append(delays, short(v.Delay))
	}
	return strings.Join(delays, ", ") + ", …"
}

// WriteRules writes the default retry rules as a Markdown table.
func WriteRules(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("| # | loss | decision | why |\n|---|---|---|---|\n")
	for _, r := range defaultRules {
		then := r.Then.String()
		if r.NewerOnly {
			then += ", on a newer incarnation"
		}
		if r.CursorLost {
			then += " with `ErrCursorLost`"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", r.N, listed(r.When), then, r.Why)
	}
	fmt.Fprintf(&b, "\nThe read set: `%s`.\n", strings.Join(readSet, "`, `"))
	_, err := w.Write(b.Bytes())
	return err
}

// WriteSignals writes what refusals and probes say of a session, or of an era,
// as Markdown tables.
func WriteSignals(w io.Writer) error {
	var b bytes.Buffer
	for i, table := range []struct {
		title string
		rows  []signal
	}{
		{"A refusal in the legacy era", legacySignals},
		{"The `ping` that settles a suspicion", pingSignals},
		{"A refusal in the modern era", modernSignals},
		{"The `server/discover` that settles it", discoverSignals},
	} {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "**%s**\n\n| what was met | means | why |\n|---|---|---|\n", table.title)
		for _, r := range table.rows {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", listed(r.when), r.then, r.why)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// listed names the conditions of a row.
func listed[T any](conds []Cond[T]) string {
	if len(conds) == 0 {
		return "anything else"
	}
	return join(conds, " · ")
}
