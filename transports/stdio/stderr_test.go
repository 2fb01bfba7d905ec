//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// talkative writes its argument's kind of 256 KiB to stderr before each answer.
	roles["talkative"] = func(args []string) {
		words := map[string][]byte{
			"lines":      bytes.Repeat([]byte("a line of a log\n"), 16<<10),
			"no newline": bytes.Repeat([]byte("x"), 256<<10),
			"binary":     bytes.Repeat([]byte{0, 1, 0x1b, 0xff, 0x80, '[', '\r', 0xc3}, 32<<10),
		}[args[0]]
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			os.Stderr.Write(words)
			if reply, ok := conformance.EchoReply(line); ok {
				os.Stdout.Write(append(reply, '\n'))
			}
		}
	}
	// flood writes its argument's number of MiB to stderr and leaves.
	roles["flood"] = func(args []string) {
		var mib int
		fmt.Sscan(args[0], &mib)
		chunk := bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), 1<<10)
		for range mib {
			os.Stderr.Write(chunk)
		}
	}
}

func TestT14_AFullStderrPipeBlocksNoServer(t *testing.T) {
	for _, kind := range []string{"lines", "no newline", "binary"} {
		t.Run(kind, func(t *testing.T) {
			r := start(t, role("talkative", kind)).ready()
			for range 3 {
				r.heard(answerTo(r.mustRequest(0)))
			}
		})
	}
}

// buffer is a writer, for stderr or a log, that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestB067_StderrIsDrainedBoundedAndPassedOnUnchanged(t *testing.T) {
	for kind, unit := range map[string][]byte{
		"lines":      []byte("a line of a log\n"),
		"no newline": []byte("x"),
		"binary":     {0, 1, 0x1b, 0xff, 0x80, '[', '\r', 0xc3},
	} {
		t.Run(kind, func(t *testing.T) {
			var all buffer
			conf := role("talkative", kind)
			conf.Stderr, conf.StderrTail, conf.MaxDiagnostic = &all, 1000, 100
			r := start(t, conf).ready()
			for range 3 {
				r.heard(answerTo(r.mustRequest(0)))
			}
			r.signal(syscall.SIGKILL)
			var exit *stdio.ExitError
			if err := r.ended(); !errors.As(err, &exit) {
				t.Fatalf("Serve returned %v, want an *ExitError", err)
			}
			want := bytes.Repeat(unit, 3*(256<<10)/len(unit))
			if !bytes.Equal(all.b.Bytes(), want) {
				t.Errorf("Stderr got %d bytes, want the %d that were written, unchanged", all.b.Len(), len(want))
			}
			if tail := want[len(want)-1000:]; !bytes.Equal(exit.Stderr, tail) {
				t.Errorf("tail %.50q (%d bytes), want the last 1000", exit.Stderr, len(exit.Stderr))
			}
			lines := 0
			for _, e := range r.all() {
				if d, ok := e.(transports.Diagnostic); ok {
					lines++
					if limit := 100 + len("…"); len(d.Line) > limit || strings.ContainsAny(d.Line, "\x1b\x00\r\n") {
						t.Fatalf("a Diagnostic of %d bytes: %q", len(d.Line), d.Line)
					}
				}
			}
			if lines == 0 || kind == "lines" && lines != 3<<14 {
				t.Errorf("%d Diagnostics", lines)
			}
		})
	}
}

func TestB067_MemoryStaysFlat(t *testing.T) {
	const mib = 32
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, lines := live(), int64(0), 0
	conf := role("flood", fmt.Sprint(mib))
	tr := conf.Factory().New()
	tr.Serve(t.Context(), func(e transports.Event) {
		if _, ok := e.(transports.Diagnostic); !ok {
			return
		}
		if lines++; lines%1024 == 0 { // after each MiB
			most = max(most, live())
		}
	})
	if lines != mib<<10 {
		t.Errorf("%d lines, want %d", lines, mib<<10)
	}
	if grown := most - before; grown > 2<<20 {
		t.Errorf("it holds %d bytes more for %d MiB of stderr", grown, mib)
	}
	runtime.KeepAlive(tr)
}

// Our own stderr may be a pipe that nobody reads.
func TestT14_AStderrWriterThatIsStuckBlocksNoServer(t *testing.T) {
	stuck := make(chan struct{})
	conf := role("talkative", "lines")
	conf.Stderr = writerFunc(func(p []byte) (int, error) {
		<-stuck
		return len(p), nil
	})
	r := start(t, conf).ready()
	for range 20 { // 5 MiB in all
		r.heard(answerTo(r.mustRequest(0)))
	}
	r.stop(errTestOver)
	if err := r.ended(); err != errTestOver {
		t.Errorf("Serve returned %v, want the cause", err)
	}
	close(stuck)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A writer that is still at the words of a dead server is not called for its
// replacement's meanwhile.
func TestAStderrWriterIsCalledOnceAtATime(t *testing.T) {
	begun, end := make(chan string, 2), make(chan struct{})
	conf := shell("echo $$ >&2")
	conf.Stderr = writerFunc(func(p []byte) (int, error) {
		begun <- string(p)
		<-end
		return len(p), nil
	})
	f := conf.Factory()
	for range 2 {
		_ = f.New().Serve(t.Context(), func(transports.Event) {})
	}
	first := <-begun
	select {
	case second := <-begun:
		t.Errorf("%q was written while %q was", second, first)
	default:
	}
	close(end)
	if second := <-begun; second == first {
		t.Errorf("the second server's words were %q too", second)
	}
}
