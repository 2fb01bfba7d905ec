package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// web is a scripted HTTP server on the memory transport: it sees what a transport would put on the
// wire, and answers with the events that a transport would emit. The zero value is a modern one.
type web struct {
	legacy       bool
	open         bool   // legacy: it has a standalone stream
	bare         bool   // legacy: it issues no session id
	capabilities string // "" means none
	// on takes an exchange before the defaults do, and reports whether it did.
	on func(x *exchange) bool

	turn  sync.Mutex // held while on runs
	mu    sync.Mutex
	next  int      // number of the last session
	knows []string // sessions that are not forgotten
	seen  []*exchange
	read  int // how many of them took has told
	gets  []*exchange
}

// exchange is one HTTP exchange as the server sees it.
type exchange struct {
	transports.Outbound
	*memory.Conn
	web     *web
	session string  // that it carries
	issued  *string // to the transport it came by
}

func (w *web) factory() transports.Factory {
	return memory.Factory(transports.Posts, "web", w.serve)
}

// serve is one transport: it keeps the session id that its initialize was given.
func (w *web) serve(ctx context.Context, c *memory.Conn) error {
	issued := ""
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		x := &exchange{Outbound: out, Conn: c, web: w, issued: &issued}
		w.mu.Lock()
		if out.Method != "initialize" && out.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
			x.session = issued
		}
		w.seen = append(w.seen, x)
		on := w.on
		w.mu.Unlock()
		if on == nil || !w.takes(on, x) {
			x.answer()
		}
	}
}

// takes runs on for one exchange at a time, though several transports may be alive.
func (w *web) takes(on func(x *exchange) bool, x *exchange) bool {
	w.turn.Lock()
	defer w.turn.Unlock()
	return on(x)
}

// answer is what a well-behaved server of the web's era does.
func (x *exchange) answer() {
	w := x.web
	w.mu.Lock()
	legacy, open, capabilities := w.legacy, w.open, or(w.capabilities, `{}`)
	w.mu.Unlock()
	switch {
	case x.Op == transports.OpListen && legacy && open && w.knowsIt(x.session):
		w.mu.Lock()
		w.gets = append(w.gets, x)
		w.mu.Unlock()
		x.Emit(transports.Opened{Ref: x.Ref})
	case x.Op == transports.OpListen && legacy && open:
		x.reject(404, "")
	case x.Op == transports.OpListen:
		x.reject(405, "")
	case legacy && x.Method == "initialize":
		x.initialize()
	case legacy && x.Method == "server/discover":
		x.reject(400, "Bad Request: no session")
	case x.refused(legacy, w.knowsIt(x.session)):
	case x.ID == "":
	case !legacy && x.Method == "initialize":
		x.fail(-32022, "no handshake", `{"supported":["2026-07-28"]}`)
	case x.Method == "server/discover":
		x.result(`{"supportedVersions":["2026-07-28"],"capabilities":` + capabilities + `}`)
	case x.Method == "tools/call":
		x.result(`{"content":[{"type":"text","text":"ran"}]}`)
	case x.Method == "tools/list":
		x.result(`{"tools":[]}`)
	case x.Method == "resources/read":
		x.result(`{"contents":[]}`)
	case x.Method == "subscriptions/listen":
		x.acknowledge()
	default:
		x.result(`{}`)
	}
}

// refused refuses what carries no session that a legacy server knows, or one to a modern
// server, and reports whether it did.
func (x *exchange) refused(legacy, known bool) bool {
	switch {
	case legacy && !known:
		x.reject(404, "")
	case !legacy && x.session != "":
		x.reject(400, x.error(-32020, "the headers of a modern request are missing", ""))
	default:
		return false
	}
	return true
}

// initialize begins a session.
func (x *exchange) initialize() {
	w := x.web
	w.mu.Lock()
	if w.next++; !w.bare {
		*x.issued = fmt.Sprintf("S%d", w.next)
		w.knows = append(w.knows, *x.issued)
	}
	capabilities := or(w.capabilities, `{}`)
	w.mu.Unlock()
	x.result(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"web","version":"1"}}`)
}

func (w *web) knowsIt(session string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bare || slices.Contains(w.knows, session)
}

// forget makes the server forget every session.
func (w *web) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.knows = nil
}

// becomes replaces on.
func (w *web) becomes(on func(x *exchange) bool) { w.become(func(w *web) { w.on = on }) }

// become changes the server while nobody looks.
func (w *web) become(change func(w *web)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func (x *exchange) result(result string) {
	x.Write(x.Ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, x.ID, result))
}

func (x *exchange) fail(code int, text, data string) {
	x.Write(x.Ref, x.error(code, text, data))
}

// error is a JSON-RPC error that answers the exchange; data "" is none.
func (x *exchange) error(code int, text, data string) string {
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, or(x.ID, "null"), code, text, data)
}

// orphan is a JSON-RPC error that names no request.
const orphan = `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no valid session"}}`

func (x *exchange) reject(status int, body string, header ...string) {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	x.Emit(transports.Rejected{Ref: x.Ref, Status: status, Header: h, Body: []byte(body), Session: x.session})
}

// cut ends the response without the answer; lastID "" is a stream that showed no event id.
func (x *exchange) cut(lastID string) {
	x.Emit(transports.Broken{Ref: x.Ref, LastID: lastID, Cause: errCut})
}

// unsent refuses the connection.
func (x *exchange) unsent() {
	x.Emit(transports.Unsent{Ref: x.Ref, Cause: errNoConnection})
}

