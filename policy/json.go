package policy

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// A listing may be megabytes of schemas of which a few hints are wanted, so
// these functions find spans and decode nothing else: encoding/json checks the
// whole text once, and what it called valid is walked without further checks.
// Names are compared as they are; a struct decoder would take READONLYHINT for
// readOnlyHint.

// parse checks a text from outside. What is not valid JSON becomes null.
func parse(text []byte) json.RawMessage {
	if !json.Valid(text) {
		return nil
	}
	return bytes.TrimSpace(text)
}

// fields splits a valid JSON value into the members of an object; ok is false
// if it is none, or if it names a member twice, which means one thing to one
// reader and another to the next. The members found are returned all the same.
func fields(v json.RawMessage) (members map[string]json.RawMessage, ok bool) {
	if len(v) == 0 || v[0] != '{' {
		return nil, false
	}
	members, ok = map[string]json.RawMessage{}, true
	for i := gap(v, 1); v[i] != '}'; {
		key, end := span(v, i)
		name, _ := text(key)
		value, end := span(v, gap(v, end+1)) // gap stops at the colon
		_, seen := members[name]
		ok = ok && !seen
		members[name] = value
		i = end
	}
	return members, ok
}

// elements splits a valid JSON value into the elements of an array; ok is false
// if it is none.
func elements(v json.RawMessage) (values []json.RawMessage, ok bool) {
	if len(v) == 0 || v[0] != '[' {
		return nil, false
	}
	for i := gap(v, 1); v[i] != ']'; {
		var value json.RawMessage
		value, i = span(v, i)
		values = append(values, value)
	}
	return values, true
}

// gap skips white space and a comma from i.
func gap(v json.RawMessage, i int) int {
	for v[i] == ' ' || v[i] == '\t' || v[i] == '\n' || v[i] == '\r' || v[i] == ',' {
		i++
	}
	return i
}

// span is the value that begins at i, and the position of what follows it: the
// next value, or a colon or a closing bracket.
func span(v json.RawMessage, i int) (value json.RawMessage, next int) {
	begin, depth := i, 0
	for {
		switch v[i] {
		case '"':
			for i++; v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 && (v[i-1] == '"' || v[i-1] == '}' || v[i-1] == ']' || ends(v[i])) {
			return v[begin:i], gap(v, i)
		}
	}
}

// ends reports whether a byte can't be part of a number or a literal.
func ends(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', ',', ':', '}', ']':
		return true
	}
	return false
}

// text decodes a JSON string; null and everything else is none.
func text(v json.RawMessage) (s string, ok bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(v, &s) == nil
}

// absent reports whether a member is missing or null.
func absent(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// sameID reports whether a JSON value is the id whose JSON text is id: 7 and "7"
// differ, "a" and "\u0061" do not.
func sameID(v json.RawMessage, id string) bool {
	if len(v) == 0 || id == "" {
		return false
	}
	a, aText := text(v)
	b, bText := text(json.RawMessage(id))
	if aText && bText {
		return a == b
	}
	return string(v) == id
}

// meansID is sameID for peers that echo an id in another type: 7, "7" and 7.0 are
// one.
func meansID(v json.RawMessage, id string) bool {
	if sameID(v, id) {
		return true
	}
	a, errA := number(v)
	b, errB := number(json.RawMessage(id))
	return errA == nil && errB == nil && a == b
}

// number reads a number, or the text of one.
func number(v json.RawMessage) (float64, error) {
	s, ok := text(v)
	if !ok {
		s = string(v)
	}
	return strconv.ParseFloat(s, 64)
}
