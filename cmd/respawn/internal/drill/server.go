package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// roleVar makes this program play a role instead of reading its arguments as a
// command. It is taken out of the environment at once, so that what the role
// starts is itself again.
const roleVar = "RESPAWN_DRILL_ROLE"

const (
	roleServer = "server" // the built-in server
	roleHelper = "helper" // a process that such a server starts, and that must not outlive it
)

// Play plays the role that the environment names, with the program's arguments,
// and returns an exit code. Without a role it reports false.
func Play(args []string) (code int, played bool) {
	switch takeRole() {
	case roleServer:
		return playServer(args), true
	case roleHelper:
		// Whoever started it is to be killed, and this one with it. The bound is for
		// the day when that fails.
		time.Sleep(time.Minute)
		return 0, true
	}
	return 0, false
}

func takeRole() string {
	role := os.Getenv(roleVar)
	os.Unsetenv(roleVar)
	return role
}

// Faults of the built-in server, with which the drill's own tests show that its
// checks can fail, and what a given command may be like.
const (
	faultTwice     = "twice"     // runs each tool twice
	faultFickle    = "fickle"    // lists other tools in each incarnation
	faultMute      = "mute"      // announces no change
	faultObstinate = "obstinate" // does not exit when told to
	faultToolless  = "toolless"  // no fault: it has no tools

	// Of one behind HTTP.
	faultSteady     = "steady"     // neither forgets its sessions nor cuts a response
	faultForgetful  = "forgetful"  // forgets each session that follows a forgotten one
	faultStreamless = "streamless" // has no standalone stream
	faultBoastful   = "boastful"   // says of each tool that it only reads
	faultModest     = "modest"     // says it of none
	faultUndying    = "undying"    // answers DELETE, and does not do it
	faultLocked     = "locked"     // does not let a client delete a session
	faultOpen       = "open"       // issues no sessions: no fault
)

// server is a small MCP server on stdin and stdout, of one era, made to be killed.
type server struct {
	modern bool
	fault  string
	stage  stage

	mu   sync.Mutex // guards all below, and the order of lines
	out  *bufio.Writer
	news map[string]string             // what is subscribed to: the resource, by the id of the stream (modern) or itself (legacy)
	busy map[string]context.CancelFunc // requests that take long, by id
	work sync.WaitGroup
}

func playServer(args []string) int {
	s := &server{
		out:  bufio.NewWriter(os.Stdout),
		news: map[string]string{}, busy: map[string]context.CancelFunc{},
	}
	fs := flag.NewFlagSet("drill server", flag.ContinueOnError)
	era := fs.String("era", "modern", "modern or legacy")
	fs.StringVar(&s.fault, "fault", "", "a fault to have")
	fs.StringVar((*string)(&s.stage), "stage", "", "folder for the record and the orders")
	if fs.Parse(args) != nil || fs.NArg() > 0 || *era != "modern" && *era != "legacy" {
		fmt.Fprintf(os.Stderr, "drill server: bad arguments %q\n", args)
		return 2
	}
	s.modern = *era == "modern"
	if err := s.stage.note(entry{Did: "started"}); err != nil {
		fmt.Fprintln(os.Stderr, "drill server:", err)
		return 1
	}
	if s.stage.told(orderExit) && s.fault != faultObstinate {
		fmt.Fprintln(os.Stderr, "told to exit at start")
		return exitCode
	}
	if err := startHelper(); err != nil {
		fmt.Fprintln(os.Stderr, "drill server: no helper:", err)
		return 1
	}
	for s.stage.told(orderHold) {
		time.Sleep(time.Millisecond) // nothing announces that a file is gone on every system
	}
	if err := s.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "drill server:", err)
		return 1
	}
	return 0
}

