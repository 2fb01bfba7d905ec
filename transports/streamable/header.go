package streamable

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strings"

	"github.com/respawn-mcp/respawn/transports"
)

// The protocol's headers, in the spelling of net/http; case has no meaning
// (2026-07-28, Case Sensitivity).
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-" // and the parameter's name
	headerLastID  = "Last-Event-Id"
)

// firstModern is the first version without sessions. Versions are dates, so they
// compare as text.
const firstModern = "2026-07-28"

const methodInitialize = "initialize"

// isModern says the era of a message from the version that the protocol layer
// put on it.
func isModern(out *transports.Outbound) bool {
	return out.Method != methodInitialize && out.Header.Get(headerVersion) >= firstModern
}

// named are the methods whose Mcp-Name is required (2026-07-28, Standard Request
// Headers). No other has one: a server would find it in no field of the body.
func named(method string) bool {
	switch method {
	case "tools/call", "resources/read", "prompts/get":
		return true
	}
	return false
}

const sentinelStart, sentinelEnd = "=?base64?", "?="

// encode makes any text a header value (2026-07-28, Value Encoding).
func encode(v string) string {
	if isPlain(v) {
		return v
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(v)) + sentinelEnd
}

// isPlain reports whether a value means itself: visible ASCII, spaces and tabs
// inside, and no look of an encoded value.
func isPlain(v string) bool {
	for i := range len(v) {
		if c := v[i]; c > '~' || c < ' ' && c != '\t' {
			return false
		}
	}
	return strings.Trim(v, " \t") == v &&
		!(strings.HasPrefix(v, sentinelStart) && strings.HasSuffix(v, sentinelEnd))
}

// checkHeader refuses what net/http would, but before a request is begun, and
// with it any CR or LF.
func checkHeader(name, value string) error {
	if !isToken(name) {
		return &HeaderError{Name: name, Why: "is no header name"}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return &HeaderError{Name: name, Why: "has a control character in its value"}
		}
	}
	return nil
}

// isToken is RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// The values that never change are shared by all requests: nobody writes to them.
var (
	acceptAnswer = []string{"application/json, text/event-stream"}
	acceptStream = []string{"text/event-stream"}
	contentJSON  = []string{"application/json"}
)

// ownHeaders is how many headers a request has beside those of the user and of
// the protocol layer.
const ownHeaders = 6

// headers are what one exchange sends beside its session and its credentials.
func (s *shared) headers(out *transports.Outbound) (http.Header, error) {
	h := make(http.Header, len(s.base)+len(out.Header)+ownHeaders)
	maps.Copy(h, s.base)
	for name, values := range out.Header {
		name = http.CanonicalHeaderKey(name)
		if strings.HasPrefix(name, headerParam) {
			values = encodeAll(values)
		}
		for _, v := range values {
			if err := checkHeader(name, v); err != nil {
				return nil, err
			}
		}
		h[name] = values
	}
	modern := isModern(out)
	var err error
	if out.Op == transports.OpMessage {
		err = postHeaders(h, out, modern)
	} else {
		err = getHeaders(h, out, modern)
	}
	if modern || out.Method == methodInitialize {
		delete(h, headerSession) // a user's own, too
	}
	return h, err
}

func encodeAll(values []string) []string {
	encoded := make([]string, len(values))
	for i, v := range values {
		encoded[i] = encode(v)
	}
	return encoded
}

func postHeaders(h http.Header, out *transports.Outbound, modern bool) error {
	h["Accept"], h["Content-Type"] = acceptAnswer, contentJSON
	for _, name := range [...]string{headerMethod, headerName, headerLastID} {
		delete(h, name)
	}
	if !modern || out.Method == "" {
		return nil
	}
	if err := checkHeader(headerMethod, out.Method); err != nil {
		return err
	}
	h[headerMethod] = []string{out.Method}
	if out.Name != "" && named(out.Method) {
		h[headerName] = []string{encode(out.Name)}
	}
	return nil
}

func getHeaders(h http.Header, out *transports.Outbound, modern bool) error {
	if modern {
		return ErrNoStream
	}
	h["Accept"] = acceptStream
	for _, name := range [...]string{"Content-Type", headerMethod, headerName, headerLastID} {
		delete(h, name)
	}
	if out.LastID == "" {
		return nil
	}
	if err := checkHeader(headerLastID, out.LastID); err != nil {
		return err
	}
	h[headerLastID] = []string{out.LastID}
	return nil
}
