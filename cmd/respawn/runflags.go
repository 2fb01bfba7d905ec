package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// envPrefix begins the environment twin of a flag: -max-restarts is
// RESPAWN_MAX_RESTARTS. A flag on the command line wins.
const envPrefix = "RESPAWN_"

const (
	// defaultStop is the time from the server's EOF to its KILL. Hosts wait about
	// 2 s for us, and everything must be gone by then.
	defaultStop = 1500 * time.Millisecond
	// The TERM comes at 8/15 of it, 0.8 s: what flushes on EOF has had its time.
	termNum, termDen = 8, 15
	// afterDeath is how long the pipes of a dead server are read, and killWait how
	// long the kernel may take over a kill. Both fit into closeSlack.
	afterDeath = 250 * time.Millisecond
	killWait   = 100 * time.Millisecond
	// parkEvery is the interval of a parked server's tries.
	parkEvery = time.Minute
)

// runOptions is what a command line says, checked.
type runOptions struct {
	relay       relay.Config
	server      stdio.Config
	endpoint    *streamable.Config // of a server that is not started; nil for a command
	stopTimeout time.Duration
	maxMessage  int
	level       slog.Level
	json        bool
}

// runFlags is the command line as it is written.
type runFlags struct {
	maxRestarts                       int
	window, delay, hold, stop, start  time.Duration
	retry, onDrift, onGiveUp          string
	envFile, dir, logLevel, logFormat string
	maxMessage                        byteSize
	header, headerEnv                 several

	twins map[string]bool // the flags that the environment set
}

// name is how the user gave a flag. Errors say that and no value: one that came from
// the environment may be a mistaken secret.
func (f *runFlags) name(flag string) string {
	if f.twins[flag] {
		return twin(flag)
	}
	return "-" + flag
}

func (f *runFlags) register(fs *flag.FlagSet) {
	fs.IntVar(&f.maxRestarts, "max-restarts", policy.PatientLimit, "restarts within -window before giving up; 0 for none")
	fs.DurationVar(&f.window, "window", policy.PatientWindow, "the time that -max-restarts is counted in")
	fs.DurationVar(&f.delay, "max-delay", policy.PatientDelay().Cap, "the longest wait before a restart; the first is at once, the next after 100ms, each later one 4 times as long")
	fs.StringVar(&f.retry, "retry", "reads", "what to send again after its server died: reads or off; tools/call never is")
	fs.DurationVar(&f.hold, "hold", relay.DefaultHold, "how long a request waits in all while no server runs")
	fs.DurationVar(&f.start, "start-timeout", relay.DefaultStartTimeout, "how long a replacement may take to serve")
	fs.DurationVar(&f.stop, "stop-timeout", defaultStop, "from the end of the server's stdin to its KILL; its TERM comes about half way")
	f.maxMessage = transports.MaxQueued
	fs.Var(&f.maxMessage, "max-message", "the longest message, such as 512KiB or 64MiB")
	fs.StringVar(&f.onGiveUp, "on-give-up", "exit", "exit, or park: stay, and try once a minute when asked something")
	fs.StringVar(&f.onDrift, "on-drift", "log", "when a replacement declares other capabilities: log or exit")
	fs.StringVar(&f.envFile, "env-file", "", "a file of KEY=VALUE lines to add to the server's environment")
	fs.StringVar(&f.dir, "dir", "", "the server's working directory")
	f.registerHeaders(fs)
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", "text", "text or json")
}

// parseRun reads arguments and environment. The error says what is wrong, unless
// it is flag.ErrHelp.
func parseRun(c command, std streams, args []string, env func(string) (string, bool)) (*runOptions, error) {
	var f runFlags
	fs := c.flags(std)
	f.register(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(fs.Output(), "\nEach flag can be set in the environment too: -max-restarts is %sMAX_RESTARTS.\n", envPrefix)
			return nil, err
		}
		return nil, errors.New("see respawn run -h") // the flag package has told what is wrong
	}
	var err error
	if f.twins, err = fromEnv(fs, env); err != nil {
		return nil, err
	}
	if fs.Arg(0) == "" {
		return nil, errors.New("no command (respawn run [flags] -- command args…)")
	}
	opt, err := f.check()
	if err != nil {
		return nil, err
	}
	url := isURL(fs.Arg(0))
	for _, o := range []struct {
		flag   string
		forURL bool
		means  string
	}{
		{"dir", false, "a URL has no directory"},
		{"env-file", false, "a URL has no environment"},
		{"header", true, "a command is sent no headers"},
		{"header-env", true, "a command is sent no headers"},
	} {
		if o.forURL != url && isSet(fs, o.flag) {
			return nil, fmt.Errorf("%s: %s", f.name(o.flag), o.means)
		}
	}
	if url {
		if !isSet(fs, "max-restarts") && !isSet(fs, "window") {
			opt.relay.Budget = policy.Unlimited() // nothing is started, so nothing is spent
		}
		opt.endpoint, err = f.endpoint(fs.Arg(0), fs.Args()[1:])
		return opt, err
	}
	opt.server.Path, opt.server.Args = fs.Arg(0), fs.Args()[1:]
	return opt, nil
}

