// Command mcpgoserver is a real peer: a server built with mark3labs/mcp-go, on
// stdio or over Streamable HTTP.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	addr := flag.String("http", "", "serve Streamable HTTP at /mcp of this address instead of stdio")
	legacy := flag.Bool("legacy", false, "over HTTP: 2025-11-25 alone, with sessions that are known to this process only")
	extra := flag.String("tool", "", "name of one more tool, so that a listing can be told from an older one")
	flag.Parse()
	s := newServer(*extra)
	err := error(nil)
	if *addr == "" {
		err = server.ServeStdio(s)
	} else {
		err = serveHTTP(*addr, s, *legacy)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcpgoserver:", err)
		os.Exit(1)
	}
}

// serveHTTP serves until it fails, and says when it listens.
func serveHTTP(addr string, s *server.MCPServer, legacy bool) error {
	var opts []server.StreamableHTTPOption
	if legacy {
		opts = append(opts, server.WithStateful(true), server.WithStreamableHTTPProtocolVersions("2025-11-25"))
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, opts...))
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "mcpgoserver: listening on", ln.Addr())
	return http.Serve(ln, mux)
}

func newServer(extra string) *server.MCPServer {
	s := server.NewMCPServer("mcpgoserver", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("echo",
		mcp.WithDescription("Answers with the text it was given."),
		mcp.WithReadOnlyHintAnnotation(true),
		mcp.WithString("text", mcp.Required())), echo)
	s.AddTool(counter("count", "Appends a line to a file, so that each execution can be counted."), count)
	s.AddTool(counter("recount", "Does the same, and says that once more does no harm.",
		mcp.WithIdempotentHintAnnotation(true)), count)
	s.AddTool(mcp.NewTool("announce",
		mcp.WithDescription("Tells everybody that the list of tools has changed.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			s.AddTool(mcp.NewTool("announced"), echo)
			return mcp.NewToolResultText("announced"), nil
		})
	if extra != "" {
		s.AddTool(mcp.NewTool(extra), echo)
	}
	return s
}

func counter(name, does string, more ...mcp.ToolOption) mcp.Tool {
	return mcp.NewTool(name, append([]mcp.ToolOption{
		mcp.WithDescription(does),
		mcp.WithString("file", mcp.Required()),
		mcp.WithNumber("before", mcp.Description("milliseconds from the call to the execution")),
		mcp.WithNumber("after", mcp.Description("milliseconds from the execution to the answer")),
	}, more...)...)
}

func echo(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := req.RequireString("text")
	if err != nil {
		return nil, err
	}
	return mcp.NewToolResultText(text), nil
}

// count records its execution before it answers.
func count(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	file, err := req.RequireString("file")
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(req.GetInt("before", 0)) * time.Millisecond)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(req.GetInt("after", 0)) * time.Millisecond)
	return mcp.NewToolResultText("counted"), nil
}
