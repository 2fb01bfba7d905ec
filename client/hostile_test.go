package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

func TestB074_AnAnswerOverTheLimitEndsItsCallAloneAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "resources/read" {
				return false, nil
			}
			l.Emit(transports.Noise{Bytes: 65 << 20, ID: string(m.ID)})
			return true, nil
		}}
		c := connect(t, p, client.Config{RetryLost: true})
		err := c.Call(t.Context(), "resources/read", map[string]string{"uri": "x"}, nil)
		if large := new(client.TooLargeError); !errors.As(err, &large) || large.Bytes != 65<<20 {
			t.Errorf("the call ended with %v", err)
		}
		if got := tool(t.Context(), c); got != "generation 1" {
			t.Errorf("the next call: %s", got)
		}
		if n := len(p.got("resources/read")); n != 1 {
			t.Errorf("the read was sent %d times", n)
		}
	})
}

func TestAListingWhoseCursorsGoInCirclesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "tools/list" {
				return false, nil
			}
			pages++
			l.result(m, `{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":%q}`, pages, []string{"a", "b"}[pages%2])
			return true, nil
		}}
		c := connect(t, p, client.Config{})
		var names []string
		var last error
		for tool, err := range c.Tools(t.Context()) {
			if err != nil {
				last = err
				break
			}
			names = append(names, tool.Name)
		}
		if decode := new(client.DecodeError); !errors.As(last, &decode) || pages != 3 {
			t.Errorf("after %d pages with %v: %v", pages, names, last)
		}
	})
}
