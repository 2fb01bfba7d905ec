package policy

import (
	"encoding/json"
	"maps"
)

// Evidence is what a peer's own tools/list says about running a tool twice. It
// is a value: Add returns a new one and never changes the old. The zero value
// has seen no listing and grants nothing; go back to it on a new incarnation and
// on tools/list_changed, and give Add no answer to a request older than that.
//
// The specification calls annotations untrusted unless the server is trusted
// (2026-07-28 server/tools); [Loss].DistrustAnnotations is for those who do not.
type Evidence struct {
	tools map[string]bool // the latest complete listing; nil: there was none
	pages map[string]bool // the listing under way; nil: there is none
	next  string          // the cursor that continues it
}

// maxTools bounds what a listing that never ends makes us remember. No server
// offers more tools than this, and a listing that does gives no evidence.
const maxTools = 1 << 14

// Grants reports whether the latest complete listing says that running tool
// twice does no harm: readOnlyHint or idempotentHint is the JSON true, the hints
// do not contradict each other, and every entry of that name says so.
func (e Evidence) Grants(tool string) bool { return e.tools[tool] }

// Add takes the params and the result of one answered tools/list request. A page
// asked for without a cursor begins a listing, one asked for with the cursor
// that the page before gave continues it, any other belongs to no listing under
// way. The listing replaces the evidence once a page without nextCursor ends it;
// until then, and if a page is malformed, the old evidence stays.
func (e Evidence) Add(params, result json.RawMessage) Evidence {
	cursor, continued, ok := cursorOf(parse(params))
	if !ok || continued && (e.pages == nil || cursor != e.next) {
		return e
	}
	gathered := map[string]bool{}
	if continued {
		gathered = maps.Clone(e.pages)
	}
	next, more, ok := addPage(gathered, parse(result))
	switch {
	case !ok || len(gathered) > maxTools:
		return Evidence{tools: e.tools}
	case more:
		return Evidence{tools: e.tools, pages: gathered, next: next}
	default:
		return Evidence{tools: gathered}
	}
}

// cursorOf reads the cursor of a request. An empty string is a valid cursor
// (2026-07-28 server/utilities/pagination); missing and null mean none.
func cursorOf(params json.RawMessage) (cursor string, present, ok bool) {
	if absent(params) {
		return "", false, true
	}
	members, ok := fields(params)
	if !ok || absent(members["cursor"]) {
		return "", false, ok
	}
	cursor, ok = text(members["cursor"])
	return cursor, ok, ok
}

// addPage adds the tools of one result to a listing.
func addPage(gathered map[string]bool, result json.RawMessage) (next string, more, ok bool) {
	page, ok := fields(result)
	tools, listed := elements(page["tools"])
	if !ok || !listed {
		return "", false, false
	}
	for _, tool := range tools {
		name, grants := entry(tool)
		before, seen := gathered[name]
		gathered[name] = grants && (before || !seen) // entries of one name must all grant
	}
	if absent(page["nextCursor"]) {
		return "", false, true
	}
	next, more = text(page["nextCursor"])
	return next, more, more
}

// entry reads one entry of a listing. One without a readable name grants the
// tool "" nothing, which no peer offers.
func entry(v json.RawMessage) (name string, grants bool) {
	tool, ok := fields(v)
	name, named := text(tool["name"])
	if !ok || !named {
		return name, false
	}
	hints, ok := fields(tool["annotations"])
	readOnly, ok1 := hint(hints["readOnlyHint"])
	idempotent, ok2 := hint(hints["idempotentHint"])
	destructive, ok3 := hint(hints["destructiveHint"])
	contradiction := readOnly && destructive
	return name, ok && ok1 && ok2 && ok3 && (readOnly || idempotent) && !contradiction
}

// hint reads a JSON boolean. A missing hint is false, which for destructiveHint
// is not its default but all that the contradiction asks for; anything that is
// no boolean makes the entry malformed.
func hint(raw json.RawMessage) (set, ok bool) {
	switch string(raw) {
	case "true":
		return true, true
	case "false", "":
		return false, true
	}
	return false, false
}
