package streamable

import (
	"encoding/base64"
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
func checkHeader(name, value string) *HeaderError {
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

// headers are what one exchange sends beside its session and its credentials.
func (s *shared) headers(out *transports.Outbound) (http.Header, error) {
	h := s.base.Clone()
	if h == nil {
		h = http.Header{}
	}
	for name, values := range out.Header {
		name = http.CanonicalHeaderKey(name)
		vs := make([]string, len(values))
		for i, v := range values {
			if strings.HasPrefix(name, headerParam) {
				v = encode(v)
			}
			if err := checkHeader(name, v); err != nil {
				return nil, err
			}
			vs[i] = v
		}
		h[name] = vs
	}
	modern := isModern(out)
	delete(h, headerLastID)
	if out.Op == transports.OpMessage {
		h["Accept"] = []string{"application/json, text/event-stream"}
		h["Content-Type"] = []string{"application/json"}
	} else {
		if modern {
			return nil, ErrNoStream
		}
		h["Accept"] = []string{"text/event-stream"}
		delete(h, "Content-Type")
		if out.LastID != "" {
			if err := checkHeader(headerLastID, out.LastID); err != nil {
				return nil, err
			}
			h[headerLastID] = []string{out.LastID}
		}
	}
	delete(h, headerMethod)
	delete(h, headerName)
	if modern && out.Method != "" {
		if err := checkHeader(headerMethod, out.Method); err != nil {
			return nil, err
		}
		h[headerMethod] = []string{out.Method}
		if out.Name != "" && named(out.Method) {
			h[headerName] = []string{encode(out.Name)}
		}
	}
	if modern || out.Method == methodInitialize {
		delete(h, headerSession) // a user's own, too
	}
	return h, nil
}
