package drill

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// webServer is a small MCP server behind HTTP, of one era, in this process: a
// restart of such a server is that it forgets its sessions, and a broken network
// that it aborts a response. Its record is what it was asked, not what its client
// says.
type webServer struct {
	modern bool
	fault  string
	url    string
	http   http.Server
	over   chan error // of Serve

	mu       sync.Mutex // guards all below
	asked    []asked
	ran      map[string]int  // executions, by key
	sessions map[string]bool // that it knows
	cuts     map[string]int  // how many more responses about a key or URI break
	gate     *gate
	streams  map[chan struct{}]bool // open listen streams; closing one cuts it
}

// openWebServer serves on a port of its own.
func openWebServer(modern bool, fault string) (*webServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &webServer{
		modern: modern, fault: fault, url: "http://" + l.Addr().String() + "/mcp", over: make(chan error, 1),
		ran: map[string]int{}, sessions: map[string]bool{}, cuts: map[string]int{}, streams: map[chan struct{}]bool{},
	}
	s.http.Handler = s
	s.http.ErrorLog = log.New(io.Discard, "", 0)
	go func() { s.over <- s.http.Serve(l) }()
	return s, nil
}

// close ends the server and its connections.
func (s *webServer) close() error {
	err := s.http.Close()
	if end := <-s.over; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := asked{At: time.Now(), Verb: r.Method, Session: r.Header.Get(headerSession)}
	var q request
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &q)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.Method, a.ID, a.What = q.Method, string(q.ID), q.Params.URI
		if q.Method == "tools/call" {
			a.What = q.Params.Arguments.Key
		}
	}
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, a)
	gate := s.gate
	s.mu.Unlock()
	if gate != nil && q.Method == "tools/call" {
		s.wait(gate, r)
	}
	status, done := s.admit(a)
	s.mu.Lock()
	s.asked[n].Status = status
	s.mu.Unlock()
	switch {
	case done && status/100 == 2:
		w.WriteHeader(status)
	case done:
		http.Error(w, http.StatusText(status), status)
	case r.Method == http.MethodGet: // the stream is accepted, and over at once
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(status)
	default:
		s.answer(w, r, &q, a)
	}
}

// wait holds a call at the gate. The last one restarts the server.
func (s *webServer) wait(g *gate, r *http.Request) {
	s.mu.Lock()
	if g.missing--; g.missing == 0 {
		if s.fault != faultSteady {
			clear(s.sessions)
		}
		s.gate = nil
		close(g.open)
	}
	s.mu.Unlock()
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
}

// admit decides what HTTP alone decides (2025-11-25, basic/transports, Session
// Management; 2026-07-28 has neither sessions nor GET), and whether that was all.
func (s *webServer) admit(a asked) (status int, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.Verb != http.MethodPost && s.modern:
		return http.StatusMethodNotAllowed, true
	case !s.modern && a.Method == "initialize":
		return http.StatusOK, false
	case !s.modern && a.Method == "server/discover":
		return http.StatusBadRequest, true
	case s.fault == faultOpen && a.Verb != http.MethodPost:
		return http.StatusMethodNotAllowed, true
	case s.fault == faultOpen && a.ID == "":
		return http.StatusAccepted, true
	case s.fault == faultOpen:
		return http.StatusOK, false
	case !s.modern && a.Session == "":
		return http.StatusBadRequest, true
	case !s.modern && !s.sessions[a.Session]:
		return http.StatusNotFound, true
	case a.Verb == http.MethodDelete && s.fault == faultLocked:
		return http.StatusMethodNotAllowed, true
	case a.Verb == http.MethodDelete:
		if s.fault != faultUndying {
			delete(s.sessions, a.Session)
		}
		return http.StatusNoContent, true
	case a.Verb == http.MethodGet && s.fault == faultStreamless:
		return http.StatusMethodNotAllowed, true
	case a.Verb == http.MethodPost && a.ID == "":
		return http.StatusAccepted, true
	}
	return http.StatusOK, false
}

