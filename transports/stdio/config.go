// Package stdio carries one incarnation of an MCP server that runs as a child
// process and speaks one JSON-RPC message a line over its stdin and stdout
// (2026-07-28 basic/transports/stdio; the framing of 2025-11-25 is the same).
//
// The child leads a process group of its own, and Serve returns when that group
// is gone. docs/transports.md has every bound, its default, and what the package
// can't do.
package stdio

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// Defaults of [Config]: what a zero field means.
const (
	// DefaultStdinWait and DefaultTermWait are what the official TypeScript SDK
	// grants, so a server that shuts down well there does so here.
	DefaultStdinWait = 2 * time.Second
	DefaultTermWait  = 2 * time.Second
	// DefaultKillWait only passes when the kernel holds a process (state D).
	DefaultKillWait = 2 * time.Second
	// DefaultExitWait leaves a server that closed its stdout time to leave by
	// itself, and keeps a death to about 1.5 s.
	DefaultExitWait = time.Second
	// DefaultReadWait is ample for what a dead process left in its pipes (64 KiB
	// each), and bounds a grandchild that holds them.
	DefaultReadWait = 500 * time.Millisecond
	// DefaultMaxMessage equals transports.MaxQueued: what may be sent may come back.
	DefaultMaxMessage = transports.MaxQueued
	// DefaultStderrTail holds a stack trace of some 80 lines.
	DefaultStderrTail = 8 << 10
	// DefaultMaxDiagnostic is longer than what loggers write in one line.
	DefaultMaxDiagnostic = 4 << 10
)

// Config says how to run a server. Only Path is needed; every other zero value
// works. It is read at each spawn and must not change after Factory.
type Config struct {
	// Path is the program: a path, or a name that is looked up in our PATH as
	// os/exec does. No shell is involved.
	Path string
	Args []string // the arguments after the program's name
	Dir  string   // working directory; "" is ours
	// Label names the peer in logs and errors; "" is the last element of Path.
	// Arguments are no part of the default: they may hold secrets.
	Label string

	// Env is the child's environment as KEY=VALUE. nil inherits ours, anything
	// else replaces it whole. With PruneEnv the child instead gets [PrunedEnv],
	// with Env on top.
	Env      []string
	PruneEnv bool

	// Stderr receives the bytes of the child's stderr unchanged. A writer that
	// does not take them for 250 ms while 1 MiB is waiting loses what follows
	// until it takes more; the child never waits for it longer than that. One
	// Write is called at a time for all incarnations of a factory. What a slow
	// writer still has to take is written after Serve has returned.
	Stderr io.Writer

	// OnStart is called with the server's process once it was started, before the
	// first event of its incarnation. On Unix its number is its group's too, and
	// means that group until the end of the incarnation is reported. The server is
	// not served before OnStart returns.
	OnStart func(Process)

	// The stop, when Serve's context ends: stdin is closed, and after StdinWait
	// the group is sent SIGTERM, and after TermWait SIGKILL, whose effect is
	// awaited for at most KillWait. Windows has no SIGTERM: there the job is
	// terminated after StdinWait.
	StdinWait, TermWait, KillWait time.Duration // 2 s each

	// ExitWait is how long the exit is awaited after the child closed its stdout
	// or a write failed, before its group is killed. Default 1 s.
	ExitWait time.Duration
	// ReadWait is how long stdout and stderr are read after the exit. Default 500 ms.
	// What is in them when it is over is read too, up to 1 MiB (but on Windows).
	ReadWait time.Duration

	// WriteStall ends an incarnation whose begun frame makes no progress for this
	// long while no older request is in flight. Default 0: never, because a
	// single-threaded server that is busy in a long tool does not read.
	WriteStall time.Duration

	// MaxMessage is the longest message read, in bytes without its newline; a
	// longer one is dropped alone, as Noise. Default 64 MiB.
	MaxMessage int
	// StderrTail is how many bytes of stderr an *ExitError keeps. Default 8 KiB.
	StderrTail int
	// MaxDiagnostic is the longest Diagnostic line, in bytes. Default 4 KiB.
	MaxDiagnostic int
}

// Command is Config{Path: name, Args: args}.Factory().
func Command(name string, args ...string) transports.Factory {
	return Config{Path: name, Args: args}.Factory()
}

// Factory returns the factory of this server's transports. Nothing is checked or
// started before Serve: an invalid value is Serve's *ConfigError.
func (c Config) Factory() transports.Factory {
	label := c.Label
	if label == "" && c.Path != "" {
		label = filepath.Base(c.Path)
	}
	if c.Stderr != nil { // a slow one may still be at the last words of one incarnation when the next speaks
		c.Stderr = &oneAtATime{to: c.Stderr}
	}
	return transports.Factory{
		Shape: transports.Pipe,
		Label: label,
		New:   func() transports.Transport { return newTransport(c) },
	}
}

// withDefaults returns c with its zero values replaced, or the first invalid one
// as an *ConfigError.
func (c Config) withDefaults() (Config, error) {
	if c.Path == "" {
		return c, &ConfigError{Field: "Path", Value: `""`, Why: "names no program"}
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		zero  time.Duration
	}{
		{"StdinWait", &c.StdinWait, DefaultStdinWait},
		{"TermWait", &c.TermWait, DefaultTermWait},
		{"KillWait", &c.KillWait, DefaultKillWait},
		{"ExitWait", &c.ExitWait, DefaultExitWait},
		{"ReadWait", &c.ReadWait, DefaultReadWait},
		{"WriteStall", &c.WriteStall, 0},
	} {
		if *d.value < 0 {
			return c, &ConfigError{Field: d.field, Value: d.value.String(), Why: "is negative"}
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		field string
		value *int
		zero  int
	}{
		{"MaxMessage", &c.MaxMessage, DefaultMaxMessage},
		{"StderrTail", &c.StderrTail, DefaultStderrTail},
		{"MaxDiagnostic", &c.MaxDiagnostic, DefaultMaxDiagnostic},
	} {
		if *n.value < 0 {
			return c, &ConfigError{Field: n.field, Value: fmt.Sprint(*n.value), Why: "is negative"}
		}
		if *n.value == 0 {
			*n.value = n.zero
		}
	}
	return c, nil
}
