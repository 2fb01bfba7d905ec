package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

const nameRawWeb = "net/http POST"

// webContenders are the clients that are measured over HTTP.
var webContenders = []struct {
	name string
	dial func(context.Context, *web) (peer, error)
}{
	{nameRawWeb, func(_ context.Context, w *web) (peer, error) { return dialRawWeb(w) }},
	{nameOurs, func(ctx context.Context, w *web) (peer, error) {
		c, err := dialOursWeb(ctx, w, nil)
		return oursCall{c}, err
	}},
	{nameTyped, func(ctx context.Context, w *web) (peer, error) {
		c, err := dialOursWeb(ctx, w, nil)
		return oursTyped{oursCall{c}}, err
	}},
	{nameSDK, dialSDKWeb},
	{nameMark, dialMarkLabsWeb},
}

// measureWeb measures them in one era.
func measureWeb(ctx context.Context, path string, legacy bool, rounds int, slice time.Duration) (*speed, error) {
	w, err := startWeb(path, legacy)
	if err != nil {
		return nil, err
	}
	defer w.close()
	s := &speed{over: w.era(), base: nameRawWeb, accepted: w.accepted, expects: webExpects()}
	sides := map[string]measurer{}
	for _, c := range webContenders {
		side, err := c.dial(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer side.close()
		s.names = append(s.names, c.name)
		sides[c.name] = func(at cell, slice time.Duration) (sample, error) { return measureClient(ctx, side, at, slice) }
	}
	return s, s.measure(cells, rounds, slice, sides)
}

func webExpects() (all []expectation) {
	for _, at := range cells {
		all = append(all, expectation{at, nameOurs, nameRawWeb, 0.85})
	}
	return append(all, aheadOfOthers()...)
}

func dialOursWeb(ctx context.Context, w *web, cfg *client.Config) (*client.Client, error) {
	return client.Connect(ctx, streamable.Endpoint(w.url, nil), cfg)
}

func dialSDKWeb(ctx context.Context, w *web) (peer, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.url, HTTPClient: newHTTPClient()}, nil)
	if err != nil {
		return nil, err
	}
	return &sdk{session}, nil
}

func dialMarkLabsWeb(ctx context.Context, w *web) (peer, error) {
	c, err := mcpgoclient.NewStreamableHttpClient(w.url, transport.WithHTTPBasicClient(newHTTPClient()))
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	var init mcpgo.InitializeRequest
	init.Params.ClientInfo = mcpgo.Implementation{Name: "bench", Version: "1"}
	if w.legacy { // it takes the server for a modern one, whose calls are refused then
		init.Params.ProtocolVersion = "2025-11-25"
	}
	if _, err := c.Initialize(ctx, init); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &markLabs{c}, nil
}
