package relay

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// The codes of the errors that the relay itself answers with. They are outside the
// ranges that JSON-RPC, the specification and the known SDKs use, so that nobody
// takes one for the server's (2026-07-28, basic/index, Error codes).
const (
	CodeOutcomeUnknown = -31001 // the request may have run
	CodeNotDelivered   = -31002 // the request provably never ran
	CodeGaveUp         = -31003 // no server will follow; data.outcome says the rest
)

// ErrorData is the data of such an error.
type ErrorData struct {
	Outcome    string `json:"outcome"`              // "unknown" or "not executed"
	Generation uint64 `json:"generation,omitempty"` // the server's life that had the request last; 0: none
	Cause      string `json:"cause,omitempty"`
	ExitCode   *int   `json:"exitCode,omitempty"` // of the server's process, if it is known
	Attempt    int    `json:"attempt"`            // how often the request was sent
}

// failure composes the answer to a request that got none. The message is written
// for the model that will read it.
func (r *Relay) failure(m *message, f *engine.Failure) []byte {
	data := ErrorData{Outcome: "unknown", Generation: f.Gen, Attempt: f.Attempts}
	if f.Cause != nil {
		data.Cause = f.Cause.Error()
	}
	if exit := exitCoder(nil); errors.As(f.Cause, &exit) && exit.ExitCode() >= 0 {
		code := exit.ExitCode()
		data.ExitCode = &code
	}
	code, advice := CodeOutcomeUnknown, "The call may have taken effect: check before you make it again."
	if f.Outcome == engine.NotExecuted {
		data.Outcome = "not executed"
		code, advice = CodeNotDelivered, "The call did not run: making it again is safe."
	}
	if m.method == methodInitialize || m.method == methodDiscover {
		advice = "Nothing was agreed on: making it again is safe."
	}
	what := "the MCP server %q went away before it answered %s."
	switch {
	case f.Kind == engine.KindExhausted || f.Kind == engine.KindClosed || r.engine.State().Terminal():
		code, what = CodeGaveUp, "the MCP server %q went away and is not started again; %s got no answer."
	case f.Kind == engine.KindNotServing && !f.RetryAt.IsZero():
		what = "the MCP server %q is down and not tried again for " +
			f.RetryAt.Sub(r.cfg.Clock.Now()).Round(time.Second).String() + "; it was not sent %s."
	case f.Kind == engine.KindNotServing && f.After == 0: // it was not held
		what = "too many requests wait for the MCP server %q already; %s is not held too."
	case f.Kind == engine.KindNotServing && r.posts:
		what = "the MCP server %q could not be reached in time for %s."
	case f.Kind == engine.KindNotServing:
		what = "the MCP server %q is being restarted and did not come back in time for %s."
	case f.Kind == engine.KindUnreachable:
		what = "the MCP server %q could not be reached for %s."
	case f.Kind == engine.KindRejected || f.Kind == engine.KindSession:
		what = "the MCP server %q refused %s by HTTP."
		if refusal := new(engine.RejectedError); errors.As(f.Cause, &refusal) {
			what = "the MCP server %q refused %s by HTTP (status " + strconv.Itoa(refusal.Status) + ")."
			if refusal.Status/100 == 2 {
				what = "what the MCP server %q sent for %s is no answer (HTTP status " + strconv.Itoa(refusal.Status) + ")."
			}
		}
	case f.Kind == engine.KindTooLarge:
		what = "the MCP server %q gave an answer to %s that is too large to be passed on."
	case f.Kind == engine.KindUnreadable:
		what = "the MCP server %q gave an answer to %s that can't be read."
	case f.Kind == engine.KindBroken:
		what = "the response of the MCP server %q to %s ended without an answer."
	case f.Kind == engine.KindFull || f.Kind == engine.KindInvalid:
		what = "the MCP server %q was not sent %s."
	}
	raw, err := json.Marshal(struct {
		Code    int       `json:"code"`
		Message string    `json:"message"`
		Data    ErrorData `json:"data"`
	}{code, fmt.Sprintf("respawn: "+what+" ", r.name(), m.method) + advice, data})
	if err != nil { // nothing above can fail to encode
		raw = []byte(`{"code":-31001,"message":"respawn: no answer"}`)
	}
	return append(append([]byte(`{"jsonrpc":"2.0","id":`+m.id+`,"error":`), raw...), '}')
}

// name is what a model knows the server by: its own name, once it has said it.
func (r *Relay) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record != nil && r.record.name != "" {
		return r.record.name
	}
	return r.label
}

// exitCoder is a cause of death that knows the exit code of a process; a negative
// one is not known.
type exitCoder interface {
	error
	ExitCode() int
}

func emptyResult(id string) []byte { return []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`) }
