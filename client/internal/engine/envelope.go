package engine

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/segmentio/encoding/json"
)

// maxDepth is how deeply a frame may nest. The parser recurses, and a Go stack
// overflow can't be recovered, so a line of 2 MiB of "[" must not reach it. No
// real message comes near; the official SDK stops at 1,000.
const maxDepth = 1024

// Envelope is the part of a message that the engine reads. The values are spans
// of the frame.
type Envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// MessageKind is what a message is.
type MessageKind uint8

const (
	Malformed    MessageKind = iota // no JSON-RPC message
	Response                        // an answer
	Notification                    // a request without an id
	AskedFor                        // a request
)

var (
	errDepth    = errors.New("nested too deeply")
	errTrailing = errors.New("bytes after the message")
)

// Parse reads an Envelope without copying. Field names match by case.
func Parse(frame []byte, env *Envelope) error {
	if TooDeep(frame) {
		return errDepth
	}
	rest, err := json.Parse(frame, env, json.ZeroCopy|json.DontMatchCaseInsensitiveStructFields)
	if err != nil {
		return err
	}
	if len(bytes.TrimLeft(rest, " \t\r\n")) != 0 {
		return errTrailing
	}
	return nil
}

// Decode reads a value that came over the wire. Field names match by case: what
// is read here must be what the peer reads.
func Decode(raw []byte, v any) error {
	rest, err := json.Parse(raw, v, json.DontMatchCaseInsensitiveStructFields)
	if err == nil && len(rest) != 0 {
		err = errTrailing
	}
	return err
}

// ParseBatch takes apart an array of messages, without copying.
func ParseBatch(frame []byte) (batch []json.RawMessage, err error) {
	if TooDeep(frame) {
		return nil, errDepth
	}
	rest, err := json.Parse(frame, &batch, json.ZeroCopy)
	if err == nil && len(bytes.TrimLeft(rest, " \t\r\n")) != 0 {
		err = errTrailing
	}
	return batch, err
}

// Kind says what a parsed message is. A null id is no id (JSON-RPC 2.0, section
// 5); both a result and an error, or neither, is no answer.
func (env *Envelope) Kind() MessageKind {
	if env.Version != "2.0" {
		return Malformed
	}
	hasID := len(env.ID) > 0 && !bytes.Equal(env.ID, null)
	switch {
	case env.Method != nil && hasID:
		return AskedFor
	case env.Method != nil:
		return Notification
	case hasID && env.settles():
		return Response
	}
	return Malformed
}

// settles reports whether it has what an answer has, a result or an error.
func (env *Envelope) settles() bool {
	hasError := len(env.Error) > 0 && !bytes.Equal(env.Error, null)
	hasResult := len(env.Result) > 0 && !(hasError && bytes.Equal(env.Result, null))
	return hasResult != hasError
}

// orphan reports an answer whose id is null or missing. JSON-RPC 2.0 knows only
// errors of that kind, for a request whose id could not be read.
func (env *Envelope) orphan() bool {
	return env.Version == "2.0" && env.Method == nil && env.settles() &&
		(len(env.ID) == 0 || bytes.Equal(env.ID, null))
}

var null = []byte("null")

// TooDeep reports nesting beyond maxDepth. Counting the openers first is fast
// and almost always enough; only then are strings told apart.
func TooDeep(b []byte) bool {
	if bytes.Count(b, []byte{'{'})+bytes.Count(b, []byte{'['}) <= maxDepth {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Splice returns a copy of frame in which span, a part of it, reads text.
func Splice(frame, span []byte, text string) []byte {
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(span))) - uintptr(unsafe.Pointer(unsafe.SliceData(frame))))
	out := make([]byte, 0, len(frame)-len(span)+len(text))
	out = append(append(out, frame[:at]...), text...)
	return append(out, frame[at+len(span):]...)
}
