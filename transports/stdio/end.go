package stdio

import (
	"errors"
	"os"
	"slices"
	"time"
)

// stop ends the group as the specification asks (2026-07-28 basic/transports/stdio,
// Shutdown): stdin is closed, then SIGTERM, then SIGKILL, each after a wait.
func (l *life) stop() {
	within(l.child.exited, l.conf.StdinWait)
	l.stdin.file.Close()
	if left := l.left(); len(left) > 0 {
		l.note(left)
		l.child.terminate()
		l.awaitGroup(l.conf.TermWait)
	}
	l.kill()
}

// awaitExit waits for the exit of a server that showed another sign of its end,
// and kills it if it stays. The reason is not worth telling if it leaves by itself.
func (l *life) awaitExit(reason error) error {
	left := within(l.child.exited, l.conf.ExitWait)
	if !left {
		l.kill()
	}
	if left && !errors.Is(reason, ErrStalled) {
		return nil
	}
	return reason
}

// finish collects what the dead left in the pipes, ends what is left of the
// group, reaps its leader, closes our ends, and waits for our goroutines. Whoever
// holds a pipe then has left the group.
func (l *life) finish() (escaped []Process) {
	// The last part of the time is for what the kill lets go of.
	const parts = 5
	last := l.conf.ReadWait / parts
	if !l.readOut(l.conf.ReadWait - last) {
		l.kill()
	}
	// The leader is not reaped yet, so its number still means this group and no
	// other: this kill can't hit a stranger, and it reaches what no report named.
	l.child.kill()
	deadline := time.Now().Add(l.conf.KillWait)
	if within(l.child.exited, l.conf.KillWait) {
		l.child.reap()
		escaped = l.awaitGone(deadline)
	} else {
		escaped = l.left()
		l.child.abandon()
	}
	if !l.readOut(last) {
		for _, p := range holders(l.stdout, l.stderr) {
			if !slices.ContainsFunc(escaped, func(q Process) bool { return q.PID == p.PID }) {
				escaped = append(escaped, p)
			}
		}
	}
	l.readRest()
	l.child.close()
	closeAll([]*os.File{l.stdin.file, l.stdout, l.stderr})
	l.running.Wait()
	if l.words.sink != nil {
		l.words.sink.close()
	}
	return escaped
}

// left is the server itself, if it has not exited, and the rest of its group.
// It must not be asked after the leader was reaped.
func (l *life) left() []Process {
	left := l.child.others()
	if !within(l.child.exited, 0) {
		left = append([]Process{l.child.process()}, left...)
	}
	return left
}

// kill ends what is left of the group for good.
func (l *life) kill() {
	if left := l.left(); len(left) > 0 {
		l.note(left)
		l.child.kill()
	}
}

// note records processes that a signal ends.
func (l *life) note(ps []Process) {
	for _, p := range ps {
		if !slices.ContainsFunc(l.killed, func(q Process) bool { return q.PID == p.PID }) {
			l.killed = append(l.killed, p)
		}
	}
}

// The group is looked at again after a time that grows from pollMin to pollMax:
// no system tells when a group is empty.
const (
	pollMin = time.Millisecond
	pollMax = 40 * time.Millisecond
)

// awaitGroup waits until nothing is left of the group.
func (l *life) awaitGroup(bound time.Duration) {
	deadline := time.Now().Add(bound)
	within(l.child.exited, bound)
	for pause := pollMin; len(l.left()) > 0 && time.Now().Before(deadline); pause = min(2*pause, pollMax) {
		within(nil, min(pause, time.Until(deadline)))
	}
}

// awaitGone waits, after the leader was reaped, until its group has gone, and
// returns what did not go. What it finds there first has just been killed.
func (l *life) awaitGone(deadline time.Time) []Process {
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		rest := l.child.remains()
		if len(rest) == 0 {
			return nil
		}
		l.note(rest)
		if !time.Now().Before(deadline) {
			return rest
		}
		within(nil, pause)
	}
}

// readOut waits until stdout and stderr are read to their end.
func (l *life) readOut(bound time.Duration) bool {
	deadline := time.Now().Add(bound)
	for _, eof := range l.eof {
		if !within(eof, time.Until(deadline)) {
			return false
		}
	}
	return true
}

// readRest ends the reading of stdout and stderr with what is in them now. Where a
// pipe knows no deadlines (Windows) the readers end when it is closed.
func (l *life) readRest() {
	past := time.Unix(1, 0)
	for i, pipe := range []*os.File{l.stdout, l.stderr} {
		if pipe.SetReadDeadline(past) == nil {
			<-l.eof[i]
		}
	}
}

// within waits for c to be closed, at most for d, and reports whether it was.
func within(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
