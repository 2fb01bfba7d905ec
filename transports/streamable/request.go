package streamable

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"
)

// maxHops is how many redirects in a row are followed, as net/http does.
const maxHops = 10

// request is what an exchange asks for: everything but what may change between
// one try and the next. All requests, DELETE included, are built here.
type request struct {
	t      *Transport
	method string
	header http.Header
	frame  []byte    // nil: no body
	bare   bool      // never carries the session
	x      *exchange // whose frame it is; nil for a DELETE

	tries   int
	session string // what the last try carried, "" for none
}

// noConnection says that a try ended before anything could reach the server.
type noConnection struct{ err error }

func (e *noConnection) Error() string { return e.err.Error() }
func (e *noConnection) Unwrap() error { return e.err }

// do sends a request, again after a 401 that new credentials may cure, and to
// where the server says within its own origin. In both cases the server has
// refused what it was sent. The error is a *noConnection, or of unknown effect.
func (r *request) do(ctx context.Context) (resp *http.Response, why error, err error) {
	s := r.t.s
	target, renewed := s.url, false
	for hops := 0; ; {
		var cred held
		if s.auth != nil {
			if cred, err = s.auth.current(ctx); err != nil {
				return nil, nil, &noConnection{err}
			}
		}
		if resp, err = r.try(ctx, target, cred); err != nil {
			return nil, nil, err
		}
		if s.auth != nil && resp.StatusCode == http.StatusUnauthorized && !renewed && cred.curable(time.Now()) {
			renewed = true
			s.keep(resp)
			next, err := s.auth.renew(ctx, cred, resp.Header)
			if err != nil || next.Authorization == cred.Authorization {
				return resp, err, nil
			}
			r.hand(nil)
			continue
		}
		next := s.redirected(resp, target)
		if hops++; next == nil || hops > maxHops {
			return resp, nil, nil
		}
		s.keep(resp)
		r.hand(nil)
		target = next
	}
}

// hand tells the exchange which attempt is under way; nil: what was handed over
// before has been refused.
func (r *request) hand(a *attempt) {
	if r.x != nil {
		r.x.hand(a)
	}
}

// maxDead is how many pooled connections in a row may prove dead. Before the last
// try the factory's own pool is emptied, so that it makes a connection.
const maxDead = 2

// try makes one HTTP request. A pooled connection that proves dead before it took
// anything costs another try: net/http leaves that to us, because it can't read
// the body twice. One that is given out again is not dead: what failed was the
// request, or something before it, and would fail again.
func (r *request) try(ctx context.Context, target *url.URL, cred held) (*http.Response, error) {
	var last net.Conn
	for dead := 1; ; dead++ {
		a, req := r.build(target, cred)
		resp, err := r.t.s.roundTrip(req.WithContext(httptrace.WithClientTrace(ctx, a.trace())))
		switch {
		case err == nil:
			return resp, nil
		case !a.unsent():
			return nil, err
		case a.conn == nil || ctx.Err() != nil:
			return nil, &noConnection{&ConnectError{Host: target.Host, Err: err}}
		case !a.reused || a.conn == last || dead > maxDead:
			return nil, &noConnection{&UnsentError{Host: target.Host, Err: err}}
		}
		if last = a.conn; dead == maxDead && r.t.s.own != nil {
			r.t.s.own.CloseIdleConnections()
		}
	}
}

// roundTrip is what http.Client does beside following redirects, which is not
// wanted, and the copies that it makes for them.
func (s *shared) roundTrip(req *http.Request) (*http.Response, error) {
	if s.jar == nil {
		return s.round.RoundTrip(req)
	}
	req.Header = req.Header.Clone() // another try has cookies of its own
	for _, c := range s.jar.Cookies(req.URL) {
		req.AddCookie(c)
	}
	resp, err := s.round.RoundTrip(req)
	if err == nil {
		if got := resp.Cookies(); len(got) > 0 {
			s.jar.SetCookies(req.URL, got)
		}
	}
	return resp, err
}

// build composes one try: credentials and session are those of this moment.
func (r *request) build(target *url.URL, cred held) (*attempt, *http.Request) {
	if r.tries++; r.tries > 1 {
		r.header = r.header.Clone() // the last try may still be reading its own
	}
	if cred.Authorization != "" {
		r.header["Authorization"] = []string{cred.Authorization}
	}
	if r.session = ""; !r.bare {
		if r.session = r.t.session(); r.session != "" {
			r.header[headerSession] = []string{r.session}
		}
	}
	a := &attempt{frame: r.frame, plain: r.t.s.plain, taken: r.taken}
	r.hand(a)
	return a, &http.Request{
		Method: r.method, URL: target, Header: r.header, Host: r.header.Get("Host"),
		Body: a.body(), ContentLength: int64(len(r.frame)),
	}
}

func (r *request) taken() {
	if r.x != nil {
		r.x.dequeue()
	}
}

// redirected is where a response sends a request, if that is in the origin of the
// request: there the session id and the credentials may go. 303 asks for a GET of
// something else.
func (s *shared) redirected(resp *http.Response, from *url.URL) *url.URL {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil
	}
	to, err := from.Parse(location)
	if err != nil || to.Scheme != from.Scheme || !strings.EqualFold(to.Host, from.Host) {
		return nil
	}
	to.User, to.Fragment, to.RawFragment = from.User, "", ""
	return to
}

// keep reads a refusal's body into memory, so that its connection is free.
func (s *shared) keep(resp *http.Response) {
	from := resp.Body
	data := s.readRefusal(from, func() { from.Close() })
	from.Close()
	resp.Body = io.NopCloser(bytes.NewReader(data))
}

// readRefusal reads as much of a refusal's body as is kept of it, for a bounded
// time, after which stop must end the reading.
func (s *shared) readRefusal(from io.Reader, stop func()) []byte {
	late := time.AfterFunc(s.conf.RefusalWait, stop)
	defer late.Stop()
	limit := int64(s.conf.MaxRefusal)
	data, err := io.ReadAll(io.LimitReader(from, limit))
	if err == nil && int64(len(data)) == limit {
		var one [1]byte
		_, _ = from.Read(one[:]) // the end, if that is all: the connection is free
	}
	return data
}
