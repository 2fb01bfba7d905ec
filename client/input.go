package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/encoding/json"
)

// A modern server that needs input answers a call with what it needs, and the
// call is made again with the answers (2026-07-28, patterns/mrtr).

const inputRequired = "input_required"

// maxRounds bounds how often one call is made again for more input. A form with
// more pages than this is a server that never has enough.
const maxRounds = 10

// errRounds ends a call whose server always wants more.
var errRounds = fmt.Errorf("the server asked for input more than %d times", maxRounds)

// wanted is an InputRequiredResult. The state stays the bytes that came.
type wanted struct {
	Type     string `json:"resultType"`
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State json.RawMessage `json:"requestState"`
}

// wants reads a result that asks for input which this client can give. Any other
// result is its caller's.
func (c *Client) wants(method string, result json.RawMessage) (w wanted, ok bool) {
	switch method { // no other request may be answered so (Supported Requests)
	case "tools/call", "prompts/get", "resources/read":
	default:
		return w, false
	}
	if !bytes.Contains(result, []byte(inputRequired)) {
		return w, false
	}
	if _, err := json.Parse(result, &w, json.DontMatchCaseInsensitiveStructFields); err != nil || w.Type != inputRequired {
		return w, false
	}
	for _, r := range w.Requests {
		if !c.cfg.answers(r.Method) {
			return w, false
		}
	}
	return w, len(w.Requests) > 0 || len(w.State) > 0
}

// whileItLasts is ctx until the client ends. A call that waits for a handler has
// nothing in flight that its end would end.
func (c *Client) whileItLasts(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// input asks the handlers and returns the params of the next round: those of the
// first, with the answers and the state, if there is one, byte for byte.
func (c *Client) input(ctx context.Context, params json.RawMessage, w wanted) (json.RawMessage, error) {
	answers := make(map[string]json.RawMessage, len(w.Requests))
	ctx, stop := c.whileItLasts(ctx)
	defer stop()
	for key, r := range w.Requests {
		answer, err := c.cfg.ask(ctx, r.Method, r.Params)
		switch {
		case err != nil && errors.Is(err, ctx.Err()):
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
		answers[key] = answer
	}
	fields := map[string]json.RawMessage{}
	if len(params) > 0 {
		if err := json.Unmarshal(params, &fields); err != nil {
			return nil, err
		}
	}
	delete(fields, "inputResponses")
	delete(fields, "requestState")
	if len(w.Requests) > 0 {
		raw, err := json.Marshal(answers)
		if err != nil {
			return nil, err
		}
		fields["inputResponses"] = raw
	}
	if len(w.State) > 0 {
		fields["requestState"] = w.State
	}
	return json.Append(nil, fields, json.SortMapKeys|json.TrustRawMessage)
}
