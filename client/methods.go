package client

//lint:file-ignore SA1019 deprecated features of legacy eras still work, and are offered

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// Ping asks whether the server is there: by ping in the legacy era, and by
// server/discover in the modern one, which has no ping (2026-07-28, changelog).
func (c *Client) Ping(ctx context.Context) error {
	method := "ping"
	if c.engine.Session().Era == engine.Modern {
		method = "server/discover"
	}
	return c.Call(ctx, method, nil, nil)
}

// SetLogLevel sets the least severe level that the server logs at; Config.OnLog
// hears what it logs. A legacy server is told at once, and its replacement again; a
// modern one with each request from now on (2026-07-28, server/utilities/logging).
func (c *Client) SetLogLevel(ctx context.Context, level mcp.LoggingLevel) error {
	if c.engine.Session().Era == engine.Modern {
		c.engine.SetLogLevel(string(level))
		return nil
	}
	return c.Call(ctx, "logging/setLevel", &mcp.SetLoggingLevelParams{Level: level}, nil)
}

// RootsChanged tells a legacy server that ListRoots has a new answer. A modern
// one asks when it needs them.
func (c *Client) RootsChanged(ctx context.Context) error {
	if c.engine.Session().Era == engine.Modern {
		return nil
	}
	return c.Notify(ctx, "notifications/roots/list_changed", nil)
}

// CallTool calls a tool. A tool that failed is a result with IsError, not an error.
func (c *Client) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return call[mcp.CallToolResult](ctx, c, "tools/call", orNil(params))
}

// GetPrompt gets a prompt.
func (c *Client) GetPrompt(ctx context.Context, params *mcp.GetPromptParams) (*mcp.GetPromptResult, error) {
	return call[mcp.GetPromptResult](ctx, c, "prompts/get", orNil(params))
}

// ReadResource reads a resource, or returns what Config.Cache kept of it.
func (c *Client) ReadResource(ctx context.Context, params *mcp.ReadResourceParams) (*mcp.ReadResourceResult, error) {
	key := cacheKey{method: "resources/read"}
	if params != nil {
		key.uri = params.URI
	}
	result, _, err := cacheable[mcp.ReadResourceResult](ctx, c, key, orNil(params), 0)
	return result, err
}

// Complete asks for completions of an argument.
func (c *Client) Complete(ctx context.Context, params *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	return call[mcp.CompleteResult](ctx, c, "completion/complete", orNil(params))
}

// ListTools returns one page of tools, or what Config.Cache kept of it. params may
// be nil. [Client.Tools] goes through all pages.
func (c *Client) ListTools(ctx context.Context, params *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	if params == nil {
		params = &mcp.ListToolsParams{}
	}
	result, _, err := cacheable[mcp.ListToolsResult](ctx, c, cacheKey{"tools/list", params.Cursor, ""}, params, 0)
	return result, err
}

// ListPrompts returns one page of prompts. params may be nil.
func (c *Client) ListPrompts(ctx context.Context, params *mcp.ListPromptsParams) (*mcp.ListPromptsResult, error) {
	if params == nil {
		params = &mcp.ListPromptsParams{}
	}
	result, _, err := cacheable[mcp.ListPromptsResult](ctx, c, cacheKey{"prompts/list", params.Cursor, ""}, params, 0)
	return result, err
}

// ListResources returns one page of resources. params may be nil.
func (c *Client) ListResources(ctx context.Context, params *mcp.ListResourcesParams) (*mcp.ListResourcesResult, error) {
	if params == nil {
		params = &mcp.ListResourcesParams{}
	}
	result, _, err := cacheable[mcp.ListResourcesResult](ctx, c, cacheKey{"resources/list", params.Cursor, ""}, params, 0)
	return result, err
}

// ListResourceTemplates returns one page of resource templates. params may be nil.
func (c *Client) ListResourceTemplates(ctx context.Context, params *mcp.ListResourceTemplatesParams) (*mcp.ListResourceTemplatesResult, error) {
	if params == nil {
		params = &mcp.ListResourceTemplatesParams{}
	}
	key := cacheKey{"resources/templates/list", params.Cursor, ""}
	result, _, err := cacheable[mcp.ListResourceTemplatesResult](ctx, c, key, params, 0)
	return result, err
}

// Tools iterates over all tools, page by page, and stops after an error. A server
// that dies between two pages takes its cursor with it: the iteration starts over
// if it has given nothing out yet, and ends with [ErrCursorLost] otherwise.
func (c *Client) Tools(ctx context.Context) iter.Seq2[*mcp.Tool, error] {
	return all(ctx, c, "tools/list", func(r *mcp.ListToolsResult) ([]*mcp.Tool, string) { return r.Tools, r.NextCursor })
}

// Prompts iterates over all prompts, as [Client.Tools] does.
func (c *Client) Prompts(ctx context.Context) iter.Seq2[*mcp.Prompt, error] {
	return all(ctx, c, "prompts/list", func(r *mcp.ListPromptsResult) ([]*mcp.Prompt, string) { return r.Prompts, r.NextCursor })
}

