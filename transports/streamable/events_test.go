package streamable

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// read is what a whole stream gave.
type read struct {
	Events []string // name and data
	LastID string
	Retry  time.Duration
	Err    error
}

// readAll reads text in parts of at most step bytes.
func readAll(text string, step, limit int) (got read) {
	e := newEvents(&parts{strings.NewReader(text), step}, limit, "")
	defer e.release()
	for {
		ev, err := e.next()
		if err == errTooLong {
			got.Events = append(got.Events, "(too long)")
			continue
		}
		if err != nil {
			got.LastID, got.Retry = string(e.lastID), e.retry
			if err != io.EOF {
				got.Err = err
			}
			return got
		}
		got.Events = append(got.Events, fmt.Sprintf("%s|%s", ev.name, ev.data))
	}
}

// parts reads at most step bytes at once.
type parts struct {
	from io.Reader
	step int
}

func (p *parts) Read(b []byte) (int, error) { return p.from.Read(b[:min(p.step, len(b))]) }

func TestAnEventStreamIsReadAsTheHTMLStandardSays(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       read
	}{
		{"nothing", "", read{}},
		{"a line of data", "data: a\n\n", read{Events: []string{"|a"}}},
		{"one space is dropped, and no more", "data:  a \n\ndata:b\n\ndata:\tc\n\n", read{Events: []string{"| a ", "|b", "|\tc"}}},
		{"lines are joined", "data: a\ndata\ndata:b\n\n", read{Events: []string{"|a\n\nb"}}},
		{"empty data is data", "data\n\ndata:\n\ndata: \n\n", read{Events: []string{"|", "|", "|"}}},
		{"no data is no event", "event: x\n\nid: 1\n\n\n\n", read{LastID: "1"}},
		{"a name lasts one event", "event: x\ndata: a\n\ndata: b\n\n", read{Events: []string{"x|a", "|b"}}},
		{"the last name counts, with data or not", "event: x\nevent: message\ndata: a\n\nevent: y\n\ndata: b\n\n", read{Events: []string{"|a", "|b"}}},
		{"an id lasts", "id: 1\ndata: a\n\ndata: b\n\n", read{Events: []string{"|a", "|b"}, LastID: "1"}},
		{"until the next one, the empty one included", "id: 1\n\nid\ndata: a\n\n", read{Events: []string{"|a"}}},
		{"an id with NUL is none", "id: 1\n\nid: 2\x003\n\n", read{LastID: "1"}},
		{"an id of an event that was cut is none", "id: 1\n\nid: 2\ndata: a\n", read{LastID: "1"}},
		{"retry", "retry: 10\n\n", read{Retry: 10 * time.Millisecond}},
		{"retry at once", "retry: 10\n", read{Retry: 10 * time.Millisecond}},
		{"retry of anything but digits", "retry: 1\nretry: 2s\nretry: +3\nretry:  4\nretry:\nretry: ٣\n", read{Retry: time.Millisecond}},
		{"retry for ever", "retry: " + strings.Repeat("9", 100) + "\n", read{Retry: maxRetry}},
		{"a retry line that was cut", "retry: 10", read{}},
		{"comments and fields without a meaning", ": a\n:\nfoo: bar\nfoo\n data: x\ndatab: y\nData: z\n\n", read{}},
		{"all line ends", "data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\rdata: e\n\n", read{Events: []string{"|a\nb\nc", "|d", "|e"}}},
		{"a mark at the start", "\xef\xbb\xbfdata: a\n\n", read{Events: []string{"|a"}}},
		{"and only there", "\n\xef\xbb\xbfdata: a\n\n\xef\xbb\xbf", read{}},
		{"half a mark", "\xef\xbbdata: a\n\n", read{}},
		{"other line separators are none", "data: a\u2028b\u0085c\vd\fe\n\n", read{Events: []string{"|a\u2028b\u0085c\vd\fe"}}},
		{"an event without its blank line", "data: a\n", read{}},
		{"a colon in the value", "data: a: b:\n\n", read{Events: []string{"|a: b:"}}},
		{"the limit is of data alone", ":" + strings.Repeat("x", 100) + "\nfoo: " + strings.Repeat("x", 100) + "\ndata: 12345678\n\n", read{Events: []string{"|12345678"}}},
		{"over the limit in a line", "data: 123456789\n\ndata: b\n\n", read{Events: []string{"(too long)", "|b"}}},
		{"over the limit in lines", "data: 1234\ndata: 5678\ndata: 9\n\ndata: b\n\n", read{Events: []string{"(too long)", "|b"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			limit := 100
			if strings.Contains(tc.name, "limit") {
				limit = 8
			}
			for _, step := range []int{1, 2, 3, 5, 1 << 20} {
				if diff := cmp.Diff(tc.want, readAll(tc.text, step, limit)); diff != "" {
					t.Errorf("%d bytes at a time (-want +got):\n%s", step, diff)
				}
			}
		})
	}
}

