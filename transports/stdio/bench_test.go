//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/respawn-mcp/respawn/transports"
)

func init() {
	// mirror sends each line back as it came, as lightly as can be.
	roles["mirror"] = func([]string) {
		io.CopyBuffer(struct{ io.Writer }{os.Stdout}, struct{ io.Reader }{os.Stdin}, make([]byte, 256<<10))
	}
}

// BenchmarkEcho compares the transport with the floor, both measured in the same
// run against the same server: raw is one goroutine that writes a prebuilt line
// and reads the line that comes back; least is a channel of frames, a writer
// and a reader goroutine, and nothing else.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"100B", 100}, {"64KiB", 64 << 10}} {
		frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":"` + strings.Repeat("x", size.bytes-50) + `"}`)
		b.Run(size.name, func(b *testing.B) {
			b.Run("sequential/raw", func(b *testing.B) { benchRaw(b, frame) })
			for _, callers := range []struct {
				name string
				n    int
			}{{"sequential", 1}, {"64", 64}} {
				b.Run(callers.name+"/least", func(b *testing.B) { benchLeast(b, frame, callers.n) })
				b.Run(callers.name+"/stdio", func(b *testing.B) { benchTransport(b, frame, callers.n) })
			}
		})
	}
}

// mirror starts the server with plain pipes.
func mirror(b *testing.B) (io.WriteCloser, io.Reader) {
	conf := role("mirror")
	cmd := exec.Command(conf.Path)
	cmd.Env = conf.Env
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return in, out
}

func benchRaw(b *testing.B, frame []byte) {
	in, out := mirror(b)
	line := append(bytes.Clone(frame), '\n')
	answer := make([]byte, len(line))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(out, answer); err != nil {
			b.Fatal(err)
		}
	}
}

func benchLeast(b *testing.B, frame []byte, callers int) {
	in, out := mirror(b)
	frames, answers := make(chan []byte, callers), make(chan []byte, callers)
	var running sync.WaitGroup
	running.Go(func() {
		var line []byte
		for f := range frames {
			line = append(append(line[:0], f...), '\n')
			if _, err := in.Write(line); err != nil {
				b.Error(err)
				return
			}
		}
		in.Close()
	})
	running.Go(func() {
		r := bufio.NewReaderSize(out, 256<<10)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			answers <- bytes.Clone(line)
		}
	})
	call(b, callers, func() error { frames <- frame; return nil }, answers)
	close(frames)
	running.Wait()
}

func benchTransport(b *testing.B, frame []byte, callers int) {
	answers := make(chan []byte, callers)
	tr := role("mirror").Factory().New()
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- tr.Serve(ctx, func(e transports.Event) {
			switch e := e.(type) {
			case transports.Ready:
				close(ready)
			case transports.Message:
				answers <- e.Frame
			}
		})
	}()
	<-ready
	var ref atomic.Uint64
	call(b, callers, func() error {
		return tr.Send(transports.Outbound{Ref: ref.Add(1), ID: "1", Method: "m", Frame: frame})
	}, answers)
	cancel()
	if err := <-done; err != context.Canceled {
		b.Error(err)
	}
}

// call lets callers send and wait for an answer each, b.N times in all.
func call(b *testing.B, callers int, send func() error, answers <-chan []byte) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if err := send(); err != nil {
					b.Error(err)
					return
				}
				<-answers
			}
		})
	}
	running.Wait()
	b.StopTimer()
}
