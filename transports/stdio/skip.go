package stdio

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/respawn-mcp/respawn/transports"
)

const (
	// sampleMax is how much of a noise line its event shows.
	sampleMax = 120
	// skipHead and skipTail are how much of a dropped line is looked at for the
	// id: implementations write it before the result or as the last member.
	skipHead = 4 << 10
	skipTail = 256
)

// skip counts a line that is dropped, and keeps its two ends to tell which
// request it answered: that caller need not wait for its deadline.
type skip struct {
	bytes      int
	head, tail []byte
}

// add drops a part of the line.
func (s *skip) add(part []byte) {
	s.bytes += len(part)
	s.head = append(s.head, part[:min(len(part), skipHead-len(s.head))]...)
	s.tail = append(s.tail, part[max(0, len(part)-skipTail):]...)
	s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-skipTail):]...)
}

// noise reports the line, with its newline bytes, and makes s ready for another.
func (s *skip) noise(newline int) transports.Noise {
	n := transports.Noise{Bytes: s.bytes + newline, Sample: sample(s.head)}
	answer, id := readHead(s.head)
	if m := lastID.FindSubmatch(s.tail); answer && id == "" && m != nil {
		id = string(m[1])
	}
	if answer {
		n.ID = id
	}
	s.bytes, s.head, s.tail = 0, s.head[:0], s.tail[:0]
	return n
}

// lastID matches an id among the last members of an object. In valid JSON these
// quotes can't be inside a string, and the last brace is the outermost.
var lastID = regexp.MustCompile(`,\s*"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)

// readHead walks the members of a message that was cut short. A request of the
// peer has a method or params where an answer has its result, and its ids are
// its own.
func readHead(head []byte) (answer bool, id string) {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(head, bom)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false, ""
	}
	for {
		key, err := dec.Token()
		if err != nil {
			return false, ""
		}
		switch key {
		case "result", "error":
			return true, id
		case "id":
			var raw json.RawMessage
			if dec.Decode(&raw) != nil {
				return false, ""
			}
			id = string(raw)
		case "jsonrpc":
			var version string
			if dec.Decode(&version) != nil {
				return false, ""
			}
		default:
			return false, ""
		}
	}
}

func sample(line []byte) string {
	// An escape sequence or a replaced byte may make it shorter, or longer.
	return sanitize(line[:min(len(line), 4*sampleMax)], sampleMax)
}