// say sends a notification on the exchange.
func (x *exchange) say(method, params string) {
	ref := x.Ref
	if x.Op == transports.OpListen {
		ref = 0
	}
	x.Write(ref, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

// acknowledge agrees to all that a listen request asks for.
func (x *exchange) acknowledge() {
	var m struct {
		Params struct {
			Notifications json.RawMessage `json:"notifications"`
		} `json:"params"`
	}
	_ = json.Unmarshal(x.Frame, &m)
	x.say("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{%q:%s},"notifications":%s}`, subscriptionID, x.ID, m.Params.Notifications))
}

// tell sends a notification of the subscription that a listen request opened.
func (x *exchange) tell(method string) {
	x.say(method, fmt.Sprintf(`{"_meta":{%q:%s}}`, subscriptionID, x.ID))
}

// String is "method(session)"; a GET is "GET(session)", or "GET 7(session)" from event 7 on.
func (x *exchange) String() string {
	what := or(x.Method, "reply")
	switch {
	case x.Op == transports.OpListen && x.LastID == "":
		what = "GET"
	case x.Op != transports.OpMessage:
		what = "GET " + x.LastID
	}
	return fmt.Sprintf("%s(%s)", what, x.session)
}

// took lists what came over the wire since it was asked last.
func (w *web) took() []string {
	var lines []string
	for _, x := range w.exchanges() {
		lines = append(lines, x.String())
	}
	return lines
}

// exchanges returns them since they were asked for last.
func (w *web) exchanges() []*exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.seen[w.read:]
	w.read = len(w.seen)
	return slices.Clone(now)
}

// count is how many exchanges of a method there were in all.
func (w *web) count(method string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.seen {
		if x.Method == method && x.Op == transports.OpMessage || method == "GET" && x.Op != transports.OpMessage {
			n++
		}
	}
	return n
}

// stream is the newest standalone stream.
func (w *web) stream() *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gets[len(w.gets)-1]
}

// params of the exchange's message.
func (x *exchange) params() string {
	var m struct {
		Params json.RawMessage `json:"params"`
	}
	_ = json.Unmarshal(x.Frame, &m)
	return string(m.Params)
}

type constError string

func (e constError) Error() string { return string(e) }

const (
	errCut          = constError("connection reset by peer")
	errNoConnection = constError("connection refused")
)

// only is an on that takes requests of one method.
func only(method string, do func(x *exchange)) func(*exchange) bool {
	return func(x *exchange) bool {
		if x.Method != method || x.Op != transports.OpMessage {
			return false
		}
		do(x)
		return true
	}
}

// times is an on that holds for the first n exchanges that it would take.
func times(n int, on func(*exchange) bool) func(*exchange) bool {
	return func(x *exchange) bool {
		if n == 0 || !on(x) {
			return false
		}
		n--
		return true
	}
}

// dial connects to w and forgets how; the client is closed when the test, or its bubble, is over.
func dial(t *testing.T, w *web, cfg client.Config) *client.Client {
	t.Helper()
	c := connectTo(t, w.factory(), cfg)
	synctest.Wait()
	w.took()
	return c
}

// bubble runs a test in a synctest bubble under a name of its own.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
		t.Helper()
		synctest.Test(t, test)
	})
}

// fate is the outcome of a call and the documented type of its cause.
func fateOf(err error) string {
	var (
		lost    *client.LostError
		peer    *client.PeerError
		session *client.SessionError
		stream  *client.StreamError
		rest    *client.HTTPError
		down    *client.NotServingError
		timeout *client.TimeoutError
	)
	switch {
	case err == nil:
		return "answered"
	case !errors.As(err, &lost):
		if errors.As(err, &peer) {
			return fmt.Sprintf("the peer says %d", peer.Code)
		}
		return "neither lost nor answered: " + err.Error()
	}
	cause := fmt.Sprint(lost.Cause)
	switch {
	case errors.Is(err, client.ErrCursorLost):
		cause = "cursor lost"
	case errors.Is(err, client.ErrClosed):
		cause = "closed"
	case errors.As(err, &session) && session.Err != nil:
		cause = "no new session"
	case errors.As(err, &session):
		cause = "refused twice"
	case errors.As(err, &stream):
		cause = "stream broken"
	case errors.As(err, &down):
		cause = "nobody serves"
	case errors.As(err, &timeout):
		cause = "timeout"
	case errors.Is(err, errNoConnection):
		cause = "no connection"
	case errors.As(err, &rest):
		cause = fmt.Sprintf("HTTP %d", rest.Status)
	}
	return lost.Outcome.String() + ": " + cause
}

// ask makes a request that every kind of server takes, and tells its fate.
func ask(ctx context.Context, c *client.Client, method string) string {
	return fateOf(c.Call(ctx, method, json.RawMessage(`{"name":"x","uri":"file:///x"}`), nil))
}

// asks does so n times at once, and lists the fates.
func asks(ctx context.Context, c *client.Client, n int, method string) func() []string {
	fates := make(chan string, n)
	for range n {
		go func() { fates <- ask(ctx, c, method) }()
	}
	return func() []string {
		var all []string
		for range n {
			all = append(all, <-fates)
		}
		return sorted(all)
	}
}

// same is n times the same line.
func same(n int, line string) []string { return slices.Repeat([]string{line}, n) }

// find is the newest exchange of a method.
func (w *web) find(method string) *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range slices.Backward(w.seen) {
		if x.Method == method {
			return x
		}
	}
	return nil
}
