package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// gate is a writer that waits until it is opened, and then remembers.
type gate struct {
	open   chan struct{}
	writes chan string
	err    error
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	if g.err != nil {
		return 0, g.err
	}
	g.writes <- string(b)
	return len(b), nil
}

func TestOutlet_NobodyWaitsForWhoeverReadsAndNothingIsTornOrReordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
		o := newOutlet(g, 1<<20)
		long := strings.Repeat("x", 2*joined)
		o.put([]byte("first")) // the writer is in the middle of this one
		synctest.Wait()
		for _, s := range []string{"a", "b", long, "c", ""} {
			o.put([]byte(s))
		}
		close(g.open)
		o.close(flushWait)
		close(g.writes)
		var got []string
		for w := range g.writes {
			got = append(got, w)
		}
		if diff := cmp.Diff([]string{"first\n", "a\nb\n", long + "\n", "c\n\n"}, got); diff != "" {
			t.Errorf("writes (-want +got):\n%.500s", diff)
		}
	})
}

func TestOutlet_AReaderWhoLeftAndOneWhoIsTooSlowBreakIt(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		name string
		err  error
		puts int
		want error
	}{
		{"one who left", gone, 1, gone},
		{"one who is too slow", nil, 42, errUnread},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{open: make(chan struct{}), writes: make(chan string, 100), err: tc.err}
				o := newOutlet(g, 100)
				for range tc.puts {
					o.put([]byte("ten bytes!"))
				}
				if tc.err != nil {
					close(g.open)
				}
				<-o.broken
				if o.err != tc.want {
					t.Errorf("broken by %v, want %v", o.err, tc.want)
				}
				o.put([]byte("more")) // is nobody's
				o.close(flushWait)    // does not wait for ever
				if tc.err == nil {
					close(g.open)
				}
			})
		})
	}
}

func TestRun_AServerWaitsWhileItsHostDoesNotReadAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
		o := newOutlet(g, 100)
		var said atomic.Int32
		f := paced(memory.Factory(transports.Pipe, "talker", func(ctx context.Context, c *memory.Conn) error {
			for i := range 30 {
				c.Write(0, fmt.Sprintf("line %02d, twenty bytes", i))
				said.Add(1)
			}
			<-ctx.Done()
			return nil
		}), o)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = f.New().Serve(ctx, func(ev transports.Event) {
				if m, ok := ev.(transports.Message); ok {
					o.put(m.Frame)
				}
			})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := said.Load(); n != 5 { // one is being written
			t.Errorf("the server said %d lines to a host that does not read, want 5", n)
		}
		close(g.open)
		synctest.Wait()
		stop()
		<-ended
		o.close(flushWait)
		close(g.writes)
		var got strings.Builder
		for w := range g.writes {
			got.WriteString(w)
		}
		if n := strings.Count(got.String(), "twenty bytes\n"); n != 30 || o.err != nil {
			t.Errorf("the host read %d lines, want 30: %v", n, o.err)
		}
	})
}

func TestRun_AServerThatWaitsForItsHostIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
		o := newOutlet(g, 10)
		o.put(make([]byte, 20))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.wait(ctx)
		}()
		synctest.Wait()
		stop()
		<-ended
		close(g.open)
		o.close(flushWait)
	})
}

func TestGiveUp_TheHostMayReadOnUntilItHasEverythingOrLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(g *gate, hostLeft chan struct{}, signals chan os.Signal)
		want time.Duration
	}{
		"it reads":        {func(g *gate, _ chan struct{}, _ chan os.Signal) { close(g.open) }, 10 * time.Second},
		"it leaves":       {func(_ *gate, left chan struct{}, _ chan os.Signal) { close(left) }, 10 * time.Second},
		"a signal":        {func(_ *gate, _ chan struct{}, s chan os.Signal) { s <- os.Interrupt }, 10 * time.Second},
		"a broken stderr": {func(_ *gate, _ chan struct{}, s chan os.Signal) { s <- syscall.SIGPIPE }, giveUpWait},
		"nothing":         {func(*gate, chan struct{}, chan os.Signal) {}, giveUpWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
				s := &shim{host: newOutlet(g, 100)}
				s.host.put([]byte("an answer"))
				left, signals := make(chan struct{}), make(chan os.Signal, 1)
				from := time.Now()
				time.AfterFunc(10*time.Second, func() { c.end(g, left, signals) })
				s.flush(left, signals)
				if took := time.Since(from); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
				if name != "it reads" {
					close(g.open)
				}
				s.host.close(flushWait)
			})
		})
	}
}

func TestOutlet_OneMessageMayBeLongerThanWhatMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
		o := newOutlet(g, 100)
		o.put(make([]byte, 200))
		close(g.open)
		o.close(flushWait)
		if o.err != nil || len(<-g.writes) != 201 {
			t.Errorf("it was not written: %v", o.err)
		}
	})
}

func TestOutlet_ALogThatNobodyReadsLosesLinesAndBreaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{}), writes: make(chan string, 100)}
		o := newOutlet(g, 101)
		for i := range 50 {
			if n, err := fmt.Fprintf(o, "line %02d, twenty byte\n", i); err != nil || n != 21 {
				t.Fatalf("%d, %v", n, err)
			}
		}
		close(g.open)
		o.close(flushWait)
		close(g.writes)
		var got strings.Builder
		for w := range g.writes {
			got.WriteString(w)
		}
		lines := strings.Split(strings.TrimSuffix(got.String(), "\n"), "\n")
		if len(lines) != 5 || lines[0] != "line 00, twenty byte" || lines[4] != "line 04, twenty byte" {
			t.Errorf("%d lines were kept: %q", len(lines), lines)
		}
	})
}

func TestLines_AreSplitAtNewlinesAloneAndDroppedOneByOneWhenTooLong(t *testing.T) {
	long := strings.Repeat("y", 100)
	input := "\xef\xbb\xbfone\ntwo\u2028still two\r\n\n" + strings.Repeat("x", 40) + "\n" + strings.Repeat("x", 41) + "\n" + long + "\nthree\n\xef\xbb\xbfkept\nno newline"
	want := []string{"one", "two\u2028still two\r", strings.Repeat("x", 40), "three", "\xef\xbb\xbfkept", "no newline"}
	for name, r := range map[string]io.Reader{
		"at once":       strings.NewReader(input),
		"byte by byte":  iotest.OneByteReader(strings.NewReader(input)),
		"half by half":  iotest.HalfReader(strings.NewReader(input)),
		"with the end":  iotest.DataErrReader(strings.NewReader(input)),
		"and a failure": io.MultiReader(strings.NewReader(input), iotest.ErrReader(io.ErrClosedPipe)),
	} {
		var got []string
		var dropped []int
		in := lines{r: bufio.NewReaderSize(r, 16), limit: 40}
		err := in.each(func(b []byte) { got = append(got, string(b)) }, func(_ []byte, n int) { dropped = append(dropped, n) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]int{42, 101}, dropped); diff != "" {
			t.Errorf("%s, dropped (-want +got):\n%s", name, diff)
		}
		if want := name == "and a failure"; (err != nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
