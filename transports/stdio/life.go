package stdio

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// life is one run of Serve. Four goroutines serve it: the writer, the reader of
// stdout, the reader of stderr and the one that awaits the exit. They end by
// themselves when their pipe or the process does; run closes the pipes.
type life struct {
	conf  Config
	emit  func(transports.Event)
	out   *outbox
	child *child
	stdin *stdin

	stdout, stderr *os.File
	words          *stderr

	// signs carries the first signs of the end that are not the exit. A later one
	// finds no room and needs none.
	signs   chan error
	ready   chan struct{} // closed once Ready was emitted: nothing comes before it
	running sync.WaitGroup
	eof     [2]chan struct{} // closed when stdout and stderr are read to their end

	killed []Process
}

// begin starts the process; after an error nothing of it is left.
func begin(conf Config, t *Transport, emit func(transports.Event)) (*life, error) {
	l := &life{
		conf: conf, emit: emit, out: t.out,
		signs: make(chan error, 1), ready: make(chan struct{}),
		eof: [2]chan struct{}{make(chan struct{}), make(chan struct{})},
	}
	cmd := exec.Command(conf.Path, conf.Args...)
	cmd.Dir, cmd.Env = conf.Dir, conf.environ()
	var ours, theirs [3]*os.File
	fail := func(err error) (*life, error) {
		closeAll(ours[:])
		closeAll(theirs[:])
		return nil, &StartError{Path: conf.Path, Err: explain(cmd, err)}
	}
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	var err error
	if l.stdin, err = newStdin(ours[0], t.out, emit, l.sign); err != nil {
		return fail(err)
	}
	if l.child, err = startChild(cmd); err != nil {
		return fail(err)
	}
	closeAll(theirs[:])
	t.stdin, l.stdout, l.stderr = l.stdin, ours[1], ours[2]
	l.words = &stderr{emit: emit, maxLine: conf.MaxDiagnostic, keep: conf.StderrTail}
	if conf.Stderr != nil {
		l.words.sink = newSink(conf.Stderr)
	}
	l.serve(t)
	return l, nil
}

// serve starts the goroutines. stderr is drained from here on, before anything
// can be written.
func (l *life) serve(t *Transport) {
	held := func(e transports.Event) {
		<-l.ready
		l.emit(e)
	}
	l.words.emit = held
	read := &reader{max: l.conf.MaxMessage, emit: held, read: func(n int) { t.burst.Store(int32(n)) }}
	if l.conf.WriteStall > 0 {
		read.emit = func(e transports.Event) {
			if m, ok := e.(transports.Message); ok {
				l.out.answered(m.Frame)
			}
			held(e)
		}
	}
	l.running.Go(func() {
		defer close(l.eof[1])
		l.words.run(l.stderr)
	})
	l.running.Go(func() {
		defer close(l.eof[0])
		if err := read.run(l.stdout); !errors.Is(err, os.ErrClosed) {
			l.sign(errors.Join(ErrClosedStdout, err))
		}
	})
	l.running.Go(l.stdin.run)
}

// sign notes a sign of the end. From the first one on Sends are refused.
func (l *life) sign(err error) {
	l.out.advance(shut)
	select {
	case l.signs <- err:
	default:
	}
}

func (l *life) run(ctx context.Context) error {
	l.tellStart()
	l.out.advance(open)
	l.emit(transports.Ready{})
	close(l.ready)

	reason, told := l.awaitEnd(ctx)
	if told {
		l.stop()
	} else {
		reason = l.awaitExit(reason)
	}
	escaped := l.finish()
	if told && len(l.killed)+len(escaped) == 0 {
		return reason
	}
	return &ExitError{
		Label: l.conf.Factory().Label, PID: l.child.pid, Status: l.child.status, Reason: reason,
		Stderr: l.words.last(), Killed: l.killed, Escaped: escaped,
	}
}

// tellStart calls OnStart. A panic in it must not leave the server running.
func (l *life) tellStart() {
	if l.conf.OnStart == nil {
		return
	}
	told := false
	defer func() {
		if told {
			return
		}
		l.emit = func(transports.Event) {} // it was never ready
		close(l.ready)
		l.out.advance(shut)
		l.kill()
		l.finish()
	}()
	l.conf.OnStart(l.child.process())
	told = true
}

// stallChecks is how often a stall is looked for within its bound: it is found
// at most an eighth late.
const stallChecks = 8

// awaitEnd waits for the first sign of the end, after which Sends are refused.
// stdin is closed then, so that whoever reads it leaves; told to stop, the writer
// does that when a frame that was begun is finished.
func (l *life) awaitEnd(ctx context.Context) (reason error, told bool) {
	var tick <-chan time.Time
	if l.conf.WriteStall > 0 {
		t := time.NewTicker(max(l.conf.WriteStall/stallChecks, time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-l.child.exited:
			l.out.advance(shut)
			l.stdin.file.Close()
			return nil, false
		case err := <-l.signs:
			l.stdin.file.Close()
			return err, false
		case <-ctx.Done():
			if l.out.advance(flushing) == shut {
				l.stdin.file.Close()
			}
			return context.Cause(ctx), true
		case <-tick:
			if l.out.stalled(l.conf.WriteStall) {
				l.sign(ErrStalled)
			}
		}
	}
}
