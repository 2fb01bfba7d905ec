package client

import (
	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// face is what the engine sees of a Client.
type face Client

// codeMethodNotFound is JSON-RPC 2.0's.
const codeMethodNotFound = -32601

// Take gives notifications to the general handler and refuses requests.
func (f *face) Take(gen uint64, m engine.Incoming, reply func(engine.Answer)) {
	if reply != nil {
		reply(engine.Answer{Err: &engine.RPCError{Code: codeMethodNotFound, Message: "method not found: " + m.Method}})
		return
	}
	if told := f.cfg.OnNotification; told != nil {
		f.engine.Tell(func() { told(Notification{Method: m.Method, Params: m.Params, Generation: gen}) })
	}
}

// Serves has nothing to rebuild yet.
func (f *face) Serves(uint64, *engine.Session) {}