// answer answers a request whose session, if it needs one, is known.
func (s *webServer) answer(w http.ResponseWriter, r *http.Request, q *request, a asked) {
	switch {
	case s.modern && q.Method == "server/discover":
		s.result(w, q, fresh+`"supportedVersions":["2026-07-28"],"capabilities":`+webCapabilities+
			`,"_meta":{"io.modelcontextprotocol/serverInfo":`+info+`}`)
	case s.modern && q.Method == "subscriptions/listen":
		s.listen(w, r, q)
	case !s.modern && q.Method == "initialize":
		if s.fault != faultOpen {
			w.Header().Set(headerSession, s.issue())
		}
		s.result(w, q, `"protocolVersion":"2025-11-25","capabilities":`+webCapabilities+`,"serverInfo":`+info)
	case !s.modern && q.Method == "ping":
		s.result(w, q, "")
	case q.Method == "tools/list":
		s.result(w, q, s.freshly()+`"tools":`+s.tools())
	case q.Method == "tools/call":
		s.run(a.What)
		s.mayCut(w, a.What)
		s.result(w, q, `"content":[{"type":"text","text":`+text("ran as request "+a.ID)+`}]`)
	case q.Method == "resources/read":
		s.mayCut(w, a.What)
		s.result(w, q, s.freshly()+`"contents":[{"uri":`+text(a.What)+`,"text":`+text("read by request "+a.ID)+`}]`)
	default:
		reply(w, fmt.Sprintf(`"id":%s,"error":{"code":%d,"message":"method not found"}`, q.ID, codeMethodNotFound))
	}
}

const (
	webCapabilities = `{"tools":{},"resources":{"subscribe":true}}`
	// fresh is what a modern listing or read says of its freshness: that it is stale
	// at once (2026-07-28, server/utilities/caching).
	fresh = `"ttlMs":0,"cacheScope":"private",`
)

func (s *webServer) freshly() string {
	if s.modern {
		return fresh
	}
	return ""
}

// toolLook only looks, and says so; toolCount says nothing of itself.
const toolLook = "look"

func (s *webServer) tools() string {
	tool := func(name string, readOnly bool) string {
		hint := ""
		if readOnly {
			hint = `"annotations":{"readOnlyHint":true},`
		}
		return `{"name":` + text(name) + `,` + hint +
			`"inputSchema":{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}}`
	}
	last := toolLook
	if s.fault == faultFickle {
		last = fmt.Sprintf("look-%d", len(s.about("tools/list", "")))
	}
	return "[" + tool(toolCount, s.fault == faultBoastful) + "," + tool(last, s.fault != faultModest) + "]"
}

// run is the execution of a tool, before anything becomes of its answer.
func (s *webServer) run(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran[key]++; s.fault == faultTwice {
		s.ran[key]++
	}
}

// mayCut breaks the response if it was told to: it has begun, as a stream, and its
// connection ends.
func (s *webServer) mayCut(w http.ResponseWriter, what string) {
	s.mu.Lock()
	cut := s.cuts[what] > 0
	s.cuts[what]--
	s.mu.Unlock()
	if !cut || s.fault == faultSteady {
		return
	}
	stream(w, ": working\n\n")
	panic(http.ErrAbortHandler) // net/http: ends the connection
}

// issue begins a session.
func (s *webServer) issue() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := rand.Text()
	again := slices.ContainsFunc(s.asked, func(a asked) bool { return a.Status == http.StatusNotFound })
	if s.fault != faultForgetful || !again {
		s.sessions[id] = true
	}
	return id
}

// listen opens a stream and tells of one change (2026-07-28, patterns/subscriptions).
func (s *webServer) listen(w http.ResponseWriter, r *http.Request, q *request) {
	cut := make(chan struct{})
	s.mu.Lock()
	s.streams[cut] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, cut)
	}()
	meta := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`, q.ID)
	say := func(method, params string) {
		stream(w, `data: {"jsonrpc":"2.0","method":"notifications/`+method+`","params":{`+params+`,`+meta+"}}\n\n")
	}
	say("subscriptions/acknowledged", `"notifications":{"resourceSubscriptions":[`+text(resource)+`]}`)
	if s.fault != faultMute {
		say("resources/updated", `"uri":`+text(resource))
	}
	select {
	case <-r.Context().Done():
	case <-cut:
		panic(http.ErrAbortHandler)
	}
}

// result answers with the inside of a result object.
func (s *webServer) result(w http.ResponseWriter, q *request, fields string) {
	if s.modern {
		fields = `"resultType":"complete",` + fields
	}
	reply(w, fmt.Sprintf(`"id":%s,"result":{%s}`, q.ID, fields))
}

func reply(w http.ResponseWriter, fields string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0",%s}`, fields) // a client that is gone is no concern
}

// stream writes a part of an event stream at once.
func stream(w http.ResponseWriter, part string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, part)
	http.NewResponseController(w).Flush()
}
