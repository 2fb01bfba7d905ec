package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// closeSlack is how much longer than the stop timeout the end of a run may take:
// with the default stop everything is over before 2 s. What is left of the server
// then is the guard's.
const closeSlack = 400 * time.Millisecond

// flushWait bounds how long a host that does not read keeps us at the end, and
// giveUpWait the same where the host did not ask for the end: it is there, and what
// it has not read yet are answers that it waits for.
const (
	flushWait  = 250 * time.Millisecond
	giveUpWait = 30 * time.Second
)

// gcPercent lets the heap grow to five times what is live before it is collected,
// where GOGC does not say otherwise. A relay keeps almost nothing and throws every
// message away: at the default of 100 it collects after each 4 MiB of messages.
const gcPercent = 400

// runCommand is respawn run.
func runCommand(c command, std streams, args []string) int {
	opt, err := parseRun(c, std, args, os.LookupEnv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(std.err, "respawn run: %v\n", err)
		return exitShim
	}
	if _, ok := os.LookupEnv("GOGC"); !ok {
		debug.SetGCPercent(gcPercent)
	}
	s := newShim(opt, std)
	code, err := s.run(std)
	if err != nil {
		fmt.Fprintf(std.err, "respawn run: %v\n", err)
	}
	return code
}

// shim is one run: a relay between our stdin and stdout, with a child as the
// server.
type shim struct {
	opt   *runOptions
	log   *slog.Logger
	err   *stderr
	said  *outlet // our own lines
	host  *outlet // protocol
	guard *guard
	relay *relay.Relay

	mu     sync.Mutex
	deaths []relay.Ended // the last few
	parked bool          // the budget is spent, and the post-mortem written

	begun     chan struct{} // closed when there was a server, or none has to be started
	beginOnce sync.Once
}

func (s *shim) begin() { s.beginOnce.Do(func() { close(s.begun) }) }

func newShim(opt *runOptions, std streams) *shim {
	err := &stderr{to: std.err}
	s := &shim{
		opt: opt, err: err,
		// A host that never reads our stderr must not stop us: beyond this much
		// our lines are lost.
		said:  newOutlet(ourLines{err}, 1<<20),
		host:  newOutlet(std.out, maxUnread),
		begun: make(chan struct{}),
	}
	s.log = slog.New(opt.handler(s.said))
	return s
}

// run serves the host until it leaves, a signal comes, or the server is given up.
func (s *shim) run(std streams) (int, error) {
	defer s.said.close(flushWait)
	signals := notify()
	defer signal.Stop(signals)
	var err error
	server := paced(s.peer(), s.host)
	defer s.guard.close()
	config := s.opt.relay
	config.Logger = s.log
	config.OnEnd = s.ended
	s.relay, err = relay.New(server, s.host.put, &config)
	if err != nil {
		return exitShim, err
	}
	hostLeft := make(chan struct{})
	go func() {
		defer close(hostLeft)
		in := lines{r: bufio.NewReaderSize(std.in, 64<<10), limit: s.opt.maxMessage}
		if err := in.each(s.relay.FromHost, s.tooLong); err != nil {
			s.log.Error("the host's messages can't be read", "err", err)
		}
	}()
	code := exitOK
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-s.relay.Done():
			code = s.gaveUp()
			s.flush(hostLeft, signals)
		case <-hostLeft:
			select { // a command that can't be started says so, however soon the host is gone
			case <-s.begun:
			case <-s.relay.Done():
				code = s.gaveUp()
			}
		case <-s.host.broken:
			s.log.Info("the host does not read any more", "err", s.host.err)
		case sig := <-signals:
			if n, ok := sig.(syscall.Signal); ok && n != syscall.SIGPIPE {
				code = exitSignal + int(n)
			} else {
				waiting = true // the write that caused it says so too
			}
		}
	}
	s.stop()
	return code, nil
}

// flush waits until the host has read everything, or has enough of us.
func (s *shim) flush(hostLeft <-chan struct{}, signals <-chan os.Signal) {
	bound := time.NewTimer(giveUpWait)
	defer bound.Stop()
	s.host.finish()
	for {
		select {
		case <-s.host.done:
		case <-s.host.broken:
		case <-hostLeft:
		case <-bound.C:
		case sig := <-signals:
			if sig == syscall.SIGPIPE { // stderr, or the above
				continue
			}
		}
		return
	}
}

// child is a server that is started, and the guard that ends it should we be killed.
func (s *shim) child() transports.Factory {
	var err error
	if s.guard, err = startGuard(); err != nil {
		s.log.Warn("no guard: should this process be killed, only the server itself dies with it", "err", err)
	}
	conf := s.opt.server
	conf.Stderr = s.err
	conf.OnStart = func(p stdio.Process) {
		s.begin()
		s.guard.watch(p.PID)
	}
	return guarded(conf.Factory(), s.guard)
}

// stop ends whatever still runs, within the bounds of the shutdown.
func (s *shim) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.stopTimeout+closeSlack)
	defer cancel()
	if err := s.relay.Close(ctx); err != nil {
		s.log.Error("the server does not leave", "err", err)
	}
	s.host.close(flushWait)
}

func (s *shim) tooLong(head []byte, n int) {
	s.log.Error("a message of the host is too long and was dropped", "bytes", n, "limit", s.opt.maxMessage)
	s.relay.FromHostCut(head, fmt.Errorf("it has %d bytes, and %d are allowed", n, s.opt.maxMessage))
}

// notify asks for the signals that end a run. One that was ignored when we were
// started (nohup) stays so. A write to a broken pipe must fail rather than kill
// us; taking its signal, other than ignoring it, is not inherited by the server.
func notify() chan os.Signal {
	c := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	signal.Notify(c, syscall.SIGPIPE)
	return c
}
