// Command sdkserver is a real peer: a server built with the official Go SDK, on
// stdio or over Streamable HTTP. On stdio and without sessions it serves both
// eras, since the SDK answers server/discover and initialize alike there; with
// sessions it serves the legacy era alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	addr := flag.String("http", "", "serve Streamable HTTP at /mcp of this address instead of stdio")
	var opts httpOptions
	flag.BoolVar(&opts.stateless, "stateless", false, "over HTTP: no sessions")
	flag.BoolVar(&opts.resumable, "resumable", false, "over HTTP: events have ids and can be replayed")
	extra := flag.String("tool", "", "name of one more tool, so that a listing can be told from an older one")
	flag.Parse()
	if err := run(*addr, *extra, opts); err != nil {
		fmt.Fprintln(os.Stderr, "sdkserver:", err)
		os.Exit(1)
	}
}

func run(addr, extra string, opts httpOptions) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdkserver", Version: "1"}, nil)
	addTools(server, extra)
	if addr == "" {
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
	return serveHTTP(addr, server, opts)
}
