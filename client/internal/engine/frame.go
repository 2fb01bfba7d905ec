package engine

import (
	"bytes"
	"errors"
	"sort"
	"strconv"

	"github.com/segmentio/encoding/json"
)

// The _meta fields that every modern request carries (2026-07-28, basic/index,
// Per-request protocol fields).
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaInfo         = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
)

var errParams = errors.New("params must be a JSON object")

// modernMeta is the inside of the _meta object of one incarnation's requests.
func modernMeta(h Hello, version string) []byte {
	b := appendField(nil, metaVersion, appendString(nil, version))
	if len(h.Info) > 0 {
		b = appendField(b, metaInfo, h.Info)
	}
	return appendField(b, metaCapabilities, h.Capabilities)
}

func appendField(b []byte, key string, value []byte) []byte {
	if len(b) > 0 {
		b = append(b, ',')
	}
	b = append(appendString(b, key), ':')
	return append(b, value...)
}

func appendString(b []byte, s string) []byte {
	b, _ = json.Append(b, s, 0) // a string always encodes
	return b
}

// appendFrame appends one message. id is "" for a notification; meta is what the
// incarnation adds to params._meta, and token the progress token, "" for none.
func appendFrame(b []byte, id, method string, params json.RawMessage, meta []byte, token string) ([]byte, error) {
	b = append(b, `{"jsonrpc":"2.0",`...)
	if id != "" {
		b = append(append(append(b, `"id":`...), id...), ',')
	}
	b = appendString(append(b, `"method":`...), method)
	params = bytes.TrimSpace(params)
	if len(params) == 0 || bytes.Equal(params, null) {
		if id == "" && len(meta) == 0 {
			return append(b, '}'), nil
		}
		params = []byte("{}")
	}
	b = append(b, `,"params":`...)
	if params[0] != '{' {
		return nil, errParams
	}
	if token != "" {
		meta = appendField(meta[:len(meta):len(meta)], "progressToken", []byte(token))
	}
	var err error
	switch {
	case len(meta) == 0:
		b = append(b, params...)
	case !bytes.Contains(params, []byte(`_meta"`)):
		b = append(append(append(b, `{"_meta":{`...), meta...), '}')
		if rest := bytes.TrimLeft(params[1:], " \t\r\n"); rest[0] != '}' {
			b = append(append(b, ','), rest...)
		} else {
			b = append(b, '}')
		}
	default:
		b, err = appendMerged(b, params, meta)
	}
	return append(b, '}'), err
}

// appendMerged appends params whose own _meta is kept but for the keys in meta.
func appendMerged(b []byte, params, meta []byte) ([]byte, error) {
	var fields, own, ours map[string]json.RawMessage
	if err := json.Unmarshal(params, &fields); err != nil {
		return nil, err
	}
	if raw, ok := fields["_meta"]; ok {
		if err := json.Unmarshal(raw, &own); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(append(append([]byte{'{'}, meta...), '}'), &ours); err != nil {
		return nil, err
	}
	if own == nil {
		own = ours
	}
	for key, value := range ours {
		own[key] = value
	}
	fields["_meta"] = appendObject(nil, own)
	return appendObject(b, fields), nil
}

func appendObject(b []byte, fields map[string]json.RawMessage) []byte {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendString(b, key), ':'), fields[key]...)
	}
	return append(b, '}')
}

// appendReply appends the answer to a request of the peer.
func appendReply(b []byte, id json.RawMessage, a Answer) ([]byte, error) {
	b = append(append(append(b, `{"jsonrpc":"2.0","id":`...), id...), ',')
	if a.Err != nil {
		raw, err := json.Marshal(a.Err)
		return append(append(append(b, `"error":`...), raw...), '}'), err
	}
	if len(a.Result) == 0 {
		a.Result = []byte("{}")
	}
	return append(append(append(b, `"result":`...), a.Result...), '}'), nil
}

// cancelled is the notification that ends the peer's interest in a request.
func cancelled(id string, reason string) []byte {
	params := appendField(appendField([]byte{}, "requestId", []byte(id)), "reason", appendString(nil, reason))
	b := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{`)
	return append(append(b, params...), "}}"...)
}

// traits reports what the retry rules ask of a request's params: whether it
// continues a multi-round-trip request (2026-07-28, patterns/mrtr), and whether
// it asks for a page of a listing after the first.
func traits(params json.RawMessage) (continuation, cursor bool) {
	if len(params) == 0 {
		return false, false
	}
	var p struct {
		Responses json.RawMessage `json:"inputResponses"`
		State     json.RawMessage `json:"requestState"`
		Cursor    json.RawMessage `json:"cursor"`
	}
	if _, err := json.Parse(params, &p, json.ZeroCopy|json.DontMatchCaseInsensitiveStructFields); err != nil {
		return true, true // unreadable: what allows less
	}
	return p.Responses != nil || p.State != nil, p.Cursor != nil
}

func idText(n uint64) string { return strconv.FormatUint(n, 10) }
