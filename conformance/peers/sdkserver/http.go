package main

import (
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type httpOptions struct{ stateless, resumable bool }

// serveHTTP serves until it fails, and says when it listens.
func serveHTTP(addr string, server *mcp.Server, opts httpOptions) error {
	conf := &mcp.StreamableHTTPOptions{Stateless: opts.stateless}
	if opts.resumable {
		conf.EventStore = mcp.NewMemoryEventStore(nil)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, conf))
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "sdkserver: listening on", ln.Addr())
	return http.Serve(ln, mux)
}
