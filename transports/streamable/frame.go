package streamable

import (
	"bytes"
	"strconv"
	"strings"
)

// kind is what a frame is, as far as an exchange must know: whether it is over.
type kind uint8

const (
	notJSON    kind = iota // no JSON object
	unfinished             // the beginning of one
	other                  // an object that is no answer
	result                 // a JSON-RPC response with a result
	failure                // a JSON-RPC response with an error
)

func (k kind) answers() bool { return k >= result }

// classify says what a frame is, and the text of the id it names, "" for none.
// It walks the members of the object and steps over their values without looking
// into them: that is the business of whoever receives the frame.
func classify(frame []byte) (k kind, id []byte) {
	k = walk(frame, &id)
	return k, id
}

func walk(frame []byte, id *[]byte) kind {
	i := space(frame, 0)
	if i == len(frame) {
		return unfinished
	}
	if frame[i] != '{' {
		return notJSON
	}
	var version, method, hasResult, hasError bool
	i = space(frame, i+1)
	if i < len(frame) && frame[i] == '}' {
		return end(frame, i+1, other)
	}
	for {
		if i = space(frame, i); i == len(frame) {
			return unfinished
		}
		if frame[i] != '"' {
			return notJSON
		}
		after := skipString(frame, i)
		if after < 0 {
			return unfinished
		}
		key := frame[i+1 : after-1]
		if i = space(frame, after); i == len(frame) {
			return unfinished
		}
		if frame[i] != ':' {
			return notJSON
		}
		i = space(frame, i+1)
		after, ok := skipValue(frame, i)
		if !ok {
			return notJSON
		}
		if after < 0 {
			return unfinished
		}
		value := frame[i:after]
		switch string(key) {
		case "jsonrpc":
			version = string(value) == `"2.0"`
		case "id":
			*id = value
		case "method":
			method = true
		case "result":
			hasResult = true
		case "error":
			hasError = string(value) != "null"
		}
		if i = space(frame, after); i == len(frame) {
			return unfinished
		}
		switch frame[i] {
		case ',':
			i++
			continue
		case '}':
		default:
			return notJSON
		}
		switch {
		case !version || method:
			return end(frame, i+1, other)
		case hasError:
			return end(frame, i+1, failure)
		case hasResult:
			return end(frame, i+1, result)
		}
		return end(frame, i+1, other)
	}
}

// otherID reports whether an answer names a request for certain that is not the
// one it came for. No id, null, 0 and the same number in another spelling are
// defects of servers that answered: who else could be meant on this exchange.
func otherID(got []byte, want string) bool {
	switch text := string(got); text {
	case want, "", "null", "0":
		return false
	default:
		if want == "" { // it was not said
			return false
		}
		a, b := strings.Trim(text, `"`), strings.Trim(want, `"`)
		if a == b {
			return false
		}
		x, err := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		return err != nil || err2 != nil || x != y
	}
}

// end is k if nothing but white space follows.
func end(frame []byte, i int, k kind) kind {
	if space(frame, i) < len(frame) {
		return notJSON
	}
	return k
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, or -1.
func skipString(b []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n + 1
		// The quote is part of the string after an odd number of backslashes.
		back := 0
		for back < n && b[i-2-back] == '\\' {
			back++
		}
		if back%2 == 0 {
			return i
		}
	}
}

// skipValue returns the index after the value that begins at i: -1 if it has no
// end, and false if it is none.
func skipValue(b []byte, i int) (after int, ok bool) {
	if i == len(b) {
		return -1, true
	}
	switch b[i] {
	case '"':
		return skipString(b, i), true
	case '{', '[':
		return skipNested(b, i), true
	}
	from := i
	for i < len(b) {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
			i++
			continue
		}
		return i, i > from
	}
	return -1, true
}

// skipNested counts brackets of both kinds together.
func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}
