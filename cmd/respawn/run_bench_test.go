//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
)

// echoes is the shim in this process, in front of a server that answers each line
// at once, and its host's ends.
type echoes struct {
	in   io.WriteCloser
	out  *bufio.Reader
	code chan int
}

func newEchoes(tb testing.TB) *echoes {
	tb.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Setenv(puppetVar, "echo")
	opt, err := parseRun(theRunCommand(tb), streams{err: io.Discard}, []string{"-log-level", "error", os.Args[0]}, func(string) (string, bool) { return "", false })
	if err != nil {
		tb.Fatal(err)
	}
	e := &echoes{in: inW, out: bufio.NewReaderSize(outR, 1<<16), code: make(chan int, 1)}
	std := streams{in: inR, out: outW, err: os.Stderr}
	go func() {
		code, err := newShim(opt, std).run(std)
		if err != nil {
			code = -1
		}
		e.code <- code
	}()
	tb.Cleanup(func() {
		e.in.Close()
		if code := <-e.code; code != exitOK {
			tb.Errorf("exit code %d", code)
		}
		for _, f := range []*os.File{inR, outR, outW} {
			f.Close()
		}
	})
	e.call(tb, []byte(hostInitialize+"\n"))
	if _, err := io.WriteString(e.in, initialized+"\n"); err != nil {
		tb.Fatal(err)
	}
	return e
}

func (e *echoes) call(tb testing.TB, line []byte) {
	if _, err := e.in.Write(line); err != nil {
		tb.Fatal(err)
	}
	if _, err := e.out.ReadSlice('\n'); err != nil {
		tb.Fatal(err)
	}
}

// shortCall is a call of 100 bytes of text.
func shortCall() []byte {
	return []byte(request("7", "tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"text":%q}}`, strings.Repeat("x", 100))) + "\n")
}

func BenchmarkShim(b *testing.B) {
	e := newEchoes(b)
	line := shortCall()
	b.ReportAllocs()
	for b.Loop() {
		e.call(b, line)
	}
}

// maxAllocs is what a short call through the shim may cost it.
const maxAllocs = 40

func TestOverhead_AShortCallThroughTheShimAllocatesLittle(t *testing.T) {
	e := newEchoes(t)
	line := shortCall()
	const calls = 2000
	for range calls { // warm
		e.call(t, line)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		e.call(t, line)
	}
	runtime.ReadMemStats(&after)
	got := float64(after.Mallocs-before.Mallocs) / calls
	t.Logf("%.1f allocations, %.0f bytes a call", got, float64(after.TotalAlloc-before.TotalAlloc)/calls)
	if got > maxAllocs {
		t.Errorf("%.1f allocations a call, want at most %d", got, maxAllocs)
	}
}
