package client

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

// ListTools returns one page of tools. params may be nil.
func (c *Client) ListTools(ctx context.Context, params *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	return call[mcp.ListToolsResult](ctx, c, "tools/list", orNil(params))
}

// Tools iterates over all tools, page by page. It stops after an error.
func (c *Client) Tools(ctx context.Context) iter.Seq2[*mcp.Tool, error] {
	return func(yield func(*mcp.Tool, error) bool) {
		for params := (&mcp.ListToolsParams{}); ; {
			page, err := c.ListTools(ctx, params)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, tool := range page.Tools {
				if !yield(tool, nil) {
					return
				}
			}
			switch page.NextCursor {
			case "":
				return
			case params.Cursor: // it would never end
				yield(nil, &DecodeError{Method: "tools/list", Err: errCursorRepeats})
				return
			}
			params = &mcp.ListToolsParams{Cursor: page.NextCursor}
		}
	}
}

// CallTool calls a tool. A tool that failed is a result with IsError, not an error.
func (c *Client) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return call[mcp.CallToolResult](ctx, c, "tools/call", orNil(params))
}

// ReadResource reads a resource.
func (c *Client) ReadResource(ctx context.Context, params *mcp.ReadResourceParams) (*mcp.ReadResourceResult, error) {
	return call[mcp.ReadResourceResult](ctx, c, "resources/read", orNil(params))
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
// params are the same bytes.
func encode(params any) (json.RawMessage, error) {
	raw, ok := params.(json.RawMessage)
	switch {
	case params == nil || ok && len(raw) == 0:
		return nil, nil
	case ok && !json.Valid(raw):
		return nil, errNotJSON
	case !ok:
		var err error
		if raw, err = json.Append(nil, params, json.SortMapKeys); err != nil {
			return nil, err
		}
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
	errNoMethod      = errors.New("a request needs a method")
	errCursorRepeats = errors.New("the next page's cursor is this page's")
)

// decode reads a result. Field names match by case, as they do in the SDK.
func decode(method string, raw json.RawMessage, result any) error {
	if _, err := json.Parse(raw, result, json.DontMatchCaseInsensitiveStructFields); err != nil {
		return &DecodeError{Method: method, Err: err}
	}
	return nil
}
