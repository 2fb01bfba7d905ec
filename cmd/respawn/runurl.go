package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// isURL reports whether respawn run is asked for a server that is reached by HTTP
// rather than started.
func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

func (f *runFlags) registerHeaders(fs *flag.FlagSet) {
	fs.Var(&f.header, "header", "for a URL: 'Name: value' to send with each request; may be repeated")
	fs.Var(&f.headerEnv, "header-env", "for a URL: NAME=VARIABLE, a header with the value of a variable; may be repeated")
}

// endpoint is how to reach such a server. What is wrong with a URL or a header is told
// without it: it may hold a secret.
func (f *runFlags) endpoint(address string, rest []string) (*streamable.Config, error) {
	if len(rest) > 0 {
		return nil, errors.New("a URL takes no arguments")
	}
	conf := &streamable.Config{URL: address, Header: http.Header{}, MaxMessage: int(f.maxMessage)}
	for _, h := range f.header {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, fmt.Errorf("%s wants 'Name: value'", f.name("header"))
		}
		conf.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	for n, h := range f.headerEnv {
		name, variable, ok := strings.Cut(h, "=")
		value, set := os.LookupEnv(variable)
		switch {
		case !ok:
			return nil, fmt.Errorf("%s wants NAME=VARIABLE", f.name("header-env"))
		case !set:
			return nil, fmt.Errorf("%s: the variable of header %d is not set", f.name("header-env"), n+1)
		}
		conf.Header.Add(name, value)
	}
	if bad := new(streamable.ConfigError); errors.As(conf.Validate(), &bad) {
		if bad.Field == "Header" {
			return nil, errors.New("one of the headers " + bad.Why)
		}
		return nil, errors.New("the URL " + bad.Why)
	}
	return conf, nil
}

// several is a flag that may be given more than once; its environment twin holds
// one a line.
type several []string

func (v *several) String() string { return strings.Join(*v, "\n") }

func (v *several) Set(s string) error {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			*v = append(*v, line)
		}
	}
	return nil
}

// peer is the server that a command line names. One that is started is watched by
// the guard.
func (s *shim) peer() transports.Factory {
	if s.opt.endpoint != nil {
		s.begin()
		return s.opt.endpoint.Factory()
	}
	return s.child()
}
