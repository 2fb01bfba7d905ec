package stdio

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sanitize makes bytes of a peer fit to be logged: escape sequences are removed,
// so that a server can't drive the terminal that shows its words, control and
// invalid bytes become U+FFFD, and more than max bytes are cut with an ellipsis.
func sanitize(b []byte, max int) string {
	if len(b) <= max && isPlain(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		if b[0] == esc {
			b = b[escapeLen(b):]
			continue
		}
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		switch {
		case r == '\t' || unicode.IsGraphic(r):
		case unicode.Is(unicode.Cf, r): // format characters (bidi overrides, BOM) are invisible
			continue
		default:
			r = utf8.RuneError
		}
		if s.Len()+utf8.RuneLen(r) > max {
			s.WriteString("…")
			break
		}
		s.WriteRune(r)
	}
	return s.String()
}

// isPlain spares almost every line of a log the walk rune by rune.
func isPlain(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

const esc = 0x1b

// escapeLen is the length of the escape sequence that b begins with: CSI up to
// its final byte, OSC and its kin up to BEL or ST, else ESC and one byte
// (ECMA-48, 5.3 to 5.6). An unfinished one takes all of b.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == esc && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
		}
		return len(b)
	default:
		return 2
	}
}

// lastWords is the end of a stderr tail in one line of at most max bytes, whole
// lines where possible.
func lastWords(tail []byte, max int) string {
	tail = bytes.TrimSpace(tail)
	if len(tail) > max {
		tail = tail[len(tail)-max:]
		if i := bytes.IndexByte(tail, '\n'); i >= 0 {
			tail = tail[i+1:]
		}
	}
	var lines []string
	for line := range bytes.FieldsFuncSeq(tail, isLineEnd) {
		if s := strings.TrimSpace(sanitize(line, max)); s != "" {
			lines = append(lines, s)
		}
	}
	return strings.Join(lines, " | ")
}

// isLineEnd takes a lone carriage return for a line end too: progress displays
// write nothing else for minutes.
func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }
