// Command mcpgoserver is a real peer: a stdio server built with mark3labs/mcp-go.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	s := server.NewMCPServer("mcpgoserver", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("echo",
		mcp.WithDescription("Answers with the text it was given."),
		mcp.WithString("text", mcp.Required())), echo)
	s.AddTool(mcp.NewTool("count",
		mcp.WithDescription("Appends a line to a file, so that each execution can be counted."),
		mcp.WithString("file", mcp.Required())), count)
	if err := server.ServeStdio(s); err != nil {
		fmt.Fprintln(os.Stderr, "mcpgoserver:", err)
		os.Exit(1)
	}
}

func echo(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := req.RequireString("text")
	if err != nil {
		return nil, err
	}
	return mcp.NewToolResultText(text), nil
}

func count(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	file, err := req.RequireString("file")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, err
	}
	return mcp.NewToolResultText("counted"), f.Close()
}
