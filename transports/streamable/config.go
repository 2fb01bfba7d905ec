// Package streamable carries MCP over Streamable HTTP, in both of its eras: the
// sessions, standalone streams and resumptions of 2025-11-25 and earlier
// (basic/transports) and the stateless exchanges of 2026-07-28
// (basic/transports/streamable-http). It emits facts and decides nothing.
//
// docs/transports.md has every bound, its default, and what the package can't do.
package streamable

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// Defaults of [Config]: what a zero field means.
const (
	// DefaultMaxMessage equals transports.MaxQueued: what may be sent may come back.
	DefaultMaxMessage = transports.MaxQueued
	// DefaultMaxRefusal is the largest body that policy looks into.
	DefaultMaxRefusal = 1 << 20
	// DefaultReadOut is ample for the end of a response that is on its way, also
	// from a server with 64 requests on its hands, and bounds what one that keeps
	// its streams open costs.
	DefaultReadOut = 250 * time.Millisecond
	// DefaultRefusalWait bounds how long a refusal waits for the rest of its body.
	DefaultRefusalWait = 2 * time.Second
	// DefaultOpeningWait is how long a close waits for the session id of an
	// initialize in flight, so that the session can be deleted.
	DefaultOpeningWait = 2 * time.Second
	// DefaultDeleteWait bounds the DELETE of a session: Close is not worth more.
	DefaultDeleteWait = 2 * time.Second
	// DefaultIdleConns keeps what 128 concurrent calls used for the next ones;
	// net/http would keep 2.
	DefaultIdleConns = 128
)

// Config says how to reach a server. Only URL is needed; every other zero value
// works. It is read when an incarnation starts and must not change after Factory.
type Config struct {
	// URL is the MCP endpoint, http or https. User and password in it are sent
	// as Basic authorization unless Header or Authorizer say otherwise.
	URL string
	// Label names the peer in logs and errors; "" is the URL's host and path.
	// The query is no part of the default: it may hold secrets.
	Label string

	// Client sends the requests; nil is a client of the factory's own, which is
	// closed when its last incarnation ends. A client given here stays its
	// owner's: nothing closes it. Its Transport and Jar are used. Its Timeout is
	// not, since it would cut streams, nor its CheckRedirect: redirects within
	// the endpoint's origin are followed with their method and body, and any
	// other is a refusal, so that neither session id nor credentials leave it.
	Client *http.Client
	// Header is sent with each request, DELETE included. What the transport or
	// the protocol layer sets itself wins.
	Header http.Header
	// Authorizer supplies and renews credentials. nil: none.
	Authorizer Authorizer

	// MaxMessage is the longest message read, in bytes: a JSON body, or the data
	// of one event. A longer one refuses its request (*TooLargeError). 64 MiB.
	MaxMessage int
	// MaxRefusal is how many bytes of a refusal's body are kept. 1 MiB.
	MaxRefusal int
	// ReadOut is how long a response is read on after its answer, so that its
	// connection can be used again. 250 ms.
	ReadOut time.Duration
	// RefusalWait is how long the body of a refusal is awaited; what came until
	// then is reported. 2 s.
	RefusalWait time.Duration
	// OpeningWait is how long a close waits for an initialize in flight to show
	// its session id. 2 s.
	OpeningWait time.Duration
	// DeleteWait bounds the DELETE of the session at a close. 2 s.
	DeleteWait time.Duration
	// IdleConns is how many idle connections the factory's own client keeps. 128.
	IdleConns int
}

// Endpoint is opts with URL set, as a factory; opts may be nil.
func Endpoint(endpoint string, opts *Config) transports.Factory {
	var c Config
	if opts != nil {
		c = *opts
	}
	c.URL = endpoint
	return c.Factory()
}

// Factory returns the factory of this server's transports, which share
// connections and credentials. Nothing is checked or sent before Serve: an
// invalid value is Serve's *ConfigError.
func (c Config) Factory() transports.Factory {
	s := newShared(c)
	return transports.Factory{
		Shape: transports.Posts,
		Label: s.label(),
		New:   func() transports.Transport { return newTransport(s) },
	}
}

// Validate returns what is wrong with the configuration, as a *ConfigError, or nil.
func (c Config) Validate() error {
	_, err := c.withDefaults().check()
	return err
}

// withDefaults fills zero fields.
func (c Config) withDefaults() Config {
	c.MaxMessage = cmp.Or(c.MaxMessage, DefaultMaxMessage)
	c.MaxRefusal = cmp.Or(c.MaxRefusal, DefaultMaxRefusal)
	c.ReadOut = cmp.Or(c.ReadOut, DefaultReadOut)
	c.RefusalWait = cmp.Or(c.RefusalWait, DefaultRefusalWait)
	c.OpeningWait = cmp.Or(c.OpeningWait, DefaultOpeningWait)
	c.DeleteWait = cmp.Or(c.DeleteWait, DefaultDeleteWait)
	c.IdleConns = cmp.Or(c.IdleConns, DefaultIdleConns)
	return c
}

// origin is what an error may show of a URL: user, path and query may hold secrets,
// and so may what only looks like a scheme.
func origin(u *url.URL) string {
	if u.Scheme == "" || u.Opaque != "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// check returns the endpoint, or what is wrong with the configuration.
func (c Config) check() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil: // without the URL, which may hold secrets
		return nil, &ConfigError{Field: "URL", Why: "is not a URL"}
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, &ConfigError{Field: "URL", Value: origin(u), Why: "is neither http nor https"}
	case u.Hostname() == "":
		return nil, &ConfigError{Field: "URL", Value: origin(u), Why: "names no host"}
	}
	for name, values := range c.Header {
		for _, v := range values {
			if bad := new(HeaderError); errors.As(checkHeader(name, v), &bad) {
				return nil, &ConfigError{Field: "Header", Value: fmt.Sprintf("%q", name), Why: bad.Why}
			}
		}
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"MaxMessage", int64(c.MaxMessage)},
		{"MaxRefusal", int64(c.MaxRefusal)},
		{"ReadOut", int64(c.ReadOut)},
		{"RefusalWait", int64(c.RefusalWait)},
		{"OpeningWait", int64(c.OpeningWait)},
		{"DeleteWait", int64(c.DeleteWait)},
		{"IdleConns", int64(c.IdleConns)},
	} {
		if n.value < 0 {
			return nil, &ConfigError{Field: n.field, Value: fmt.Sprint(n.value), Why: "is negative"}
		}
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
