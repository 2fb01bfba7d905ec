// Command sdkserver is a real peer: a stdio server built with the official Go
// SDK. It serves both eras, since the SDK answers server/discover and
// initialize alike on one pipe.
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
		File string `json:"file"`
		Die  bool   `json:"die,omitempty" jsonschema:"kill the server after the execution, before the answer"`
	}
	slowInput struct {
		Millis int `json:"millis"`
	}
)

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdkserver", Version: "1"}, nil)
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
		Name:        "slow",
		Description: "Answers after a while, or at once when it is cancelled.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, slow)
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, "sdkserver:", err)
		os.Exit(1)
	}
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
	return text(in.Text), nil, nil
}

// count records its execution before it answers: a call that is answered was
// counted, whatever becomes of the answer.
func count(_ context.Context, _ *mcp.CallToolRequest, in countInput) (*mcp.CallToolResult, any, error) {
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
