package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection of a client, and the one to the server that its bytes
// go to. An HTTP/1.1 client that does not pipeline has one exchange at a time.
type conn struct {
	p              *Proxy
	client, server *net.TCPConn
	now            atomic.Pointer[turn] // as the requests have it
	answered       *turn                // as the responses have it, which may be the one before
	once           sync.Once
	over           chan struct{} // closed when it ends
}

// turn is the exchange that is under way.
type turn struct {
	*Exchange
	fault  *Fault // nil, or what is still to happen
	passed int    // bytes of the response
}

// errHeld ends the passing on, and nothing else.
var errHeld = errors.New("proxy: held")

func (c *conn) run() {
	var both sync.WaitGroup
	both.Go(c.requests)
	both.Go(c.responses)
	both.Wait()
	c.end()
	if t := c.now.Load(); t != nil {
		c.p.update(func() { t.Over = true })
	}
}

// end closes both connections.
func (c *conn) end() {
	c.once.Do(func() { close(c.over) })
	c.client.Close()
	c.server.Close()
}

// reset ends both abruptly.
func (c *conn) reset() {
	_ = c.client.SetLinger(0)
	_ = c.server.SetLinger(0)
	c.end()
}

// finish ends both as the side did whose end was seen.
func (c *conn) finish(err error) {
	if wasReset(err) {
		c.reset()
	}
	c.end()
}

// requests passes on what the client says.
func (c *conn) requests() {
	var raw bytes.Buffer
	from := bufio.NewReader(io.TeeReader(c.client, &raw))
	for {
		raw.Reset()
		req, err := http.ReadRequest(from)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(req.Body)
		}
		if err != nil {
			c.finish(err)
			return
		}
		x := noted(req, body, raw.Len())
		t := &turn{Exchange: x, fault: c.p.begin(x)}
		c.now.Store(t)
		if err := c.ask(t, raw.Bytes()); err != nil {
			c.finish(err)
			return
		}
	}
}

// ask passes one request on, as far as its fault lets it.
func (c *conn) ask(t *turn, raw []byte) error {
	if t.fault == nil || !t.fault.Request {
		_, err := c.server.Write(raw)
		return err
	}
	f, at := t.fault, len(raw)
	if t.fault.At >= 0 {
		at = min(at, t.fault.At)
	}
	if _, err := c.server.Write(raw[:at]); err != nil {
		return err
	}
	if err := c.happen(f); errors.Is(err, errHeld) {
		_, err = io.Copy(io.Discard, c.client)
		return errors.Join(io.EOF, err)
	} else if err != nil {
		return err
	}
	_, err := c.server.Write(raw[at:])
	return err
}

// happen does what a fault does. An error says that nothing more is passed on.
func (c *conn) happen(f *Fault) error {
	defer close(f.Done)
	switch f.Do {
	case Reset:
		c.reset()
	case End:
		c.end()
	case Hold:
		return errHeld
	case Delay:
		late := time.NewTimer(f.For)
		defer late.Stop()
		select {
		case <-late.C:
			return nil
		case <-c.over:
		}
	}
	return net.ErrClosed
}

// responses passes on what the server says.
func (c *conn) responses() {
	from := bufio.NewReader(answers{c})
	for {
		err := c.response(from)
		if errors.Is(err, errHeld) {
			return
		}
		if err != nil {
			c.finish(err)
			return
		}
	}
}

func (c *conn) response(from *bufio.Reader) error {
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return err
	}
	t := c.answered
	c.p.update(func() { t.Status = resp.StatusCode })
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	c.p.update(func() { t.Size, t.Over = t.passed, true })
	if t.fault != nil && !t.fault.Request { // it was to happen at the end, or later than that
		f := t.fault
		t.fault = nil
		return c.happen(f)
	}
	return nil
}

// answers is what the server says; reading it is passing it on.
type answers struct{ c *conn }

func (a answers) Read(p []byte) (int, error) {
	c := a.c
	n, err := c.server.Read(p)
	rest := p[:n]
	t := c.now.Load() // before the client can ask for more
	c.answered = t
	if t != nil && t.fault != nil && !t.fault.Request && t.fault.At >= 0 && t.passed+n >= t.fault.At {
		first := t.fault.At - t.passed
		if _, err := c.client.Write(rest[:first]); err != nil {
			return n, err
		}
		rest = rest[first:]
		f := t.fault
		t.fault = nil
		if err := c.happen(f); err != nil {
			return n, err
		}
	}
	if t != nil {
		t.passed += n
	}
	if _, err := c.client.Write(rest); err != nil {
		return n, err
	}
	return n, err
}
