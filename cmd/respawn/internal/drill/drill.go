// Package drill kills MCP servers, lets them forget their sessions and cuts their
// streams, and shows what becomes of their clients. It believes nobody: what ran
// is read from the record of the server, and who is left is looked up among the
// processes of the system.
package drill

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports/streamable"
)

// DefaultTimeout bounds each step. It is that of a request, and long enough for a
// start that does not install anything.
const DefaultTimeout = time.Minute

// Options say what to drill and how to tell of it.
type Options struct {
	Command  []string           // the server; empty: the built-in ones, in both eras
	Endpoint *streamable.Config // instead of a command: a server that is reached by HTTP
	Timeout  time.Duration      // of each step: a start, a request, a recovery; 0: DefaultTimeout
	Out      io.Writer          // what happens, and the table
	JSON     bool               // one object a line instead
	Color    bool

	fault, only string // of the built-in server, for tests: what is wrong with it, and the one part to drill
}

type drill struct {
	Options
	*report
	mark string // in the environment of all that is started here

	pidsMu sync.Mutex
	pids   []int // of the servers of the part that runs
}

func (d *drill) note(pid int) {
	d.pidsMu.Lock()
	defer d.pidsMu.Unlock()
	d.pids = append(d.pids, pid)
}

// markVar marks whatever is started here, and what that starts, with a word that
// is in the environment of no other process.
const markVar = "RESPAWN_DRILL"

// Run drills and reports whether everything held. The error says why there was
// nothing to drill.
func Run(ctx context.Context, o Options) (held bool, err error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	d := &drill{
		Options: o, mark: markVar + "=" + rand.Text(),
		report: &report{out: o.Out, json: o.JSON, color: o.Color, began: time.Now()},
	}
	switch {
	case o.Endpoint != nil:
		err = d.endpoint(ctx)
	case len(o.Command) > 0:
		err = d.command(ctx)
	default:
		err = d.builtin(ctx)
	}
	held = d.finish(err)
	if err == nil {
		err = d.report.err
	}
	return held, err
}

// run does the steps of a part in turn. A step that can't go on ends the part:
// what it was to reach stays unreached, which is no less a failure.
func (d *drill) run(ctx context.Context, steps ...func(context.Context) error) {
	for _, step := range steps {
		if ctx.Err() != nil {
			return
		}
		if err := step(ctx); err != nil {
			d.say("error", err.Error(), field{"error", err.Error()})
			return
		}
	}
}

// world is what a part must leave as it found it.
type world struct {
	goroutines, files int
	filesKnown        bool
}

func look() world {
	// The first pipe of a process opens the runtime's own descriptors.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	w := world{goroutines: runtime.NumGoroutine()}
	w.files, w.filesKnown = openFiles()
	return w
}

const checkLeft = "nothing is left running"

// settle is how long what has ended may take to be gone: a goroutine that has
// told of its end, and a process that was killed, are still seen for a moment.
const settle = 2 * time.Second

// left compares the world with what it was, and looks for marked processes and
// for the groups of the part's servers, beside which there were as many that are
// no processes.
func (d *drill) left(before world, others int) {
	d.pidsMu.Lock()
	pids := d.pids
	d.pids = nil
	d.pidsMu.Unlock()
	deadline := time.Now().Add(settle)
	for {
		now := look()
		processes, known := marked(d.mark)
		for _, pid := range pids {
			processes = append(processes, groupLeft(pid)...)
		}
		clean := len(processes) == 0 && now.goroutines <= before.goroutines && now.files <= before.files
		if !clean && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
			continue
		}
		measured := fmt.Sprintf("%d processes of %s, %+d goroutines", len(processes), plural(len(pids)+others, "server", "servers"), now.goroutines-before.goroutines)
		if now.filesKnown {
			measured += fmt.Sprintf(", %+d descriptors", now.files-before.files)
		}
		if !known {
			measured += " (by process group: this system does not tell the environment of others)"
		}
		if len(processes) > 0 {
			measured += fmt.Sprintf("; still there: %v", processes)
		}
		d.prove(checkLeft, clean && len(pids)+others > 0, "%s", measured)
		return
	}
}
