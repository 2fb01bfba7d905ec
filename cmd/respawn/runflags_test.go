package main

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func theRunCommand(t testing.TB) command {
	t.Helper()
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == "run" })
	if i < 0 {
		t.Fatal("there is no run command")
	}
	return commands[i]
}

// parsed parses a command line of respawn run under an environment.
func parsed(t *testing.T, env map[string]string, args ...string) (*runOptions, string, error) {
	t.Helper()
	var said strings.Builder
	opt, err := parseRun(theRunCommand(t), streams{err: &said}, args, func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	return opt, said.String(), err
}

// asked is what a runOptions says, in values that can be compared.
type asked struct {
	path                                  string
	args                                  []string
	dir                                   string
	budget                                string
	hold, start, stdinWait, termWait, all time.Duration
	noRetry, exitOnDrift, json            bool
	level                                 slog.Level
	max, serverMax                        int
}

func view(o *runOptions) asked {
	budget := "the default"
	if s, ok := o.relay.Budget.(interface{ String() string }); ok {
		budget = s.String()
	}
	return asked{
		o.server.Path, o.server.Args, o.server.Dir, budget,
		o.relay.Hold, o.relay.StartTimeout, o.server.StdinWait, o.server.TermWait, o.stopTimeout,
		o.relay.NoRetry, o.relay.ExitOnDrift, o.json, o.level, o.maxMessage, o.server.MaxMessage,
	}
}

// plain is what no flag at all says, for the command server x.
func plain(change func(*asked)) asked {
	a := asked{
		path: "server", args: []string{"x"}, budget: policyName(policy.Patient()),
		hold: relay.DefaultHold, start: relay.DefaultStartTimeout,
		stdinWait: 800 * time.Millisecond, termWait: 700 * time.Millisecond, all: 1500 * time.Millisecond,
		max: 64 << 20, serverMax: 64 << 20,
	}
	change(&a)
	return a
}

func policyName(b policy.Budget) string { return b.(interface{ String() string }).String() }

func TestRunReadsFlagsAndTheirTwinsInTheEnvironment(t *testing.T) {
	same := func(*asked) {}
	for _, tc := range []struct {
		name string
		env  map[string]string
		args string
		want asked
	}{
		{"the defaults", nil, "server x", plain(same)},
		{"dashes end the flags", nil, "-- server x", plain(same)},
		{"what follows the command is the command's", nil, "server -retry off -- y", plain(func(a *asked) { a.args = []string{"-retry", "off", "--", "y"} })},
		{"each flag", nil, "-retry off -on-drift exit -log-format json -log-level debug -hold 3s -start-timeout 4s -dir / -max-message 5KiB server x", plain(func(a *asked) {
			a.noRetry, a.exitOnDrift, a.json, a.level = true, true, true, slog.LevelDebug
			a.hold, a.start, a.dir, a.max, a.serverMax = 3*time.Second, 4*time.Second, "/", 5<<10, 5<<10
		})},
		{"each twin", map[string]string{
			"RESPAWN_RETRY": "off", "RESPAWN_ON_DRIFT": "exit", "RESPAWN_LOG_FORMAT": "json", "RESPAWN_LOG_LEVEL": "warn",
			"RESPAWN_HOLD": "3s", "RESPAWN_START_TIMEOUT": "4s", "RESPAWN_DIR": "/", "RESPAWN_MAX_MESSAGE": "7",
		}, "server x", plain(func(a *asked) {
			a.noRetry, a.exitOnDrift, a.json, a.level = true, true, true, slog.LevelWarn
			a.hold, a.start, a.dir, a.max, a.serverMax = 3*time.Second, 4*time.Second, "/", 7, 7
		})},
		{"the command line wins", map[string]string{"RESPAWN_RETRY": "off", "RESPAWN_HOLD": "9s"}, "-retry reads server x", plain(func(a *asked) { a.hold = 9 * time.Second })},
		{"an empty twin says nothing", map[string]string{"RESPAWN_HOLD": "", "RESPAWN_RETRY": "", "RESPAWN_HEADER": "", "RESPAWN_MAX_MESSAGE": ""}, "server x", plain(same)},
		{"a smaller budget", nil, "-max-restarts 2 -window 10s server x", plain(func(a *asked) {
			a.budget = "2 restarts in any 10s (sliding), delay " + policy.PatientDelay().String()
		})},
		{"shorter waits", nil, "-max-delay 1s server x", plain(func(a *asked) {
			d := policy.PatientDelay()
			d.Cap = time.Second
			a.budget = "6 restarts in any 2m (sliding), delay " + d.String()
		})},
		{"no restart", map[string]string{"RESPAWN_MAX_RESTARTS": "0"}, "server x", plain(func(a *asked) { a.budget = policyName(policy.Never()) })},
		{"park", nil, "-on-give-up park server x", plain(func(a *asked) { a.budget += ", then one try per 1m on use" })},
		{"the stop", nil, "-stop-timeout 3s server x", plain(func(a *asked) {
			a.stdinWait, a.termWait, a.all = 1600*time.Millisecond, 1400*time.Millisecond, 3*time.Second
		})},
	} {
		opt, said, err := parsed(t, tc.env, strings.Fields(tc.args)...)
		if err != nil {
			t.Errorf("%s: %v\n%s", tc.name, err, said)
			continue
		}
		if diff := cmp.Diff(tc.want, view(opt), cmp.AllowUnexported(asked{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestRunRefusesWhatItDoesNotUnderstand(t *testing.T) {
	secret := "hunter2"
	if _, _, err := parsed(t, nil, ""); err == nil || err.Error() != "no command (respawn run [flags] -- command args…)" {
		t.Errorf("an empty command: %v", err)
	}
	for _, tc := range []struct {
		name string
		env  map[string]string
		args string
		want string
	}{
		{"nothing to run", nil, "", "no command (respawn run [flags] -- command args…)"},
		{"nothing after the dashes", nil, "-retry off --", "no command (respawn run [flags] -- command args…)"},
		{"a URL with arguments", nil, "https://host/mcp x", "a URL takes no arguments"},
		{"a URL without a host", nil, "https:///mcp", "the URL names no host"},
		{"a header without a name", nil, "-header hunter2 https://host/mcp", "-header wants 'Name: value'"},
		{"a header without a variable", nil, "-header-env X=RESPAWN_TEST_UNSET https://host/mcp", "-header-env: the variable of header 1 is not set"},
		{"a header without a value", nil, "-header-env X https://host/mcp", "-header-env wants NAME=VARIABLE"},
		{"a header that is none", nil, "-header A/B:x https://host/mcp", "one of the headers is no header name"},
		{"a header that breaks its line", map[string]string{"RESPAWN_HEADER": "X: a\x00" + secret}, "https://host/mcp", "one of the headers has a control character in its value"},
		{"a header for a command", nil, "-header X:y server", "-header: a command is sent no headers"},
		{"a header of a variable for a command", nil, "-header-env X=HOME server", "-header-env: a command is sent no headers"},
		{"a directory for a URL", nil, "-dir / https://host/mcp", "-dir: a URL has no directory"},
		{"an environment for a URL", map[string]string{"RESPAWN_ENV_FILE": os.DevNull}, "https://host/mcp", "RESPAWN_ENV_FILE: a URL has no environment"},
		{"a delay that is too short", nil, "-max-delay 1ms server", "-max-delay is less than 100ms"},
		{"a twin that is no choice", map[string]string{"RESPAWN_RETRY": secret}, "server", "RESPAWN_RETRY is not reads or off"},
		{"a twin that is no level", map[string]string{"RESPAWN_LOG_LEVEL": secret}, "server", "RESPAWN_LOG_LEVEL is not debug, info, warn or error"},
		{"a twin that is no directory", map[string]string{"RESPAWN_DIR": "/" + secret}, "server", "RESPAWN_DIR is no directory"},
		{"a twin that is no file", map[string]string{"RESPAWN_ENV_FILE": "/" + secret}, "server", "RESPAWN_ENV_FILE: no such file or directory"},
		{"a twin that is no header", map[string]string{"RESPAWN_HEADER": secret}, "https://host/mcp", "RESPAWN_HEADER wants 'Name: value'"},
		{"a twin that names no variable", map[string]string{"RESPAWN_HEADER_ENV": "X: " + secret}, "https://host/mcp", "RESPAWN_HEADER_ENV wants NAME=VARIABLE"},
		{"an unknown flag", nil, "-x server", "see respawn run -h"},
		{"an unknown choice", nil, "-retry all server", "-retry is not reads or off"},
		{"an unknown level", nil, "-log-level loud server", "-log-level is not debug, info, warn or error"},
		{"a negative time", nil, "-hold -1s server", "-hold is not positive"},
		{"no delay at all", nil, "-max-delay 0 server", "-max-delay is not positive"},
		{"a negative budget", nil, "-max-restarts -1 server", "-max-restarts is negative"},
		{"a size without sense", nil, "-max-message 1TiB server", "see respawn run -h"},
		{"a twin without sense, whose value is not shown", map[string]string{"RESPAWN_WINDOW": secret}, "server", "the value of RESPAWN_WINDOW is no valid -window"},
		{"no such directory", nil, "-dir /nowhere/at/all server", "-dir is no directory"},
		{"no such file", nil, "-env-file /nowhere/at/all server", "-env-file: no such file or directory"},
	} {
		_, said, err := parsed(t, tc.env, strings.Fields(tc.args)...)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if strings.Contains(said, secret) {
			t.Errorf("%s: a value was shown: %s", tc.name, said)
		}
	}
	if _, said, err := parsed(t, nil, "-h"); !errors.Is(err, flag.ErrHelp) || !strings.Contains(said, "RESPAWN_MAX_RESTARTS") {
		t.Errorf("-h: %v, %s", err, said)
	}
}

func TestAnEnvFileAddsToTheEnvironment(t *testing.T) {
	write := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "env")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := readEnvFile(write("\xef\xbb\xbfZ=0\n# a comment\n\nA=1\r\n export B = two words \nC=\"q u\"\nD='$A'\nE=\nF=a=b#c\nG=\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Z=0", "A=1", "B=two words", "C=q u", "D=$A", "E=", "F=a=b#c", `G="`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"A=1\nhunter2\n", "=hunter2", "A B=hunter2", "A=hunter2\x00"} {
		if _, err := readEnvFile(write(bad)); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "is not KEY=VALUE") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	opt, _, err := parsed(t, nil, "-env-file", write("RESPAWN_TEST_ADDED=x\n"), "server")
	if err != nil {
		t.Fatal(err)
	}
	if want := append(os.Environ(), "RESPAWN_TEST_ADDED=x"); !slices.Equal(opt.server.Env, want) {
		t.Error("the environment is not ours and the file's")
	}
}

func TestTheExitCodeOfAServerThatNeverServed(t *testing.T) {
	exit := func(s stdio.Status) error { return &stdio.ExitError{Status: s} }
	for _, tc := range []struct {
		name  string
		cause error
		want  int
	}{
		{"its own", exit(stdio.Status{Kind: stdio.ExitCode, Code: 4}), 4},
		{"its own, where that says that all is well", exit(stdio.Status{Kind: stdio.ExitCode}), 0},
		{"its signal", exit(stdio.Status{Kind: stdio.ExitSignal, Signal: "killed"}), 137},
		{"unknown", exit(stdio.Status{}), exitGaveUp},
		{"not found", &stdio.StartError{Err: os.ErrNotExist}, 127},
		{"not executable", &stdio.StartError{Err: os.ErrPermission}, 126},
	} {
		if got := codeOf(tc.cause); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
