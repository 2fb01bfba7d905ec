package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/respawn-mcp/respawn/cmd/respawn/internal/drill"
)

func runDrill(c command, std streams, args []string) int {
	fs := c.flags(std)
	asJSON := fs.Bool("json", false, "print one JSON object for each event, and a summary")
	timeout := fs.Duration("timeout", drill.DefaultTimeout, "how long each step may take: a start, a request, a recovery")
	var reach runFlags
	reach.registerHeaders(fs)
	if code, ok := parse(fs, args); !ok {
		return code
	}
	dashes := len(args) > fs.NArg() && args[len(args)-fs.NArg()-1] == "--"
	byURL := !dashes && isURL(fs.Arg(0))
	switch {
	case !byURL && len(reach.header)+len(reach.headerEnv) > 0:
		return misused(fs, "-header and -header-env are for a URL")
	case *timeout <= 0:
		return misused(fs, "-timeout %s is not positive", *timeout)
	case dashes && fs.NArg() == 0:
		return misused(fs, "no command after --")
	case !dashes && !byURL && fs.NArg() > 0:
		return misused(fs, "unexpected argument %q (a server's command comes after --)", fs.Arg(0))
	}
	options := drill.Options{
		Command: fs.Args(), Timeout: *timeout,
		JSON: *asJSON, Color: !*asJSON && inColor(std.out),
	}
	if byURL {
		var err error
		if options.Endpoint, err = reach.endpoint(fs.Arg(0), fs.Args()[1:]); err != nil {
			return misused(fs, "%v", err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	options.Out = audience{std.out, leave}
	// The write must fail rather than kill us. The signal itself says nothing: a
	// write to a server that has just died raises it too.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	defer signal.Stop(ignored)
	held, err := drill.Run(ctx, options)
	if err != nil {
		fmt.Fprintf(std.err, "respawn drill: %v\n", err)
	}
	if !held {
		return exitFailure
	}
	return exitOK
}

// audience is where a drill is shown. Whoever reads may leave before the end
// (| head), which ends the drill and is no reason to leave servers and files behind.
type audience struct {
	io.Writer
	leave context.CancelCauseFunc
}

func (a audience) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if err != nil {
		a.leave(err)
	}
	return n, err
}

// inColor reports whether w is a terminal that shows colours, and its user does
// not mind (no-color.org). Windows consoles have to be asked for them, which
// nobody does here.
func inColor(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return false
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