// startHelper starts a process that stays in the server's group, as the servers
// behind npx and uvx do.
func startHelper() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVar+"="+roleHelper)
	return cmd.Start() // never waited for: it lives as long as this process's group
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Key string `json:"key"`
		} `json:"arguments"`
		URI           string          `json:"uri"`
		Version       string          `json:"protocolVersion"`
		RequestID     json.RawMessage `json:"requestId"`
		Notifications struct {
			Tools bool     `json:"toolsListChanged"`
			URIs  []string `json:"resourceSubscriptions"`
		} `json:"notifications"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// serve answers until its input ends, and then lets go of what takes long.
func (s *server) serve(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var req request
			if err := json.Unmarshal(line, &req); err != nil {
				s.say(fmt.Sprintf(`"id":null,"error":{"code":%d,"message":"parse error"}`, codeParse))
			} else {
				s.take(&req)
			}
		}
		if err != nil {
			s.mu.Lock()
			for _, cancel := range s.busy {
				cancel()
			}
			s.mu.Unlock()
			s.work.Wait()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// JSON-RPC 2.0, section 5.1, and 2026-07-28, server/resources, Error Handling.
const (
	codeParse          = -32700
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

func (s *server) take(r *request) {
	if len(r.ID) == 0 {
		if r.Method == "notifications/cancelled" {
			s.cancel(string(r.Params.RequestID))
		}
		return
	}
	switch {
	case s.modern && r.Method == "server/discover":
		s.result(r, s.fresh(`"supportedVersions":["2026-07-28"],"capabilities":`+s.capabilities()+
			`,"_meta":{"io.modelcontextprotocol/serverInfo":`+info+`}`))
	case s.modern && r.Method == "subscriptions/listen":
		s.listen(r)
	case !s.modern && r.Method == "initialize":
		s.result(r, `"protocolVersion":"2025-11-25","capabilities":`+s.capabilities()+`,"serverInfo":`+info)
	case !s.modern && r.Method == "ping":
		s.result(r, "")
	case !s.modern && r.Method == "resources/subscribe":
		s.subscribe(r)
	case s.fault == faultToolless && strings.HasPrefix(r.Method, "tools/"):
		s.refuse(r, codeMethodNotFound, "no tools")
	case r.Method == "tools/list":
		s.result(r, s.fresh(`"tools":`+s.tools()))
	case r.Method == "tools/call":
		s.call(r)
	case r.Method == "resources/list":
		s.result(r, s.fresh(`"resources":[{"uri":"`+resource+`","name":"the record"}]`))
	case r.Method == "resources/read":
		s.read(r)
	default:
		s.refuse(r, codeMethodNotFound, "method not found: "+r.Method)
	}
}

const (
	info     = `{"name":"respawn drill","version":"1"}`
	resource = "drill://record"
)

func (s *server) capabilities() string {
	if s.fault == faultToolless {
		return `{"resources":{"subscribe":true}}`
	}
	return `{"tools":{},"resources":{"subscribe":true}}`
}

// fresh adds what a modern listing or read must say of its freshness: that it is
// stale at once (2026-07-28, server/utilities/caching).
func (s *server) fresh(fields string) string {
	if s.modern {
		fields += `,"ttlMs":0,"cacheScope":"private"`
	}
	return fields
}

// say writes one message, without its frame.
func (s *server) say(fields string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(fields)
}

func (s *server) sayLocked(fields string) {
	// A client that is gone is heard of by the end of the input.
	fmt.Fprintf(s.out, "{\"jsonrpc\":\"2.0\",%s}\n", fields)
	s.out.Flush()
}

// result answers with the inside of a result object.
func (s *server) result(r *request, fields string) {
	if s.modern {
		fields = `"resultType":"complete",` + fields
	}
	s.say(fmt.Sprintf(`"id":%s,"result":{%s}`, r.ID, fields))
}

func (s *server) refuse(r *request, code int, why string) {
	s.say(fmt.Sprintf(`"id":%s,"error":{"code":%d,"message":%s}`, r.ID, code, text(why)))
}

func text(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}
