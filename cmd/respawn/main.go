// Respawn keeps MCP connections alive. See respawn help.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/respawn-mcp/respawn/cmd/respawn/internal/drill"
)

// Exit codes of every subcommand, unless its own help says more.
const (
	exitOK      = 0
	exitFailure = 1 // it was understood, and did not work or did not hold
	exitUsage   = 2 // it was not understood
)

// streams are the three files of a command, so that tests can hand in others.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command is one subcommand. run gets the arguments after its name and returns
// an exit code.
type command struct {
	name, args, summary string
	run                 func(command, streams, []string) int
}

// commands is what respawn can do, one file each.
var commands = []command{
	{"diagram", "[-format mermaid|dot|markdown] | -write FILE… | -check FILE…", "print the lifecycle, or write or check generated blocks in docs", diagram},
	{"drill", "[flags] [-- command args… | URL]", "kill a server and show what is recovered: the built-in ones, or a given one", runDrill},
	{"run", "[flags] [--] command args… | [flags] URL", "put recovery in front of a server, for any host that speaks stdio", runCommand},
	{"version", "", "print the version", version},
}

func main() {
	if isGuard(os.Args[1:]) {
		return
	}
	if code, played := drill.Play(os.Args[1:]); played {
		os.Exit(code)
	}
	os.Exit(run(streams{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

func run(std streams, args []string) int {
	if len(args) == 0 {
		usage(std.err)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(std.out)
		return exitOK
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(c, std, args[1:])
		}
	}
	fmt.Fprintf(std.err, "respawn: unknown command %q\n", args[0])
	usage(std.err)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "respawn keeps MCP connections alive.\n\nusage: respawn COMMAND [arguments]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "\nrespawn COMMAND -h tells more.\n")
}

// flags returns an empty flag set that speaks in the command's name.
func (c command) flags(std streams) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(std.err)
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "usage: respawn %s %s\n\n%s\n\n", c.name, c.args, c.summary)
		fs.PrintDefaults()
	}
	return fs
}

// parse reports whether the command should go on, and its exit code if not. The
// flag package has told the user why by then.
func parse(fs *flag.FlagSet, args []string) (code int, ok bool) {
	switch err := fs.Parse(args); {
	case err == nil:
		return exitOK, true
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	default:
		return exitUsage, false
	}
}

// misused reports a wrong combination of arguments.
func misused(fs *flag.FlagSet, format string, args ...any) int {
	fmt.Fprintf(fs.Output(), "respawn %s: %s\n", fs.Name(), fmt.Sprintf(format, args...))
	fs.Usage()
	return exitUsage
}
