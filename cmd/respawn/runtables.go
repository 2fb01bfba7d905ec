package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/respawn-mcp/respawn/client/relay"
)

// writeRunFlags writes the flags of respawn run as a table for its users.
func writeRunFlags(w io.Writer) error {
	var f runFlags
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	f.register(fs)
	fmt.Fprintf(w, "| flag | in the environment | default | |\n|---|---|---|---|\n")
	fs.VisitAll(func(f *flag.Flag) {
		def := f.DefValue
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(w, "| `-%s` | `%s` | %s | %s |\n", f.Name, twin(f.Name), def, f.Usage)
	})
	return nil
}

// exits are the exit codes of respawn run.
var exits = []struct {
	code string
	when string
}{
	{fmt.Sprint(exitOK), "the host closed our stdin, or stopped reading our stdout"},
	{"the server's", "it ended twice before it answered its first opening exchange; 128 and the signal's number if a signal ended it"},
	{fmt.Sprint(exitGaveUp), "the budget is spent, or a replacement is another server than the host agreed with"},
	{fmt.Sprint(exitShim), "respawn itself could not start: a flag or a file is wrong"},
	{fmt.Sprint(exitNotStarted), "the command was found and can't be run"},
	{fmt.Sprint(exitNotFound), "the command was not found"},
	{fmt.Sprintf("%d + n", exitSignal), "signal n ended us, after the server was stopped"},
}

func writeRunExits(w io.Writer) error {
	fmt.Fprintf(w, "| exit code | when |\n|---|---|\n")
	for _, e := range exits {
		fmt.Fprintf(w, "| %s | %s |\n", e.code, e.when)
	}
	return nil
}

// errorCodes are the errors that a host hears from us rather than from its server.
var errorCodes = []struct {
	code        int
	name, means string
}{
	{relay.CodeOutcomeUnknown, "outcome unknown", "The server died, nobody served for too long, or the answer could not be passed on, after the request may have reached it. Look whether it took effect before you send it again."},
	{relay.CodeNotDelivered, "not delivered", "The request provably never ran: no server took it in time, or too much was waiting. Sending it again is safe."},
	{relay.CodeGaveUp, "gave up", "No server will follow. `data.outcome` says whether this request may have run."},
}

func writeRelayErrors(w io.Writer) error {
	fmt.Fprintf(w, "| code | | what it means |\n|---|---|---|\n")
	for _, e := range errorCodes {
		fmt.Fprintf(w, "| %d | %s | %s |\n", e.code, e.name, e.means)
	}
	return nil
}

// twin is the environment variable of a flag.
func twin(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
