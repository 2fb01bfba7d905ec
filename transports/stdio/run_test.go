//go:build unix

package stdio_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// patience bounds each wait of a test: far beyond what is waited for, so that it
// only passes when something is wrong.
const patience = 30 * time.Second

// run is one incarnation under test and all it emitted.
type run struct {
	t    *testing.T
	tr   transports.Transport
	stop context.CancelCauseFunc
	mark string
	refs uint64
	pids chan int // its process, once it was started

	mu     sync.Mutex
	events []transports.Event
	over   bool
	more   chan struct{}
	done   chan struct{}
	err    error
}

// role is a Config whose server plays a role of this test binary.
func role(name string, args ...string) stdio.Config {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	// A server under the race detector would stay a second at its end.
	env := append(os.Environ(), roleVar+"="+name, "GORACE=atexit_sleep_ms=0")
	return stdio.Config{Path: exe, Args: args, Label: name, Env: env}
}

// shell is a Config that runs a script. "$SELF" in it is this test binary.
func shell(script string) stdio.Config {
	conf := role("", script)
	conf.Env = append(os.Environ(), "SELF="+conf.Path, "GORACE=atexit_sleep_ms=0")
	conf.Path, conf.Args, conf.Label = "/bin/sh", []string{"-c", script}, "sh"
	return conf
}

// start serves conf until the test ends, and then checks that nothing is left:
// no process with the run's mark, no descriptor, no goroutine.
func start(t *testing.T, conf stdio.Config, handle ...func(transports.Event)) *run {
	t.Helper()
	r := &run{t: t, mark: rand.Text(), more: make(chan struct{}, 1), done: make(chan struct{})}
	if conf.Env == nil && !conf.PruneEnv {
		conf.Env = os.Environ()
	}
	conf.Env = append(conf.Env, markVar+"="+r.mark)
	r.pids = make(chan int, 1)
	if conf.OnStart == nil {
		conf.OnStart = func(p stdio.Process) { r.pids <- p.PID }
	}
	goroutines := goleak.IgnoreCurrent()
	fds := openFiles(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	r.stop = cancel
	r.tr = conf.Factory().New()
	go func() {
		defer close(r.done)
		r.err = r.tr.Serve(ctx, func(e transports.Event) {
			r.mu.Lock()
			if r.over {
				t.Errorf("%T after Serve returned", e)
			}
			r.events = append(r.events, e)
			r.mu.Unlock()
			select {
			case r.more <- struct{}{}:
			default:
			}
			for _, h := range handle {
				h(e)
			}
		})
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
	}()
	t.Cleanup(func() {
		cancel(errTestOver)
		r.ended()
		if left := marked(r.mark); len(left) > 0 {
			t.Errorf("processes left: %v", left)
		}
		goleak.VerifyNone(t, goroutines)
		if diff := cmp.Diff(fds, openFiles(t)); diff != "" {
			t.Errorf("open files (-before +after):\n%s", diff)
		}
	})
	return r
}

var errTestOver = fmt.Errorf("the test is over")

// ended waits for Serve to return and returns its error.
func (r *run) ended() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		r.t.Fatal("Serve does not return")
		return nil
	}
}

// until waits for an event that satisfies ok.
func (r *run) until(what string, ok func(transports.Event) bool) transports.Event {
	r.t.Helper()
	deadline := time.After(patience)
	for from := 0; ; {
		r.mu.Lock()
		events := r.events[from:]
		r.mu.Unlock()
		for _, e := range events {
			if ok(e) {
				return e
			}
		}
		from += len(events)
		select {
		case <-r.more:
		case <-r.done:
			r.mu.Lock()
			late := r.events[from:]
			r.mu.Unlock()
			for _, e := range late {
				if ok(e) {
					return e
				}
			}
			r.t.Fatalf("Serve returned (%v) without %s; events: %v", r.err, what, r.all())
		case <-deadline:
			r.t.Fatalf("no %s within %v; events: %v", what, patience, r.all())
		}
	}
}

func (r *run) ready() *run {
	r.t.Helper()
	r.until("Ready", func(e transports.Event) bool { return e == transports.Ready{} })
	return r
}

// heard waits for the first message that contains text.
func (r *run) heard(text string) string {
	r.t.Helper()
	e := r.until("a message with "+text, func(e transports.Event) bool {
		m, ok := e.(transports.Message)
		return ok && strings.Contains(string(m.Frame), text)
	})
	return string(e.(transports.Message).Frame)
}

// pid waits for the start and returns the server's process, which leads its group.
func (r *run) pid() int {
	r.t.Helper()
	select {
	case pid := <-r.pids:
		r.pids <- pid
		return pid
	case <-time.After(patience):
		r.t.Fatal("nothing was started")
		return 0
	}
}

// signal signals the server alone.
func (r *run) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(r.pid(), sig); err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) all() []transports.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transports.Event(nil), r.events...)
}

// request sends a request whose id is its ref, with a padding of pad bytes.
func (r *run) request(pad int) (ref uint64, err error) {
	r.refs++
	ref = r.refs
	return ref, r.tr.Send(transports.Outbound{
		Ref: ref, ID: fmt.Sprint(ref), Method: "m",
		Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m","params":{"pad":"%s"}}`, ref, strings.Repeat("x", pad)),
	})
}

func (r *run) mustRequest(pad int) uint64 {
	r.t.Helper()
	ref, err := r.request(pad)
	if err != nil {
		r.t.Fatalf("Send: %v", err)
	}
	return ref
}

// notify sends a notification.
func (r *run) notify() uint64 {
	r.t.Helper()
	r.refs++
	if err := r.tr.Send(transports.Outbound{Ref: r.refs, Method: "n", Frame: []byte(`{"jsonrpc":"2.0","method":"n"}`)}); err != nil {
		r.t.Fatalf("Send: %v", err)
	}
	return r.refs
}

func answerTo(ref uint64) string { return fmt.Sprintf(`"id":%d,`, ref) }

// marked lists the processes that carry a mark, as far as the system tells.
func marked(mark string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range paths {
		env, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(env), markVar+"="+mark) {
			pid := filepath.Base(filepath.Dir(p))
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			found = append(found, pid+" "+strings.ReplaceAll(string(name), "\x00", " "))
		}
	}
	return found
}

// openFiles lists what our descriptors stand for; nil where the system does not
// tell.
func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		// The list's own descriptor is closed by now.
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files = append(files, target)
		}
	}
	slices.Sort(files)
	return files
}