// Lines around and beyond the size of the buffer, whichever field they are.
func TestLinesLongerThanTheBuffer(t *testing.T) {
	for _, n := range []int{eventBuffer - 8, eventBuffer - 7, eventBuffer - 6, eventBuffer - 1, eventBuffer, eventBuffer + 1, 3*eventBuffer + 5} {
		long := strings.Repeat("x", n)
		for name, tc := range map[string]struct {
			text string
			want read
		}{
			"data":             {"data: " + long + "\n\n", read{Events: []string{"|" + long}}},
			"without a space":  {"data:" + long + "\r\n\r\n", read{Events: []string{"|" + long}}},
			"data after data":  {"data: a\ndata: " + long + "\n\n", read{Events: []string{"|a\n" + long}}},
			"a comment":        {":" + long + "\ndata: a\n\n", read{Events: []string{"|a"}}},
			"an unknown field": {long + ": x\ndata: a\n\n", read{Events: []string{"|a"}}},
		} {
			for _, step := range []int{7, 4096, 1 << 20} {
				if diff := cmp.Diff(tc.want, readAll(tc.text, step, 1<<20)); diff != "" {
					t.Errorf("%s of %d bytes, %d at a time (-want +got):\n%.300s", name, n, step, diff)
				}
			}
		}
	}
}

// An id that is too long for a buffer can't be sent back, and the one before it
// would ask for what has come already.
func TestAnEndlessIDIsNotResumable(t *testing.T) {
	text := "id: 1\n\nid: " + strings.Repeat("x", 2*eventBuffer) + "\n\n"
	e := newEvents(strings.NewReader(text), 100, "")
	defer e.release()
	if _, err := e.next(); err != io.EOF {
		t.Fatal(err)
	}
	if got := e.resumeID(); got != "" {
		t.Errorf("the id to resume from is %q", got)
	}
}

func TestAReadErrorIsPassedOnAfterWhatCameWithIt(t *testing.T) {
	broken := errors.New("reset")
	e := newEvents(iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken))), 100, "")
	defer e.release()
	if ev, err := e.next(); err != nil || string(ev.data) != "a" {
		t.Errorf("%q, %v", ev.data, err)
	}
	if _, err := e.next(); err != broken {
		t.Errorf("the error is %v", err)
	}
}

// interpret is the standard's text, written down a second time for streams that
// are there as a whole.
func interpret(text string) (got read) {
	text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var name, data, id string
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		if line == "" {
			got.LastID = id
			if data != "" {
				got.Events = append(got.Events, name+"|"+strings.TrimSuffix(data, "\n"))
			}
			name, data = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			if name = value; name == "message" {
				name = ""
			}
		case "data":
			data += value + "\n"
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "retry":
			if value != "" && strings.Trim(value, "0123456789") == "" {
				ms := time.Duration(0)
				for _, c := range value {
					ms = min(10*ms+time.Duration(c-'0'), maxRetry/time.Millisecond)
				}
				got.Retry = ms * time.Millisecond
			}
		}
	}
	return got
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "data: a\n\n", "\xef\xbb\xbfid: 1\rretry: 10\r\n:c\nevent: x\ndata: a\ndata\n\ndata", "data:\r\r\n\n\r",
		"id\n\nid: \x00\n\n", "\xef\xbb", strings.Repeat(":", 100) + "\ndata: b\n\n",
	} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, text string, step int) {
		if step < 1 || step > len(text)+1 {
			return
		}
		want := interpret(text)
		for _, step := range []int{step, len(text) + 1} {
			if diff := cmp.Diff(want, readAll(text, step, len(text))); diff != "" {
				t.Errorf("%q, %d bytes at a time (-want +got):\n%s", text, step, diff)
			}
		}
	})
}
