//go:build unix

package stdio_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func init() {
	// distracted reads one line, says so, reads nothing until it gets SIGUSR1, and
	// echoes from then on.
	roles["distracted"] = func([]string) {
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGUSR1)
		in := bufio.NewReaderSize(os.Stdin, 16) // so small that it takes little more than the line
		in.ReadBytes('\n')
		fmt.Println(`{"jsonrpc":"2.0","method":"busy"}`)
		<-again
		echo(in, os.Stdout)
	}
	// noisy prints a banner, and noise before each answer.
	roles["noisy"] = func([]string) {
		io.WriteString(os.Stdout, "Server v1.0 listening\n\n")
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			io.WriteString(os.Stdout, "null\n[]\n42\n\x1b[31mred\x1b[0m\n\n"+strings.Repeat("z", 1<<20)+"\n")
			if reply, ok := conformance.EchoReply(line); ok {
				os.Stdout.Write(append(reply, '\n'))
			}
		}
	}
	// drip prints its arguments as lines, in writes of one byte.
	roles["drip"] = func(args []string) {
		for _, line := range args {
			for _, b := range []byte(line + "\n") {
				os.Stdout.Write([]byte{b})
			}
		}
	}
}

// A server that reads nothing costs nobody but the frames behind the one that was
// begun, and that one stays whole.
func TestB065_AServerThatStopsReadingBlocksNobody(t *testing.T) {
	r := start(t, role("distracted")).ready()
	first := r.mustRequest(0)
	r.heard("busy")
	begun := r.mustRequest(1 << 20)  // more than the pipe holds
	behind := r.mustRequest(1 << 20) // Send returns all the same
	if r.tr.Cancel(first) {
		t.Error("Cancel says that nothing of the first request was written, and the server read it")
	}
	if r.tr.Cancel(begun) {
		t.Error("Cancel says that nothing was written of a frame that is in the pipe")
	}
	if !r.tr.Cancel(behind) {
		t.Error("Cancel says that something was written of a frame behind one that is not finished")
	}
	last := r.mustRequest(10)
	r.signal(syscall.SIGUSR1)
	r.heard(answerTo(begun)) // given up, but begun: the server got it whole
	r.heard(answerTo(last))
	for _, e := range r.all() {
		if m, ok := e.(transports.Message); ok && strings.Contains(string(m.Frame), answerTo(behind)) {
			t.Error("the server got a frame that was taken back")
		}
	}
}

func TestB065_AStopUnderAFullPipeIsBounded(t *testing.T) {
	conf := role("deaf")
	conf.StdinWait = 20 * time.Millisecond
	r := start(t, conf)
	r.heard("up")
	begun := r.mustRequest(1 << 20)
	var want []transports.Unsent
	for range 3 {
		want = append(want, transports.Unsent{Ref: r.mustRequest(1 << 20), Cause: transports.ErrGone})
	}
	r.stop(errTestOver)
	if err := r.ended(); !errors.Is(err, errTestOver) {
		t.Errorf("Serve returned %v, want the cause", err)
	}
	var got []transports.Unsent
	for _, e := range r.all() {
		if u, ok := e.(transports.Unsent); ok {
			got = append(got, u)
		}
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })); diff != "" {
		t.Errorf("unsent, and %d was begun (-want +got):\n%s", begun, diff)
	}
}

