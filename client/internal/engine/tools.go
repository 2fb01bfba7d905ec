package engine

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

const (
	methodCallTool  = "tools/call"
	methodListTools = "tools/list"
)

// evidence is what the peer's tools/list says of its tools: which may run twice,
// and which parameters are mirrored into headers. It is learned from the frames,
// whoever asked for them.
type evidence struct {
	mu       sync.Mutex
	gate     policy.Evidence
	epoch    uint64 // moves when a listing is stale, so that an older one is not believed
	bindings map[string][]binding
}

// binding is one parameter of a tool that goes into a header (2026-07-28,
// streamable-http, Custom Headers from Tool Parameters).
type binding struct {
	header string   // Mcp-Param-…
	path   []string // of properties, from the root of the arguments
}

func (v *evidence) grants(tool string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gate.Grants(tool)
}

// forget drops what a list_changed makes stale. Bindings stay until they are listed
// again: a wrong one is refused before anything runs.
func (v *evidence) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gate = policy.Evidence{}
	v.epoch++
}

// renew drops all that an earlier incarnation said.
func (v *evidence) renew() {
	v.forget()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bindings = nil
}

func (v *evidence) now() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epoch
}

// learnTools learns from an answered tools/list, and leaves out of it the tools
// whose header annotations are invalid, as a client must (same section, Schema
// Extension).
func (e *Engine) learnTools(inc *incarnation, c *call, reply *Reply) {
	if reply.Err != nil {
		return
	}
	v := &e.evidence
	v.mu.Lock()
	if c.epoch == v.epoch {
		v.gate = v.gate.Add(c.Params, reply.Result)
	}
	v.mu.Unlock()
	if Era(inc.speaks.Load()) != Modern {
		return
	}
	var page struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if Decode(reply.Result, &page) != nil {
		return
	}
	var kept []json.RawMessage
	for _, raw := range page.Tools {
		var tool struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"inputSchema"`
		}
		if Decode(raw, &tool) != nil {
			kept = append(kept, raw)
			continue
		}
		bindings, err := bindingsOf(tool.Schema)
		if err != nil {
			e.log(slog.LevelWarn, "a tool is left out: its x-mcp-header annotations are invalid", "tool", tool.Name, "why", err)
			continue
		}
		kept = append(kept, raw)
		if !inc.leaving.Load() {
			v.bind(tool.Name, bindings)
		}
	}
	if e.Open == nil && len(kept) < len(page.Tools) {
		reply.Result = withTools(reply.Result, kept)
	}
}

func (v *evidence) bind(tool string, b []binding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bindings == nil {
		v.bindings = map[string][]binding{}
	}
	if len(b) == 0 {
		delete(v.bindings, tool)
		return
	}
	v.bindings[tool] = b
}

// withTools is a listing with other tools; everything else stays.
func withTools(result json.RawMessage, tools []json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(result, &fields) != nil {
		return result
	}
	list := []byte("[")
	for i, t := range tools {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, t...)
	}
	fields["tools"] = append(list, ']')
	return appendObject(nil, fields)
}

// mirror adds the headers of a tool call's parameters. The transport encodes the
// values.
func (v *evidence) mirror(h http.Header, tool string, params json.RawMessage) {
	v.mu.Lock()
	bindings := v.bindings[tool]
	v.mu.Unlock()
	if len(bindings) == 0 {
		return
	}
	var p struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	if Decode(params, &p) != nil {
		return
	}
	for _, b := range bindings {
		if value, ok := at(p.Arguments, b.path); ok {
			h.Set(b.header, value)
		}
	}
}

// at reads a primitive value by its path as header text. Integers keep their
// digits.
func at(raw json.RawMessage, path []string) (string, bool) {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return "", false
		}
		if raw = object[key]; raw == nil {
			return "", false
		}
	}
	switch text := strings.TrimSpace(string(raw)); {
	case text == "" || text == "null" || text[0] == '{' || text[0] == '[':
		return "", false
	case text[0] == '"':
		var s string
		return s, json.Unmarshal(raw, &s) == nil
	case text == "true" || text == "false":
		return text, true
	default:
		return decimal(text)
	}
}

// decimal spells an integer in decimal digits: 4.2e1 is 42.
func decimal(text string) (string, bool) {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", false
	}
	return strconv.FormatFloat(f, 'f', -1, 64), true
}

// evRelisted: a tools/list that a header mismatch asked for is over.
type evRelisted struct {
	call *call // the tool call that was refused
	ev   transports.Rejected
	list *call
}

// headerMismatch takes a refusal for wrong Mcp-Param headers: the tool's schema
// may have changed, so it is listed again and the call sent again, once (same
// section, Client Behavior). It reports whether that is so.
func (e *Engine) headerMismatch(inc *incarnation, c *call, ev transports.Rejected) bool {
	if c.Method != methodCallTool || c.relisted || inc.retired || Era(inc.speaks.Load()) != Modern {
		return false
	}
	reply, ok := replyIn(c, ev)
	if !ok || reply.Err.Code != codeHeaderMismatch {
		return false
	}
	e.calls.mu.Lock()
	c.relisted, c.unsent = true, true // a refusal for its headers: it did not run
	e.calls.mu.Unlock()
	e.relist(inc, c, ev, "")
	return true
}

// relist asks for a page of tools.
func (e *Engine) relist(inc *incarnation, c *call, ev transports.Rejected, cursor string) {
	list := &call{Request: Request{Method: methodListTools, Idle: e.RequestTimeout}, probe: true, done: make(chan struct{})}
	if cursor != "" {
		list.Params = object("cursor", appendString(nil, cursor))
	}
	list.then = evRelisted{c, ev, list}
	e.giveTo(inc, list)
}

// relisted goes on with the next page, or sends the call again.
func (e *Engine) relisted(ev evRelisted) {
	c, t := ev.call, e.calls
	if ev.list.err() == nil {
		var page struct {
			Next string `json:"nextCursor"`
		}
		if Decode(ev.list.reply.Result, &page) == nil && page.Next != "" && c.pages < maxPages {
			c.pages++
			e.relist(ev.list.inc, c, ev.ev, page.Next)
			return
		}
	}
	t.mu.Lock()
	if t.byRef[ev.ev.Ref] != c {
		t.mu.Unlock()
		return
	}
	if ev.list.err() != nil {
		t.mu.Unlock()
		e.refuse(c, ev.ev)
		return
	}
	e.again(c, nil, policy.ResendNewID, &Failure{Kind: KindNotServing, Cause: errHeldFull})
}

// maxPages bounds the listing that a mismatch asks for.
const maxPages = 100

// plain reports whether no reader can take another name for the tool's: it is
// named once, and by no spelling that some readers match, too.
func (c *call) plain() bool {
	return once(c.Params, "name") && (c.Frame == nil || once(c.Frame, "params"))
}

// once reports whether an object has one member that any reader takes for key.
func once(object json.RawMessage, key string) bool {
	n := 0
	for t := json.NewTokenizer(object); t.Next(); {
		if t.Depth == 1 && t.IsKey && strings.EqualFold(string(t.Value.Unquote()), key) {
			n++
		}
	}
	return n == 1
}

// nameOf is params.name or params.uri, for the methods that have one (same
// section, Standard Request Headers).
func nameOf(method string, params json.RawMessage) string {
	var p struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	switch method {
	case methodCallTool, "prompts/get":
		_ = Decode(params, &p) // what has no name sends none
		return p.Name
	case "resources/read":
		_ = Decode(params, &p)
		return p.URI
	}
	return ""
}
