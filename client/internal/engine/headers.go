package engine

import (
	"context"
	"net/http"

	"github.com/respawn-mcp/respawn/transports"
)

// agreed is the protocol version of the incarnation, for headers; "" before it is
// known, and for versions without such a header.
func (inc *incarnation) agreed() string {
	if v := inc.version.Load(); v != nil {
		return *v
	}
	return ""
}

// headers are the headers of every message to a settled incarnation.
func (inc *incarnation) headers() http.Header {
	version := inc.agreed()
	if inc.e.Factory.Shape != transports.Posts || version == "" {
		return nil
	}
	return http.Header{"Mcp-Protocol-Version": {version}}
}

// header is what the protocol layer adds to one request: the caller's own, the
// version, and the parameters that the tool wants mirrored.
func (e *Engine) header(c *call, inc *incarnation) http.Header {
	h := c.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if c.Method == methodInitialize {
		return h // it is what agrees on a version
	}
	version := inc.agreed()
	if c.Version != "" {
		version = c.Version
	}
	if version != "" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if c.Method == methodCallTool && Era(inc.speaks.Load()) == Modern {
		e.evidence.mirror(h, c.name, c.Params)
	}
	return h
}

// accepted sends a notification of an opening exchange and waits until the peer
// has accepted it: what follows must not overtake it.
func (inc *incarnation) accepted(ctx context.Context, method string) error {
	c := &call{Request: Request{Method: method, Notify: true}, opened: inc, done: make(chan struct{})}
	inc.e.giveTo(inc, c)
	if _, f := inc.e.await(ctx, c); f != nil {
		return f
	}
	return nil
}
