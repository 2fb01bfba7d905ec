package main

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// Exit codes of respawn run, where it does not end with its server's own. The last
// three are those of env(1), the fourth the shells'.
const (
	exitGaveUp     = 75 // EX_TEMPFAIL of sysexits.h: nothing is wrong with the call itself
	exitShim       = 125
	exitNotStarted = 126
	exitNotFound   = 127
	exitSignal     = 128 // and the signal's number
)

// keepDeaths is how many deaths a post-mortem lists: those of a default budget, and
// the one that ended it.
const keepDeaths = 7

// ended notes a death for the post-mortem, and writes that where the budget is spent
// and the server parked.
func (s *shim) ended(e relay.Ended) {
	if e.Withdrawn {
		return
	}
	s.mu.Lock()
	s.deaths = append(s.deaths, e)
	if len(s.deaths) > keepDeaths {
		s.deaths = s.deaths[1:]
	}
	parks := e.Verdict.Parked && !s.parked
	s.parked = e.Verdict.Parked
	s.mu.Unlock()
	if parks {
		s.log.Error("gave up: the server is parked, and tried again when it is needed",
			append(s.postMortem(e.Cause), "every", e.Verdict.Delay)...)
	}
}

// gaveUp says why no server will follow, and returns the exit code of that.
func (s *shim) gaveUp() int {
	cause := s.relay.Err()
	code, what := exitGaveUp, "gave up: the server is not started again"
	if !s.relay.Served() {
		code, what = codeOf(cause), "gave up: the server never answered its first opening exchange"
	}
	s.log.Error(what, append(s.postMortem(cause), "exit", code)...)
	return code
}

// postMortem is the cause, how each server ended, and the last one's last words.
func (s *shim) postMortem(cause error) []any {
	args := []any{"cause", cause}
	s.mu.Lock()
	var exits []string
	for _, e := range s.deaths {
		if exit := new(stdio.ExitError); errors.As(e.Cause, &exit) && e.Cause != cause {
			exits = append(exits, exit.Status.String())
		}
	}
	s.mu.Unlock()
	if exit := new(stdio.ExitError); errors.As(cause, &exit) {
		exits = append(exits, exit.Status.String())
		return append(args, "exits", exits, "stderr", string(exit.Stderr))
	}
	return append(args, "exits", exits)
}

// codeOf is the exit code of a server that never served.
func codeOf(cause error) int {
	exit, start := new(stdio.ExitError), new(stdio.StartError)
	switch {
	case errors.As(cause, &start) && errors.Is(start, fs.ErrNotExist):
		return exitNotFound
	case errors.As(cause, &start):
		return exitNotStarted
	case errors.As(cause, &exit) && exit.Status.Kind == stdio.ExitCode:
		return exit.Status.Code
	case errors.As(cause, &exit) && exit.Status.Kind == stdio.ExitSignal:
		return exitSignal + signalNumber(exit.Status.Signal)
	}
	return exitGaveUp
}

// signalNumber finds a signal by what the system calls it.
func signalNumber(name string) int {
	const last = 64 // Linux has no higher one
	for n := 1; n <= last; n++ {
		if syscall.Signal(n).String() == name {
			return n
		}
	}
	return 0
}
