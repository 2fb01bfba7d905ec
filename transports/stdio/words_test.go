package stdio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/transports"
)

func TestSanitize(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "plain text", "plain text"},
		{"tabs and spaces", "a\tb  c", "a\tb  c"},
		{"accents and emoji", "é \U0001F600", "é \U0001F600"},
		{"colours", "\x1b[1;31mred\x1b[0m", "red"},
		{"a window title", "\x1b]0;owned\x07x\x1b]0;owned\x1b\\y", "xy"},
		{"a device control string", "\x1bPq#0\x1b\\x", "x"},
		{"a short sequence", "\x1bcx", "x"},
		{"an unfinished sequence", "x\x1b[12", "x"},
		{"an escape at the end", "x\x1b", "x"},
		{"controls", "a\x00b\x07c\x7fd", "a�b�c�d"},
		{"controls of the second kind", "a\u009bb", "a�b"},
		{"invalid bytes", "a\xffb\xc3", "a�b�"},
		{"text that runs backwards", "a\u202eb\u2066c\ufeffd", "abcd"},
		{"line separators", "a\u2028b", "a�b"},
		{"too long", strings.Repeat("é", 20), strings.Repeat("é", 10) + "…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := sanitize([]byte(tt.in), 20); got != tt.want {
				t.Errorf("sanitize(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b]0;x\x07\xff\u202e"), 10)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit = min(max(limit, 0), 1000)
		got := sanitize(b, limit)
		if len(got) > limit+len("…") || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\x00\r\n\x07\u202e") {
			t.Errorf("sanitize(%q, %d) = %q", b, limit, got)
		}
	})
}

func TestStderrLines(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"lines", "one\ntwo\n", []string{"one", "two"}},
		{"no newline at the end", "one\ntwo", []string{"one", "two"}},
		{"CRLF and blank lines", "one\r\n\r\n\ntwo\r\n", []string{"one", "two"}},
		{"a progress display", "10%\r20%\r30%\n", []string{"10%", "20%", "30%"}},
		{"a long line", strings.Repeat("x", 30) + "\nnext\n", []string{strings.Repeat("x", 20) + "…", "next"}},
		{"a line of exactly the limit", strings.Repeat("x", 20) + "\nnext\n", []string{strings.Repeat("x", 20), "next"}},
		{"nothing to see", "\x1b[0m\n  \n", nil},
		{"bytes that grow", strings.Repeat("\xff", 30) + "\n", []string{strings.Repeat("�", 6) + "…"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":      strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
			} {
				var got []string
				s := &stderr{maxLine: 20, keep: 10, emit: func(e transports.Event) { got = append(got, e.(transports.Diagnostic).Line) }}
				s.run(r)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestStderrPropertyTheTailIsTheLastBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(1, 50).Draw(t, "keep")
		s := &stderr{keep: keep}
		var all []byte
		for _, part := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 120)).Draw(t, "parts") {
			s.remember(part)
			all = append(all, part...)
		}
		if got, want := s.last(), all[max(0, len(all)-keep):]; !bytes.Equal(got, want) {
			t.Fatalf("tail %q, want %q", got, want)
		}
		if len(s.tail) > 2*keep {
			t.Fatalf("%d bytes are kept for a tail of %d", len(s.tail), keep)
		}
	})
}

func TestErrorsSayWhatHappened(t *testing.T) {
	exit := func(change func(*ExitError)) *ExitError {
		e := &ExitError{Label: "npx", PID: 7, Status: Status{Kind: ExitCode}}
		change(e)
		return e
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{exit(func(*ExitError) {}), "stdio: npx (pid 7) ended: exit code 0"},
		{exit(func(e *ExitError) { e.Status = Status{} }), "stdio: npx (pid 7) ended: unknown exit"},
		{exit(func(e *ExitError) { e.Status = Status{Kind: ExitSignal, Signal: syscall.SIGKILL.String()} }), "stdio: npx (pid 7) ended: signal: killed"},
		{exit(func(e *ExitError) { e.Reason = ErrStalled }), "stdio: npx (pid 7) ended: exit code 0; stdio: the server does not read its stdin"},
		{exit(func(e *ExitError) {
			e.Killed, e.Escaped = []Process{{7, "npx"}, {8, "node"}}, []Process{{9, ""}}
		}), "stdio: npx (pid 7) ended: exit code 0; killed 7 (npx), 8 (node); out of reach 9"},
		{exit(func(e *ExitError) { e.Stderr = []byte("\x1b[1mError:\x1b[0m no such module\n    at main\n") }), "stdio: npx (pid 7) ended: exit code 0; stderr: Error: no such module | at main"},
		{exit(func(e *ExitError) { e.Stderr = []byte("cut off " + strings.Repeat("x", 400) + "\nlast line\n") }), "stdio: npx (pid 7) ended: exit code 0; stderr: last line"},
		{&StartError{Path: "x", Err: errors.New("no")}, `stdio: cannot start "x": no`},
		{&ConfigError{Field: "Path", Value: `""`, Why: "names no program"}, `stdio: Config.Path "": names no program`},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
