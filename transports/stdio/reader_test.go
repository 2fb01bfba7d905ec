package stdio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/transports"
)

// readAll returns what a reader emits of some bytes.
func readAll(t testing.TB, limit int, r io.Reader) []transports.Event {
	t.Helper()
	var got []transports.Event
	d := &reader{max: limit, emit: func(e transports.Event) { got = append(got, e) }}
	if err := d.run(r); err != nil {
		t.Fatal(err)
	}
	return got
}

func message(s string) transports.Event { return transports.Message{Frame: []byte(s)} }

func noise(n int, sample string) transports.Event { return transports.Noise{Bytes: n, Sample: sample} }

const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`

func TestReaderTellsMessagesFromNoise(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []transports.Event
	}{
		{"nothing", "", nil},
		{"a message", answer + "\n", []transports.Event{message(answer)}},
		{"CRLF", answer + "\r\n", []transports.Event{message(answer)}},
		{"white space around a message", " \t" + answer + " \n", []transports.Event{message(answer)}},
		{"a byte order mark", "\ufeff" + answer + "\n", []transports.Event{noise(3, "byte order mark"), message(answer)}},
		{"a cut byte order mark", "\xef\xbb\n", []transports.Event{noise(3, "��")}},
		{"blank lines", "\n\r\n  \n", []transports.Event{noise(1, ""), noise(2, "�"), noise(3, "  ")}},
		{"a banner", "Server v1 ready\n" + answer + "\n", []transports.Event{noise(16, "Server v1 ready"), message(answer)}},
		{"JSON that is no object", "null\n[]\n42\n\"x\"\n", []transports.Event{
			noise(5, "null"), noise(3, "[]"), noise(3, "42"), noise(4, `"x"`),
		}},
		{"a batch", "[" + answer + "]\n", []transports.Event{noise(39, "["+answer+"]")}},
		{"colours", "\x1b[32mok\x1b[0m\n", []transports.Event{noise(12, "ok")}},
		{"an object that is no JSON-RPC is for the engine to judge", `{"level":"info"}` + "\n", []transports.Event{message(`{"level":"info"}`)}},
		{"a broken object too", "{oops\n", []transports.Event{message("{oops")}},
		{"no newline at the end, and whole", answer, []transports.Event{message(answer)}},
		{"such a message after a byte order mark", "\ufeff" + answer, []transports.Event{noise(3, "byte order mark"), message(answer)}},
		{"half a line at the end", answer[:20], []transports.Event{noise(20, answer[:20])}},
		{"half an answer at the end", answer[:len(answer)-1], []transports.Event{noise(len(answer)-1, answer[:len(answer)-1])}},
		{"noise without a newline at the end", "bye", []transports.Event{noise(3, "bye")}},
		{"line separators of Unicode do not split", "{\"a\":\"x\u2028y\u2029z\u0085\"}\n", []transports.Event{message("{\"a\":\"x\u2028y\u2029z\u0085\"}")}},
		{"nor does a lone carriage return", "{\"a\":\r1}\n", []transports.Event{message("{\"a\":\r1}")}},
		{"nor other controls", "{\"a\":\v\f\x001}\n", []transports.Event{message("{\"a\":\v\f\x001}")}},
		{"invalid UTF-8 is kept as it came", "{\"a\":\"\xb0\xa1\xff\"}\n", []transports.Event{message("{\"a\":\"\xb0\xa1\xff\"}")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":        strings.NewReader(tt.in),
				"byte by byte":   iotest.OneByteReader(strings.NewReader(tt.in)),
				"with the error": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				if diff := cmp.Diff(tt.want, readAll(t, 1000, r)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

// B073: an emoji whose bytes come one by one is whole, since only whole lines are
// looked at.
func TestB073_AnEmojiInPiecesIsWhole(t *testing.T) {
	in := "{\"s\":\"\U0001F600\"}\n"
	if diff := cmp.Diff([]transports.Event{message(in[:len(in)-1])}, readAll(t, 1000, iotest.OneByteReader(strings.NewReader(in)))); diff != "" {
		t.Error(diff)
	}
}

func TestReaderDropsALineThatIsTooLongAlone(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tt := range []struct {
		name, line, id string
	}{
		{"an answer with its id first", `{"jsonrpc":"2.0","id":7,"result":"` + long + `"}`, "7"},
		{"with a string for an id", `{"id":"7","jsonrpc":"2.0","error":{"code":1,"message":"` + long + `"}}`, `"7"`},
		{"with its id last", `{"result":{"id":1,"a":"` + long + `"},"jsonrpc":"2.0","id":8}`, "8"},
		{"with its id last but one", `{"result":{"id":1,"a":"` + long + `"}, "id": "a\"b" , "jsonrpc": "2.0" } `, `"a\"b"`},
		{"with an id only inside the result", `{"result":{"a":"` + long + `","id":8}}`, ""},
		{"with an id only inside a text", `{"result":"` + long + `,\"id\":8}"}`, ""},
		{"a request of the peer, whose ids are its own", `{"jsonrpc":"2.0","id":7,"method":"m","params":"` + long + `"}`, ""},
		{"such a request with its id last", `{"params":{"a":"` + long + `"},"method":"m","jsonrpc":"2.0","id":7}`, ""},
		{"half an answer", `{"jsonrpc":"2.0","id":7,"result":"` + long, "7"},
		{"no JSON", long, ""},
		{"brackets", strings.Repeat("[", 5000), ""},
		{"braces", strings.Repeat("{", 5000), ""},
		{"an id of brackets", `{"id":` + strings.Repeat("[", 5000), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := []transports.Event{
				message(answer),
				transports.Noise{Bytes: len(tt.line) + 1, Sample: sample([]byte(tt.line)), ID: tt.id},
				message(answer),
			}
			in := answer + "\n" + tt.line + "\n" + answer + "\n"
			for _, limit := range []int{100, 4999} {
				for how, r := range map[string]io.Reader{
					"at once":      strings.NewReader(in),
					"byte by byte": iotest.OneByteReader(strings.NewReader(in)),
				} {
					if diff := cmp.Diff(want, readAll(t, limit, r)); diff != "" {
						t.Errorf("limit %d, %s (-want +got):\n%s", limit, how, diff)
					}
				}
			}
		})
	}
}

