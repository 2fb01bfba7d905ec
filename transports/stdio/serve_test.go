//go:build unix

package stdio_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func TestServeSpeaksWithARealProcess(t *testing.T) {
	r := start(t, role("echo")).ready()
	for range 20 {
		r.heard(answerTo(r.mustRequest(100)))
	}
	for _, pad := range []int{1 << 10, 1 << 16, 1 << 20} {
		r.heard(answerTo(r.mustRequest(pad)))
	}
	ref := r.notify()
	r.until("Sent", func(e transports.Event) bool { return e == transports.Sent{Ref: ref} })
	cause := errors.New("enough")
	r.stop(cause)
	if err := r.ended(); err != cause {
		t.Errorf("Serve returned %v, want the context's cause", err)
	}
	if _, err := r.request(1); err != transports.ErrGone {
		t.Errorf("Send after the end returned %v, want ErrGone", err)
	}
	if first := r.all()[0]; first != (transports.Ready{}) {
		t.Errorf("first event is %#v, want Ready", first)
	}
}

func TestOnStartNamesTheProcessBeforeTheFirstEvent(t *testing.T) {
	var told []stdio.Process
	conf := role("echo")
	conf.OnStart = func(p stdio.Process) { told = append(told, p) }
	started := 0
	r := start(t, conf, func(e transports.Event) {
		if _, ok := e.(transports.Ready); ok {
			started = len(told)
		}
	}).ready()
	if err := syscall.Kill(-told[0].PID, syscall.SIGKILL); err != nil { // the number is the group's
		t.Fatal(err)
	}
	var exit *stdio.ExitError
	if err := r.ended(); !errors.As(err, &exit) || exit.PID != told[0].PID {
		t.Errorf("Serve returned %v, and OnStart named %v", err, told)
	}
	if len(told) != 1 || started != 1 || told[0].Name == "" {
		t.Errorf("OnStart named %v, %d of them before Ready; want one process with its name", told, started)
	}
}

// start looks for what is left.
func TestAPanicInOnStartLeavesNoServer(t *testing.T) {
	conf := role("stubborn")
	conf.OnStart = func(stdio.Process) { panic("no") }
	panicked := make(chan any, 1)
	r := start(t, stdio.Config{Path: "unused"})
	r.ended()
	conf.Env = append(conf.Env, markVar+"="+r.mark)
	func() {
		defer func() { panicked <- recover() }()
		conf.Factory().New().Serve(t.Context(), func(e transports.Event) { t.Errorf("%T emitted", e) })
	}()
	if got := <-panicked; got != "no" {
		t.Errorf("Serve panicked with %v, want the panic of OnStart", got)
	}
}

func TestS7_AnyEndIsADeath(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   stdio.Status
	}{
		{"exit 0", stdio.Status{Kind: stdio.ExitCode}},
		{"exit 3", stdio.Status{Kind: stdio.ExitCode, Code: 3}},
		{"kill -9 $$", stdio.Status{Kind: stdio.ExitSignal, Signal: syscall.SIGKILL.String()}},
		{"exec >&- 2>&-; read line", stdio.Status{Kind: stdio.ExitCode, Code: 1}},
	} {
		t.Run(tt.script, func(t *testing.T) {
			r := start(t, shell(tt.script))
			var exit *stdio.ExitError
			if err := r.ended(); !errors.As(err, &exit) {
				t.Fatalf("Serve returned %v, want an *ExitError", err)
			}
			if diff := cmp.Diff(tt.want, exit.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if len(exit.Killed)+len(exit.Escaped) > 0 || exit.Reason != nil {
				t.Errorf("%v: nobody was to be killed", exit)
			}
		})
	}
}