// isSet reports whether a flag was given, by whatever means.
func isSet(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// fromEnv sets the flags that the command line did not, and returns which. A variable
// that is empty says nothing: many hosts can't leave one out.
func fromEnv(fs *flag.FlagSet, env func(string) (string, bool)) (twins map[string]bool, err error) {
	given := map[string]bool{}
	twins = map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	fs.VisitAll(func(f *flag.Flag) {
		name := twin(f.Name)
		v, _ := env(name)
		switch {
		case v == "" || given[f.Name]:
		case fs.Set(f.Name, v) == nil:
			twins[f.Name] = true
		case err == nil:
			err = fmt.Errorf("the value of %s is no valid -%s", name, f.Name)
		}
	})
	return twins, err
}

func (f *runFlags) check() (*runOptions, error) {
	opt := &runOptions{
		stopTimeout: f.stop, maxMessage: int(f.maxMessage),
		relay: relay.Config{Hold: f.hold, StartTimeout: f.start},
		server: stdio.Config{
			Dir: f.dir, MaxMessage: int(f.maxMessage), StdinWait: f.stop * termNum / termDen,
			KillWait: killWait, ReadWait: afterDeath,
		},
	}
	opt.server.TermWait = f.stop - opt.server.StdinWait
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"window", f.window}, {"max-delay", f.delay}, {"hold", f.hold}, {"start-timeout", f.start}, {"stop-timeout", f.stop}} {
		if d.value <= 0 {
			return nil, fmt.Errorf("%s is not positive", f.name(d.name))
		}
	}
	if f.maxRestarts < 0 {
		return nil, fmt.Errorf("%s is negative", f.name("max-restarts"))
	}
	if least := policy.PatientDelay().Base; f.delay < least {
		return nil, fmt.Errorf("%s is less than %v", f.name("max-delay"), least)
	}
	var err error
	pick := func(name, value string, options ...string) (second bool) {
		switch value {
		case options[0]:
			return false
		case options[1]:
			return true
		}
		err = fmt.Errorf("%s is not %s", f.name(name), strings.Join(options, " or "))
		return false
	}
	opt.relay.NoRetry = pick("retry", f.retry, "reads", "off")
	opt.relay.ExitOnDrift = pick("on-drift", f.onDrift, "log", "exit")
	opt.json = pick("log-format", f.logFormat, "text", "json")
	park := pick("on-give-up", f.onGiveUp, "exit", "park")
	if opt.level.UnmarshalText([]byte(f.logLevel)) != nil {
		err = fmt.Errorf("%s is not debug, info, warn or error", f.name("log-level"))
	}
	if err != nil {
		return nil, err
	}
	if opt.relay.Budget, err = budget(f.maxRestarts, f.window, f.delay, park); err != nil {
		return nil, err
	}
	if fi, err := os.Stat(f.dir); f.dir != "" && (err != nil || !fi.IsDir()) {
		return nil, fmt.Errorf("%s is no directory", f.name("dir"))
	}
	if f.envFile != "" {
		added, err := readEnvFile(f.envFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name("env-file"), err)
		}
		opt.server.Env = append(os.Environ(), added...)
	}
	return opt, nil
}

func budget(limit int, window, longest time.Duration, park bool) (policy.Budget, error) {
	b, err := policy.Never(), error(nil)
	if limit != 0 {
		wait := policy.PatientDelay()
		wait.Cap = longest
		b, err = policy.Sliding(limit, window, wait)
	}
	if err == nil && park {
		b, err = policy.Park(b, parkEvery)
	}
	return b, err
}

// handler formats our own lines.
func (o *runOptions) handler(w io.Writer) slog.Handler {
	opt := &slog.HandlerOptions{Level: o.level}
	if o.json {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// byteSize is a number of bytes, written with or without a unit.
type byteSize int

var units = []struct {
	name string
	n    int
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

func (b *byteSize) String() string {
	for i := len(units) - 2; i >= 0; i-- {
		if u := units[i]; *b > 0 && int(*b)%u.n == 0 {
			return strconv.Itoa(int(*b)/u.n) + u.name
		}
	}
	return strconv.Itoa(int(*b))
}

func (b *byteSize) Set(s string) error {
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.Atoi(number)
			if err != nil || n <= 0 || n > (1<<31-1)/u.n {
				return errors.New("not a size up to 2 GiB, such as 512KiB or 64MiB")
			}
			*b = byteSize(n * u.n)
			return nil
		}
	}
	return nil
}