func TestReaderTakesALineOfExactlyTheLimit(t *testing.T) {
	for _, limit := range []int{10, 1000, readBuffer - 1, readBuffer, readBuffer + 1, 3 * readBuffer} {
		fits := `{"a":"` + strings.Repeat("x", limit-8) + `"}`
		beyond := fits[:6] + "x" + fits[6:]
		want := []transports.Event{
			message(fits),
			noise(limit+2, sample([]byte(beyond))),
			message(fits),
		}
		if diff := cmp.Diff(want, readAll(t, limit, strings.NewReader(fits+"\n"+beyond+"\n"+fits+"\n")), cmp.Comparer(bytes.Equal)); diff != "" {
			t.Errorf("limit %d (-want +got):\n%.1000s", limit, diff)
		}
	}
}

// repeat is n bytes of s, and then end.
func repeat(s string, n int, end string) io.Reader {
	return io.MultiReader(io.LimitReader(endless(s), int64(n)), strings.NewReader(end))
}

// endless repeats one byte.
type endless string

func (e endless) Read(p []byte) (int, error) {
	p[0] = e[0]
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return len(p), nil
}

// A line costs no more memory than the longest message, and noise none at all.
func TestT11_ALongLineHoldsLittle(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name  string
		in    io.Reader
		bytes int
		limit int
		most  uint64 // bytes allocated in all
	}{
		{"100 MiB of text", repeat("x", 100*mib, "\n"), 100 * mib, 64 * mib, mib},
		{"2 MiB of brackets", repeat("[", 2*mib, "\n"), 2 * mib, 64 * mib, mib},
		{"100 MiB of braces, 4 MiB allowed", repeat("{", 100*mib, "\n"), 100 * mib, 4 * mib, 17 * mib},
		{"100 MiB without an end", repeat("{", 100*mib, ""), 100*mib - 1, 4 * mib, 17 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := readAll(t, tt.limit, tt.in)
			runtime.ReadMemStats(&after)
			if len(got) != 1 || got[0].(transports.Noise).Bytes != tt.bytes+1 {
				t.Errorf("events: %.300v, want one Noise of %d bytes", got, tt.bytes+1)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > tt.most {
				t.Errorf("%d bytes were allocated, want at most %d", used, tt.most)
			}
		})
	}
}