// What the pipe takes at once when the stop begins is still delivered.
func TestAStopLeavesNoNotificationBehind(t *testing.T) {
	for range 20 {
		conf := shell(`printf '{"got":%d}\n' "$(grep -c notification)"`)
		r := start(t, conf).ready()
		const n = 50
		for range n {
			r.refs++
			if err := r.tr.Send(transports.Outbound{Ref: r.refs, Method: "n", Frame: []byte(`{"method":"notification"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		r.stop(errTestOver)
		r.ended()
		r.heard(fmt.Sprintf(`{"got":%d}`, n))
	}
}

// TestStallWatchKnowsAStuckServerFromABusyOne has the cases in which it must not.
func TestB065_WriteStallEndsAServerThatOnlyTheWriterWaitsFor(t *testing.T) {
	conf := role("distracted")
	conf.WriteStall = 30 * time.Millisecond
	r := start(t, conf).ready()
	busy := r.mustRequest(0)
	r.heard("busy")
	r.mustRequest(1 << 20)
	r.tr.Cancel(busy) // the server is at it, and nobody waits for it any more
	if err := r.ended(); !errors.Is(err, stdio.ErrStalled) {
		t.Errorf("Serve returned %v, want ErrStalled", err)
	}
}

func TestB069_NoiseOnARealPipeIsCountedAndSurvived(t *testing.T) {
	const calls = 20
	r := start(t, role("noisy")).ready()
	for range calls {
		r.heard(answerTo(r.mustRequest(0)))
	}
	r.stop(errTestOver)
	if err := r.ended(); err != errTestOver {
		t.Errorf("Serve returned %v: noise is no death", err)
	}
	var got []transports.Noise
	for _, e := range r.all() {
		if n, ok := e.(transports.Noise); ok {
			got = append(got, n)
		}
	}
	want := []transports.Noise{{Bytes: 22, Sample: "Server v1.0 listening"}, {Bytes: 1}}
	for range calls {
		want = append(want, transports.Noise{Bytes: 5, Sample: "null"}, transports.Noise{Bytes: 3, Sample: "[]"}, transports.Noise{Bytes: 3, Sample: "42"},
			transports.Noise{Bytes: 13, Sample: "red"}, transports.Noise{Bytes: 1}, transports.Noise{Bytes: 1<<20 + 1, Sample: strings.Repeat("z", 120) + "…"})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("noise (-want +got):\n%.2000s", diff)
	}
}

// JSON objects that are no JSON-RPC reach the engine, which judges them; they
// disturb neither the order nor the true answer.
func TestB070_AnObjectIsForTheEngineToJudge(t *testing.T) {
	lines := []string{
		`{"level":"info"}`, `{"id":1}`, `{"jsonrpc":"1.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"true":"answer"}}`,
	}
	r := start(t, role("print", strings.Join(lines, "\n")+"\n"))
	r.ended()
	want := []transports.Event{transports.Ready{}}
	for _, l := range lines {
		want = append(want, transports.Message{Frame: []byte(l)})
	}
	if diff := cmp.Diff(want, r.all()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestB073_BytesArriveAsTheyWereSent(t *testing.T) {
	var lines []string
	for i, s := range []string{"\U0001F600", "\xb0\xa1\xb3\xaa", "a\u2028b\u2029c\u0085d"} {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"%s"}`, i+1, s))
	}
	r := start(t, role("drip", lines...))
	r.ended()
	var got []string
	for _, e := range r.all() {
		if m, ok := e.(transports.Message); ok {
			got = append(got, string(m.Frame))
		}
	}
	if diff := cmp.Diff(lines, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// A grandchild holds stdout when the server has gone: what the server wrote is
// delivered, and the wait for more is bounded.
func TestT11_AGrandchildThatHoldsStdoutDelaysNobody(t *testing.T) {
	conf := shell(`sleep 100000 & echo '{"jsonrpc":"2.0","method":"last"}'; exit 4`)
	conf.ReadWait = 100 * time.Millisecond
	r := start(t, conf)
	err := r.ended()
	r.heard("last")
	var exit *stdio.ExitError
	if !errors.As(err, &exit) || exit.Status != (stdio.Status{Kind: stdio.ExitCode, Code: 4}) {
		t.Errorf("Serve returned %v, want exit code 4", err)
	}
}

func TestT11_LongLinesGoBothWays(t *testing.T) {
	conf := role("echo")
	conf.MaxMessage = 2 << 20
	r := start(t, conf).ready()
	for _, size := range []int{64<<10 - 60, 64 << 10, 65<<10 + 1, 128 << 10, 1 << 20} {
		ref := r.mustRequest(size)
		if got := r.heard(answerTo(ref)); len(got) < size {
			t.Errorf("%d bytes came back of %d", len(got), size)
		}
	}
	// Beyond the limit that answer alone is lost, and says whose it was.
	lost := r.mustRequest(3 << 20)
	e := r.until("Noise", func(e transports.Event) bool { _, ok := e.(transports.Noise); return ok })
	if n := e.(transports.Noise); n.ID != fmt.Sprint(lost) || n.Bytes < 3<<20 {
		t.Errorf("Noise of %d bytes for id %q, want the answer to %d", n.Bytes, n.ID, lost)
	}
	r.heard(answerTo(r.mustRequest(10)))
}

func TestGarbageHurtsNobody(t *testing.T) {
	for name, in := range map[string]string{
		"garbage":            "\x00\x01\x02\xff\xfe garbage \x1b]0;title\x07\n",
		"half a line":        `{"jsonrpc":"2.0","id":1,"resu`,
		"2 MiB of brackets":  strings.Repeat("[", 2<<20) + "\n",
		"a batch":            `[{"jsonrpc":"2.0","id":1,"result":{}}]` + "\n",
		"null":               "null\n",
		"nothing but spaces": strings.Repeat(" ", 300_000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			conf := shell(`cat "$FILE"`)
			path := t.TempDir() + "/out"
			if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
				t.Fatal(err)
			}
			conf.Env = append(conf.Env, "FILE="+path)
			r := start(t, conf)
			r.ended()
			total := 0
			for _, e := range r.all() {
				switch e := e.(type) {
				case transports.Noise:
					total += e.Bytes
				case transports.Message:
					t.Errorf("a message: %.100q", e.Frame)
				}
			}
			if total != len(in) {
				t.Errorf("%d bytes of noise, want %d", total, len(in))
			}
		})
	}
}
