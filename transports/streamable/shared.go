package streamable

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// shared is what the incarnations of one factory share.
type shared struct {
	conf  Config // with defaults
	url   *url.URL
	err   error       // what is wrong with the configuration
	base  http.Header // static headers, in canonical spelling
	round http.RoundTripper
	jar   http.CookieJar // nil: cookies are not kept
	auth  *authority     // nil without an Authorizer

	turn sync.Mutex // one begin or end at a time
	live int        // incarnations between the two

	own   *http.Transport // nil if the client is the user's
	plain bool            // own, and without TLS to the server
	mu    sync.Mutex
	open  map[net.Conn]struct{} // connections of own; nil: none may be made
	ctx   context.Context       // of its dials
	stop  context.CancelFunc
}

func newShared(c Config) *shared {
	s := &shared{conf: c.withDefaults()}
	if s.url, s.err = c.check(); s.err != nil {
		return s
	}
	s.base = make(http.Header, len(c.Header))
	for name, values := range c.Header {
		for _, v := range values {
			s.base.Add(name, v)
		}
	}
	// These mean one message, not a factory.
	for _, name := range []string{headerVersion, headerMethod, headerName, headerLastID} {
		s.base.Del(name)
	}
	if c.Authorizer != nil {
		s.auth = &authority{from: c.Authorizer}
	}
	if u := s.url.User; u != nil && s.base.Get("Authorization") == "" {
		password, _ := u.Password()
		basic := http.Request{Header: s.base}
		basic.SetBasicAuth(u.Username(), password)
	}
	if c.Client == nil {
		s.own, s.plain = s.newTransport(), s.url.Scheme == "http"
		s.round = s.own
		return s
	}
	s.jar = c.Client.Jar
	if s.round = c.Client.Transport; s.round == nil {
		s.round = http.DefaultTransport
	}
	return s
}

// label is what names the peer: no user, password, query or fragment.
func (s *shared) label() string {
	switch {
	case s.conf.Label != "":
		return s.conf.Label
	case s.err != nil:
		return "http"
	}
	return s.url.Host + s.url.EscapedPath()
}

// Bounds of the factory's own client, beside those of Config.
const (
	// dialWait and tlsWait are what net/http's default client allows.
	dialWait = 30 * time.Second
	tlsWait  = 10 * time.Second
	// idleWait is below the 120 s of common proxies, so that it is we who close.
	idleWait = 90 * time.Second
	// pingAfter and pingWait find an HTTP/2 connection that died silently within
	// 45 s; TCP keep-alive does the same for HTTP/1.1.
	pingAfter = 30 * time.Second
	pingWait  = 15 * time.Second
	// maxHeader bounds a response's headers; net/http would take 10 MiB.
	maxHeader = 1 << 20
	// writeBuffer lets a message of 64 KiB go out in one write, headers included.
	writeBuffer = 68 << 10
)

func (s *shared) newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialWait}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.dial(ctx, dialer, network, addr)
		},
		TLSHandshakeTimeout:    tlsWait,
		MaxIdleConnsPerHost:    s.conf.IdleConns,
		IdleConnTimeout:        idleWait,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        writeBuffer,
		ForceAttemptHTTP2:      true, // a dialer of ours would switch it off
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
	}
}

// dial makes a connection that ends with the last incarnation. net/http would
// let a dial go on for the next request when its own is cancelled.
func (s *shared) dial(ctx context.Context, d *net.Dialer, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	all := s.ctx
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(all, cancel)()
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all.Err() != nil {
		c.Close()
		return nil, context.Cause(all)
	}
	t := &conn{Conn: c, s: s}
	s.open[t] = struct{}{}
	return t, nil
}

// conn is a connection of the factory's own client.
type conn struct {
	net.Conn
	s       *shared
	written atomic.Int64
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// begin counts an incarnation in. The first one after none has connections of its own:
// net/http may still hold one that the last one has closed, or is about to make it.
func (s *shared) begin() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.live++; s.live > 1 || s.own == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.open = map[net.Conn]struct{}{}
	s.own = s.own.Clone()
	s.round = s.own
}

// end counts it out. After the last one nothing of the factory's own client is
// left: a connection that net/http takes for busy a moment longer, as it does
// with HTTP/2 after a cancel, is closed too.
func (s *shared) end() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.live--; s.live > 0 || s.own == nil {
		return
	}
	s.own.CloseIdleConnections()
	s.mu.Lock()
	s.stop()
	left := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range left {
		c.Close()
	}
}
