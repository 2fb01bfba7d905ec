//go:build unix

package stdio_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// permanent asks a cause of death what policy asks it.
func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

func TestAFailedStartNamesThePathAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o600)
	orphan := write("orphan", "#!/no/such/interpreter\n", 0o700)
	garbage := write("garbage", "this is no program", 0o700)
	missing := filepath.Join(dir, "missing")
	for _, tt := range []struct {
		name      string
		conf      stdio.Config
		is        error // nil: nothing in particular
		permanent bool
		says      string
	}{
		{"a name that is not in PATH", stdio.Config{Path: "no-such-program-anywhere"}, fs.ErrNotExist, false, "no-such-program-anywhere"},
		{"a path that does not exist", stdio.Config{Path: missing}, fs.ErrNotExist, false, missing},
		{"a file that is not executable", stdio.Config{Path: plain}, fs.ErrPermission, true, plain},
		{"a directory", stdio.Config{Path: dir}, nil, true, dir},
		{"a script whose interpreter is missing", stdio.Config{Path: orphan}, fs.ErrNotExist, false, "interpreter"},
		{"a file that is no program", stdio.Config{Path: garbage}, nil, false, garbage},
		{"a working directory that does not exist", stdio.Config{Path: "/bin/sh", Dir: missing}, fs.ErrNotExist, false, missing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, tt.conf)
			err := r.ended()
			var failed *stdio.StartError
			if !errors.As(err, &failed) || failed.Path != tt.conf.Path {
				t.Fatalf("Serve returned %v, want a *StartError of %s", err, tt.conf.Path)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			if permanent(err) != tt.permanent {
				t.Errorf("permanent(%v) = %v, want %v", err, !tt.permanent, tt.permanent)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
			if len(r.all()) > 0 {
				t.Errorf("events: %v, want none", r.all())
			}
			if _, err := r.request(0); err != transports.ErrGone {
				t.Errorf("Send returned %v, want ErrGone", err)
			}
		})
	}
}

func TestAnInvalidConfigIsServesError(t *testing.T) {
	for _, tt := range []struct {
		conf stdio.Config
		want stdio.ConfigError
	}{
		{stdio.Config{}, stdio.ConfigError{Field: "Path", Value: `""`, Why: "names no program"}},
		{stdio.Config{Path: "x", StdinWait: -1}, stdio.ConfigError{Field: "StdinWait", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", TermWait: -1}, stdio.ConfigError{Field: "TermWait", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", KillWait: -1}, stdio.ConfigError{Field: "KillWait", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", ExitWait: -1}, stdio.ConfigError{Field: "ExitWait", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", ReadWait: -1}, stdio.ConfigError{Field: "ReadWait", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", WriteStall: -1}, stdio.ConfigError{Field: "WriteStall", Value: "-1ns", Why: "is negative"}},
		{stdio.Config{Path: "x", MaxMessage: -1}, stdio.ConfigError{Field: "MaxMessage", Value: "-1", Why: "is negative"}},
		{stdio.Config{Path: "x", StderrTail: -1}, stdio.ConfigError{Field: "StderrTail", Value: "-1", Why: "is negative"}},
		{stdio.Config{Path: "x", MaxDiagnostic: -1}, stdio.ConfigError{Field: "MaxDiagnostic", Value: "-1", Why: "is negative"}},
	} {
		t.Run(tt.want.Field, func(t *testing.T) {
			r := start(t, tt.conf)
			var got *stdio.ConfigError
			if err := r.ended(); !errors.As(err, &got) || !permanent(err) {
				t.Fatalf("Serve returned %v, want a permanent *ConfigError", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommandIsAConfigWithALabel(t *testing.T) {
	for _, tt := range []struct {
		factory transports.Factory
		label   string
	}{
		{stdio.Command("/usr/bin/npx", "-y", "server", "--token=secret"), "npx"},
		{stdio.Config{Path: "/usr/bin/npx", Label: "files"}.Factory(), "files"},
		{stdio.Command(""), ""},
	} {
		if tt.factory.Label != tt.label || tt.factory.Shape != transports.Pipe {
			t.Errorf("%s %q, want pipe %q", tt.factory.Shape, tt.factory.Label, tt.label)
		}
		if a, b := tt.factory.New(), tt.factory.New(); a == b {
			t.Error("two incarnations share a transport")
		}
	}
	r := start(t, stdio.Config{Path: "/bin/sh", Args: []string{"-c", `printf '{"args":"%s"}\n' "$*"; cat`, "sh", "a b", "$HOME", "*"}})
	if got, want := r.heard("args"), `{"args":"a b $HOME *"}`; got != want {
		t.Errorf("the server saw %s, want %s: no shell touches arguments", got, want)
	}
}

func TestTheEnvironmentOfTheChild(t *testing.T) {
	t.Setenv("STDIO_TEST_INHERITED", "yes")
	t.Setenv("HOME", "/home/test")
	for _, tt := range []struct {
		name string
		conf stdio.Config
		want []string
	}{
		{"inherited", stdio.Config{}, []string{"HOME=/home/test", "STDIO_TEST_INHERITED=yes"}},
		{"replaced", stdio.Config{Env: []string{"A=1", "A=2"}}, []string{"A=2"}},
		{"pruned", stdio.Config{PruneEnv: true}, []string{"HOME=/home/test"}},
		{"pruned, with additions", stdio.Config{PruneEnv: true, Env: []string{"HOME=/else", "A=1"}}, []string{"A=1", "HOME=/else"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.conf.Path, tt.conf.Args = "/bin/sh", []string{"-c", "/usr/bin/env | while read -r l; do printf '{\"env\":\"%s\"}\\n' \"$l\"; done"}
			r := start(t, tt.conf)
			r.ended()
			var got []string
			for _, e := range r.all() {
				if m, ok := e.(transports.Message); ok {
					v := strings.TrimSuffix(strings.TrimPrefix(string(m.Frame), `{"env":"`), `"}`)
					name, _, _ := strings.Cut(v, "=")
					if slices.Contains([]string{"HOME", "A", "STDIO_TEST_INHERITED"}, name) {
						got = append(got, v)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATransportIsUsedOnce(t *testing.T) {
	r := start(t, role("echo")).ready()
	if err := r.tr.Serve(context.Background(), func(e transports.Event) { t.Errorf("%v emitted", e) }); err != stdio.ErrServed {
		t.Errorf("a second Serve returned %v, want ErrServed", err)
	}
	r.heard(answerTo(r.mustRequest(0))) // and disturbs nothing
}