// The end of the buffer falls into the white space before a message.
func TestReaderLooksAtALineOnlyWhenItKnowsEnough(t *testing.T) {
	for _, before := range []string{" ", "\ufeff", "\t  "} {
		for cut := range len(before) + 2 {
			first := `{"a":"` + strings.Repeat("x", readBuffer-9-cut) + `"}` + "\n"
			want := []transports.Event{message(first[:len(first)-1])}
			if before == "\ufeff" {
				want = append(want, noise(3, "byte order mark"))
			}
			want = append(want, message(answer))
			got := readAll(t, readBuffer, strings.NewReader(first+before+answer+"\n"))
			if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("%q cut at %d (-want +got):\n%.500s", before, cut, diff)
			}
		}
	}
}

func TestReaderGivesEachMessageItsOwnMemory(t *testing.T) {
	var in bytes.Buffer
	for i := range 12 {
		size := []int{1, 100, keepBuffer - 1, keepBuffer + 1}[i%4] / (1 + i%3)
		fmt.Fprintf(&in, "{\"n\":%d,\"pad\":\"%s\"}\n", i, strings.Repeat("x", size))
	}
	want := in.String()
	var frames [][]byte
	for _, e := range readAll(t, 4*keepBuffer, &in) {
		frames = append(frames, e.(transports.Message).Frame)
	}
	for _, f := range frames {
		line, rest, _ := strings.Cut(want, "\n")
		if want = rest; string(f) != line {
			t.Fatalf("a frame changed: %.100q, want %.100q", f, line)
		}
		clear(f[:cap(f)])
	}
}

// Whatever comes and however it is cut, every byte is part of exactly one event,
// and the lines that a plain split calls messages are the messages.
func TestReaderPropertyEveryByteIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.SampledFrom([]string{"\n", "\r\n", "{", "}", "[", " ", "\ufeff", "null", answer, answer + "\n", "\x1b[1m", "\xff"}),
			rapid.Custom(func(t *rapid.T) string {
				return strings.Repeat(rapid.SampledFrom([]string{"x", "{", " "}).Draw(t, "of"), rapid.IntRange(0, 300_000).Draw(t, "n"))
			}),
		)
		in := strings.Join(rapid.SliceOfN(piece, 0, 20).Draw(t, "pieces"), "")
		limit := rapid.SampledFrom([]int{1, 40, 1000, readBuffer, 2 * readBuffer}).Draw(t, "limit")
		cuts := rapid.SliceOfN(rapid.IntRange(1, 100_000), 1, 10).Draw(t, "cuts")

		var got, want []string
		total := 0
		d := &reader{max: limit, emit: func(e transports.Event) {
			switch e := e.(type) {
			case transports.Message:
				got = append(got, string(e.Frame))
			case transports.Noise:
				total += e.Bytes
			}
		}}
		if err := d.run(&chunks{in: in, sizes: cuts}); err != nil {
			t.Fatal(err)
		}
		rest := 0
		for line := range strings.Lines(in) {
			text, ended := strings.CutSuffix(line, "\n")
			bare := strings.TrimPrefix(text, "\ufeff")
			if len(text) <= limit && strings.HasPrefix(strings.TrimLeft(bare, " \t\r"), "{") && (ended || json.Valid([]byte(bare))) {
				want = append(want, string(bytes.TrimSpace([]byte(bare))))
				rest += len(text) - len(bare)
			} else {
				rest += len(line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("messages (-want +got):\n%.2000s", diff)
		}
		if total != rest {
			t.Fatalf("%d bytes of noise, want %d", total, rest)
		}
	})
}

// chunks reads in pieces of the given sizes, over and over.
type chunks struct {
	in    string
	sizes []int
	i     int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.in == "" {
		return 0, io.EOF
	}
	size := c.sizes[c.i%len(c.sizes)]
	c.i++
	n := copy(p[:min(size, len(p))], c.in)
	c.in = c.in[n:]
	return n, nil
}
