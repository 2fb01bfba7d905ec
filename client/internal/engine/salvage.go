package engine

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/segmentio/encoding/json"
)

// Salvaged is what can be told of a message that can't be read as a whole: it nests
// too deeply, or has a NaN or a raw control character in it, as some encoders write.
type Salvaged struct {
	ID, Method string // JSON texts; "" for none
	Answers    bool   // it has a result or an error
}

// Salvage looks at the outermost members of a message, without recursing and without
// judging what their values are.
func Salvage(frame []byte) (s Salvaged) {
	frame = bytes.TrimLeft(frame, " \t\r\n")
	if len(frame) == 0 || frame[0] != '{' {
		return s
	}
	depth := 0
	for i := 0; i < len(frame); i++ {
		switch frame[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := stringEnd(frame, i)
			value := bytes.TrimLeft(frame[end:], " \t\r\n")
			if depth == 1 && len(value) > 0 && value[0] == ':' {
				s.member(string(frame[i:end]), bytes.TrimLeft(value[1:], " \t\r\n"))
			}
			i = end - 1
		}
	}
	return s
}

// member notes one of the outermost members by its name and what begins with its
// value.
func (s *Salvaged) member(name string, value []byte) {
	switch name {
	case `"id"`:
		s.ID = scalar(value)
	case `"method"`:
		s.Method = scalar(value)
	case `"result"`:
		s.Answers = true
	case `"error"`:
		s.Answers = s.Answers || !bytes.HasPrefix(value, null)
	}
}

// stringEnd is the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(b))
}

// scalar is the string or the number that b begins with, or "".
func scalar(b []byte) string {
	if len(b) > 0 && b[0] == '"' {
		return string(b[:stringEnd(b, 0)])
	}
	return string(b[:len(b)-len(bytes.TrimLeft(b, "0123456789.eE+-"))])
}

// IDKey is the same for two ids, or progress tokens, that are one JSON value in
// different bytes: a peer that decodes and encodes them may spell them its own way.
func IDKey(raw []byte) string {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return "s" + s
		}
		return "s" + text
	}
	if strings.ContainsAny(text, ".eE") || text == "-0" {
		if n, ok := integer(text); ok {
			return "n" + strconv.FormatInt(n, 10)
		}
	}
	return "n" + text
}

// integer is the whole number that a number's text means, however it is written, as
// far as every reader of JSON is exact.
func integer(text string) (int64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return 0, false
	}
	return int64(f), true
}
