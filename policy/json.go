package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

var errShape = errors.New("policy: not a JSON object")

// fields splits a JSON object, names taken as they are: a struct decoder would
// accept READONLYHINT for readOnlyHint. A name given twice means one thing to
// one reader and another to the next, so twice names whether that happened.
func fields(raw []byte) (members map[string]json.RawMessage, twice bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false, errShape
	}
	members = make(map[string]json.RawMessage)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, false, err
		}
		key, ok := t.(string)
		if !ok {
			return nil, false, errShape
		}
		_, seen := members[key]
		twice = twice || seen
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false, err
		}
		members[key] = value
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, false, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, false, errShape
	}
	return members, twice, nil
}

// text decodes a JSON string; null and everything else is none.
func text(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// absent reports whether a member is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// sameID reports whether a JSON value is the id whose JSON text is id: 7 and "7"
// differ, "a" and "\u0061" do not.
func sameID(raw json.RawMessage, id string) bool {
	if len(raw) == 0 || id == "" {
		return false
	}
	a, aText := text(raw)
	b, bText := text(json.RawMessage(id))
	if aText && bText {
		return a == b
	}
	return string(raw) == id
}
