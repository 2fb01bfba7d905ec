// Package proxy is a TCP proxy between a client and a server that speak HTTP/1.1.
// It passes the bytes of both on as they come, notes each exchange, and breaks
// those that it is told to break, at a chosen byte. So a test does not have to
// believe what the code under test says of its own requests.
package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// Proxy listens on a port of its own for one server.
type Proxy struct {
	addr   string // where it listens
	target string // where the server does

	mu        sync.Mutex
	ln        net.Listener // nil while nobody listens
	closed    bool
	conns     map[*conn]struct{}
	dials     int
	exchanges []*Exchange
	news      chan struct{} // closed, and replaced, when an exchange has changed
	faults    []*Fault
	running   sync.WaitGroup
}

// Start listens on a free port of the loopback interface. target is the server's
// address, where nobody has to listen yet.
func Start(target string) (*Proxy, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	p := &Proxy{addr: addr, target: target, conns: map[*conn]struct{}{}, news: make(chan struct{})}
	return p, p.Up()
}

// Addr is where the proxy listens; it stays the same when it listens again.
func (p *Proxy) Addr() string { return p.addr }

// Up listens, and after Refuse again on the same port.
func (p *Proxy) Up() error {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.ln = ln
	p.mu.Unlock()
	p.running.Go(func() { p.accept(ln) })
	return nil
}

// Refuse stops listening, as when the server's process has died: new connections
// are refused. Those that exist go on until their server ends them.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	ln := p.ln
	p.ln = nil
	p.mu.Unlock()
	if ln != nil {
		ln.Close()
	}
}

// Close ends everything and returns when nothing is left running.
func (p *Proxy) Close() {
	p.Refuse()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	left := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		left = append(left, c)
	}
	p.mu.Unlock()
	for _, c := range left {
		c.reset()
	}
}

// Dials is how many connections clients have made.
func (p *Proxy) Dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.dials++
		p.mu.Unlock()
		p.running.Go(func() { p.carry(client.(*net.TCPConn)) })
	}
}

// carry connects a client to the server until one of them has enough.
func (p *Proxy) carry(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.SetLinger(0)
		client.Close()
		return
	}
	c := &conn{p: p, client: client, server: server.(*net.TCPConn), over: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		c.reset()
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	c.run()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// wasReset reports whether the other side ended a connection abruptly.
func wasReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// FreeAddr is a loopback address that nobody listens on. Its port is below those
// that the system gives out, so that nobody takes it while its server is away.
func FreeAddr() (string, error) {
	for {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return ln.Addr().String(), ln.Close()
	}
}