// Resources iterates over all resources, as [Client.Tools] does.
func (c *Client) Resources(ctx context.Context) iter.Seq2[*mcp.Resource, error] {
	return all(ctx, c, "resources/list", func(r *mcp.ListResourcesResult) ([]*mcp.Resource, string) {
		return r.Resources, r.NextCursor
	})
}

// ResourceTemplates iterates over all resource templates, as [Client.Tools] does.
func (c *Client) ResourceTemplates(ctx context.Context) iter.Seq2[*mcp.ResourceTemplate, error] {
	return all(ctx, c, "resources/templates/list", func(r *mcp.ListResourceTemplatesResult) ([]*mcp.ResourceTemplate, string) {
		return r.ResourceTemplates, r.NextCursor
	})
}

// all iterates over the items of all pages of a listing.
func all[R, T any](ctx context.Context, c *Client, method string, page func(*R) ([]*T, string)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		given, cursor, pin := false, "", uint64(0)
		seen := map[string]bool{}
		for {
			var params any
			if cursor != "" {
				params = map[string]string{"cursor": cursor}
			}
			result, gen, err := cacheable[R](ctx, c, cacheKey{method, cursor, ""}, params, pin)
			if err != nil {
				if errors.Is(err, ErrCursorLost) && !given {
					c.cache.drop(func(k cacheKey) bool { return k.method == method }) // it is the old server's, too
					cursor, pin = "", 0
					clear(seen)
					continue
				}
				yield(nil, err)
				return
			}
			items, next := page(result)
			for _, item := range items {
				if item == nil { // with no error beside it, whoever iterates would take it for one
					yield(nil, &DecodeError{Method: method, Err: errNullItem})
					return
				}
				if given = true; !yield(item, nil) {
					return
				}
			}
			switch {
			case next == "":
				return
			case seen[next]: // it would never end
				yield(nil, &DecodeError{Method: method, Err: errCursorRepeats})
				return
			}
			seen[next] = true
			cursor, pin = next, gen
		}
	}
}

// cacheable makes a request whose result may be kept. pin is the generation that
// alone may answer; 0: any.
func cacheable[R any](ctx context.Context, c *Client, key cacheKey, params any, pin uint64) (*R, uint64, error) {
	result, epoch := new(R), uint64(0)
	if c.cfg.Cache {
		hit, ok, now := c.cache.get(key, c.engine.Clock.Now())
		if ok && (pin == 0 || pin == hit.gen) {
			return result, hit.gen, decode(key.method, hit.result, result)
		}
		epoch = now
	}
	resp, err := c.do(ctx, Request{Method: key.method, Params: params}, pin)
	if err != nil {
		return nil, 0, err
	}
	if c.cfg.Cache {
		c.cache.put(key, epoch, resp, c.engine.Clock.Now())
	}
	return result, resp.Generation, decode(key.method, resp.Result, result)
}

// orNil is params, or an untyped nil for a nil pointer.
func orNil[P any](params *P) any {
	if params == nil {
		return nil
	}
	return params
}

func call[R any](ctx context.Context, c *Client, method string, params any) (*R, error) {
	result := new(R)
	if err := c.Call(ctx, method, params, result); err != nil {
		return nil, err
	}
	return result, nil
}

// encode turns params into JSON on one line. Map keys are sorted so that the same
// params are the same bytes. Raw JSON may be anywhere in them, from anybody: the
// encoder copies it as it is, since it would recurse into it, and an overflow of the
// stack can't be recovered; depth and validity are looked at afterwards.
func encode(params any) (json.RawMessage, error) {
	raw, ok := params.(json.RawMessage)
	if params == nil || ok && len(raw) == 0 {
		return nil, nil
	}
	if !ok {
		var err error
		if raw, err = json.Append(nil, params, json.SortMapKeys|json.TrustRawMessage); err != nil {
			return nil, err
		}
	}
	switch {
	case engine.TooDeep(raw):
		return nil, errTooDeep
	case !json.Valid(raw):
		return nil, errNotJSON
	}
	if bytes.IndexByte(raw, '\n') < 0 {
		return raw, nil
	}
	var line bytes.Buffer // a newline would end the message (2026-07-28, stdio)
	err := json.Compact(&line, raw)
	return line.Bytes(), err
}

var (
	errNotJSON       = errors.New("params are not valid JSON")
	errTooDeep       = errors.New("params are nested too deeply")
	errNoMethod      = errors.New("a request needs a method")
	errCursorRepeats = errors.New("the next page's cursor is that of an earlier page")
	errNullItem      = errors.New("an item is null")
)

// decode reads a result. Field names match by case, as they do in the SDK.
func decode(method string, raw json.RawMessage, result any) error {
	if _, err := json.Parse(raw, result, json.DontMatchCaseInsensitiveStructFields); err != nil {
		return &DecodeError{Method: method, Err: err}
	}
	return nil
}
