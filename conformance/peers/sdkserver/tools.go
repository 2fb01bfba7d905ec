package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type (
	echoInput struct {
		Text string `json:"text"`
	}
	countInput struct {
		File   string `json:"file"`
		Die    bool   `json:"die,omitempty" jsonschema:"kill the server after the execution, before the answer"`
		Before int    `json:"before,omitempty" jsonschema:"milliseconds from the call to the execution"`
		After  int    `json:"after,omitempty" jsonschema:"milliseconds from the execution to the answer"`
	}
	slowInput struct {
		Millis int `json:"millis"`
	}
)

func addTools(server *mcp.Server, extra string) {
	mcp.AddTool(server, &mcp.Tool{
		Name:        "echo",
		Description: "Answers with the text it was given.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, echo)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "count",
		Description: "Appends a line to a file, so that each execution can be counted.",
	}, count)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "recount",
		Description: "Does the same, and says that once more does no harm.",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: true},
	}, count)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "slow",
		Description: "Answers after a while, or at once when it is cancelled.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, slow)
	mcp.AddTool(server, &mcp.Tool{
		Name:        "announce",
		Description: "Tells everybody that the list of tools has changed.",
	}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "announced"}, echo)
		return text("announced"), nil, nil
	})
	if extra != "" {
		mcp.AddTool(server, &mcp.Tool{Name: extra}, echo)
	}
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
	return text(in.Text), nil, nil
}

// count records its execution before it answers: a call that is answered was
// counted, whatever becomes of the answer.
func count(_ context.Context, _ *mcp.CallToolRequest, in countInput) (*mcp.CallToolResult, any, error) {
	time.Sleep(time.Duration(in.Before) * time.Millisecond)
	f, err := os.OpenFile(in.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, nil, err
	}
	if in.Die {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return nil, nil, err
		}
		if err := self.Kill(); err != nil {
			return nil, nil, err
		}
		select {} // the signal is on its way, and no answer may overtake it
	}
	time.Sleep(time.Duration(in.After) * time.Millisecond)
	return text("counted"), nil, nil
}

func slow(ctx context.Context, _ *mcp.CallToolRequest, in slowInput) (*mcp.CallToolResult, any, error) {
	select {
	case <-time.After(time.Duration(in.Millis) * time.Millisecond):
		return text("done"), nil, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
