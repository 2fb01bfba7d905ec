package streamable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A frame is checked to be JSON by one scan that does not recurse, however deeply
// a peer nests, and says whether it was cut or wrong, which no library does.

// maxDepth is how deeply a frame may nest, as in the engine.
const maxDepth = 1024

// where is where a scan came to.
type where uint8

const (
	inside where = iota // of the object, after what was scanned
	closed              // behind the object
	cut                 // the text ended
	wrong               // it is no JSON
)

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// nesting is the kinds of the containers that a scan is in.
type nesting struct {
	depth   int
	objects [maxDepth / 64]uint64 // a bit for each that is an object
}

// push reports whether that is not too deep; the frame itself is one container.
func (n *nesting) push(object bool) bool {
	if n.depth++; n.depth >= maxDepth {
		return false
	}
	bit := uint64(1) << (n.depth % 64)
	if object {
		n.objects[n.depth/64] |= bit
	} else {
		n.objects[n.depth/64] &^= bit
	}
	return true
}

func (n *nesting) inObject() bool { return n.objects[n.depth/64]>>(n.depth%64)&1 == 1 }

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) (int, where) {
	var in nesting
	at := inside
	for {
		if i == len(b) {
			return i, cut
		}
		empty := false
		switch c := b[i]; c {
		case '{', '[':
			if !in.push(c == '{') {
				return i, wrong
			}
			if i = space(b, i+1); i == len(b) {
				return i, cut
			}
			if empty = b[i] == c+2; !empty { // ASCII: } and ] are two behind
				if c == '{' {
					if _, i, at = member(b, i); at != inside {
						return i, at
					}
				}
				continue
			}
		case '"':
			i, at = skipString(b, i)
		case 't':
			i, at = skipLiteral(b, i, "true")
		case 'f':
			i, at = skipLiteral(b, i, "false")
		case 'n':
			i, at = skipLiteral(b, i, "null")
		default:
			i, at = skipNumber(b, i)
		}
		if at != inside {
			return i, at
		}
		if i, at = in.leave(b, i); at != inside {
			if at == closed {
				at = inside
			}
			return i, at
		}
	}
}

// leave goes on behind a value, or at the end of an empty container, to the next
// value: it is closed if that was the outermost.
func (n *nesting) leave(b []byte, i int) (int, where) {
	for n.depth > 0 {
		if i = space(b, i); i == len(b) {
			return i, cut
		}
		object := n.inObject()
		switch c := b[i]; {
		case c == ',':
			if !object {
				return space(b, i+1), inside
			}
			_, i, at := member(b, i+1)
			return i, at
		case object && c == '}', !object && c == ']':
			n.depth--
			i++
		default:
			return i, wrong
		}
	}
	return i, closed
}

func skipLiteral(b []byte, i int, text string) (int, where) {
	rest := b[i:]
	if len(rest) >= len(text) {
		if string(rest[:len(text)]) == text {
			return i + len(text), inside
		}
		return i, wrong
	}
	if string(rest) == text[:len(rest)] {
		return len(b), cut
	}
	return i, wrong
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// skipNumber is RFC 8259, section 6. A number at the end of the text may go on.
func skipNumber(b []byte, i int) (int, where) {
	if b[i] == '-' {
		if i++; i == len(b) {
			return i, cut
		}
	}
	from := i
	if b[i] == '0' {
		i++
	} else if i = digits(b, i); i == from {
		return i, wrong
	}
	if i < len(b) && b[i] == '.' {
		from = i + 1
		if i = digits(b, from); i == from && i < len(b) {
			return i, wrong
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from = i
		if i = digits(b, i); i == from && i < len(b) {
			return i, wrong
		}
	}
	if i == len(b) {
		return i, cut
	}
	return i, inside
}

// Eight bytes at a time, after "Bit Twiddling Hacks": the lowest byte that is
// marked is marked rightly.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// shortWords is how many words of a string are looked at here before the search
// for its end is left to package bytes, which is faster and slower to begin.
const shortWords = 4

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) (int, where) {
	i++
	for n := 0; n < shortWords && i+8 <= len(b); n++ {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, back := w^('"'*ones), w^('\\'*ones)
		marks := ((quote-ones)&^quote | (back-ones)&^back | (w-' '*ones)&^w) & highs
		if marks == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(marks) / 8; b[i] == '"' {
			return i + 1, inside
		}
		break
	}
	return skipLong(b, i)
}

// skipLong returns the index after a string of which the beginning was scanned.
// Each byte is searched once for a quote, whatever is escaped between.
func skipLong(b []byte, i int) (int, where) {
	quote := i - 1
	for {
		if quote < i {
			if quote = bytes.IndexByte(b[i:], '"') + i; quote < i {
				quote = len(b)
			}
		}
		text := b[i:quote]
		if back := bytes.IndexByte(text, '\\'); back >= 0 {
			text = text[:back]
		}
		if hasControl(text) {
			return i, wrong
		}
		switch i += len(text); {
		case i == len(b):
			return i, cut
		case i == quote:
			return i + 1, inside
		}
		var at where
		if i, at = skipEscape(b, i+1); at != inside {
			return i, at
		}
	}
}

// hasControl reports bytes that have no place in a string (RFC 8259, section 7).
func hasControl(text []byte) bool {
	var marks uint64
	for ; len(text) >= 32; text = text[32:] {
		w, x := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])
		y, z := binary.LittleEndian.Uint64(text[16:]), binary.LittleEndian.Uint64(text[24:])
		marks |= (w-' '*ones)&^w | (x-' '*ones)&^x | (y-' '*ones)&^y | (z-' '*ones)&^z
	}
	for _, c := range text {
		if c < ' ' {
			return true
		}
	}
	return marks&highs != 0
}

// skipEscape returns the index after what follows a backslash.
func skipEscape(b []byte, i int) (int, where) {
	if i == len(b) {
		return i, cut
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, inside
	case 'u':
	default:
		return i, wrong
	}
	for n := 1; n <= 4; n++ {
		if i+n == len(b) {
			return i, cut
		}
		if c := b[i+n]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return i, wrong
		}
	}
	return i + 5, inside
}
