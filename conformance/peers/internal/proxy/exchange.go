package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Exchange is one HTTP request and what came of it.
type Exchange struct {
	Verb    string // GET, POST or DELETE
	Session string // Mcp-Session-Id of the request
	LastID  string // Last-Event-ID of the request
	Method  string // of the JSON-RPC message; "" for a reply, a GET or a DELETE
	ID      string // the text of its id; "" for a notification
	Params  json.RawMessage
	Status  int  // of the response; 0: none came
	Asked   int  // bytes of the request
	Size    int  // bytes of the response, once it has come whole
	Broken  bool // by a Fault
	Over    bool // nothing more comes of it
}

// Tool is the name of the tool that a tools/call calls.
func (x Exchange) Tool() string {
	var params struct{ Name string }
	if x.Method != "tools/call" || json.Unmarshal(x.Params, &params) != nil {
		return ""
	}
	return params.Name
}

// Says reports whether a text stands anywhere in the parameters.
func (x Exchange) Says(text string) bool { return strings.Contains(string(x.Params), text) }

func noted(req *http.Request, body []byte, size int) *Exchange {
	x := &Exchange{Asked: size, Verb: req.Method, Session: req.Header.Get("Mcp-Session-Id"), LastID: req.Header.Get("Last-Event-Id")}
	var message struct {
		Method string
		ID     json.RawMessage
		Params json.RawMessage
	}
	if json.Unmarshal(body, &message) == nil {
		x.Method, x.ID, x.Params = message.Method, string(message.ID), message.Params
	}
	return x
}

// Exchanges are those that began since the proxy started, in that order.
func (p *Proxy) Exchanges() []Exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Exchange
	for _, x := range p.exchanges {
		all = append(all, *x)
	}
	return all
}

// Count is how many exchanges are as which says.
func (p *Proxy) Count(which func(Exchange) bool) int {
	return len(slices.DeleteFunc(p.Exchanges(), func(x Exchange) bool { return !which(x) }))
}

// begin notes an exchange and takes the fault that is meant for it, or nil.
func (p *Proxy) begin(x *Exchange) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanges = append(p.exchanges, x)
	for i, f := range p.faults {
		if f.When(*x) {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			x.Broken = true
			return f
		}
	}
	return nil
}

// Await returns the first exchange that is as which says, waiting until it is.
func (p *Proxy) Await(ctx context.Context, which func(Exchange) bool) (Exchange, error) {
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		if all := p.Exchanges(); slices.ContainsFunc(all, which) {
			return all[slices.IndexFunc(all, which)], nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Exchange{}, context.Cause(ctx)
		}
	}
}

// update changes what is noted of an exchange.
func (p *Proxy) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.news)
	p.news = make(chan struct{})
}
