//go:build linux

package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proc"
)

// shimKills is how often the server behind the shim is killed, and shimReaders how
// many callers read meanwhile.
const (
	shimKills   = 20
	shimReaders = 8
)

// shimHost is an MCP client that knows nothing of the shim. A read returns the
// error of one read; run calls a tool that has an effect.
type shimHost interface {
	reads() []func(context.Context) error
	run(context.Context) error
	close() error
}

// TestTheShimKeepsOtherClientsConnectedToRealServers kills the server at random
// moments while an unsuspecting client reads and calls tools.
func TestTheShimKeepsOtherClientsConnectedToRealServers(t *testing.T) {
	for _, server := range []struct {
		name string
		argv []string // below RESPAWN_NPM
	}{
		{"server-everything", []string{"mcp-server-everything", "stdio"}},
		{"server-filesystem", []string{"mcp-server-filesystem", "."}},
	} {
		for _, host := range []struct {
			name string
			dial func(ctx context.Context, w *shimWire, server string) (shimHost, error)
		}{
			{"official Go SDK", dialShimSDK},
			{"mcp-go", dialShimMark},
		} {
			t.Run(server.name+"/"+host.name, func(t *testing.T) {
				w := startShim(t, server.argv)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				h, err := host.dial(ctx, w, server.name)
				if err != nil {
					t.Fatalf("%v\n%s", err, w.stderr.String())
				}
				w.killWhileItWorks(ctx, t, h)
				if err := h.close(); err != nil {
					t.Errorf("close: %v", err)
				}
				w.check(t)
			})
		}
	}
}

// shimWire is a running shim and a record of what went over its pipes.
type shimWire struct {
	marker string
	cmd    *exec.Cmd
	in     *recorder
	out    *recorder
	stderr *recorder
	taken  string // folder with what each server read
	work   string // folder that the servers may change
}

// recorder is a pipe's end that keeps what passes.
type recorder struct {
	mu   sync.Mutex
	seen bytes.Buffer
	r    io.ReadCloser
	w    io.WriteCloser
}

func (r *recorder) note(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Write(b)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.String()
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.note(b[:n])
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) {
	r.note(b)
	if r.w == nil {
		return len(b), nil
	}
	return r.w.Write(b)
}

func (r *recorder) Close() error {
	if r.r != nil {
		return r.r.Close()
	}
	return r.w.Close()
}

// startShim starts the shim in front of an npm server, whose stdin passes through a
// file of its own in each life.
func startShim(t *testing.T, server []string) *shimWire {
	t.Helper()
	npm := peer{npm: true}.dir(t)
	w := &shimWire{
		marker: fmt.Sprintf("RESPAWN_PEER=%d/%s", os.Getpid(), t.Name()),
		taken:  t.TempDir(), work: t.TempDir(), stderr: &recorder{},
	}
	script := `tee "$TAKEN/$$" | "$0" "$@"`
	argv := append([]string{
		"run", "-max-restarts", "1000", "-window", "1h", "-max-delay", "100ms", "--",
		"sh", "-c", script, filepath.Join(npm, "node_modules", ".bin", server[0]),
	}, server[1:]...)
	w.cmd = exec.Command(filepath.Join(bin, "respawn"), argv...)
	w.cmd.Dir, w.cmd.Stderr = w.work, w.stderr
	w.cmd.Env = append(os.Environ(), w.marker, "TAKEN="+w.taken)
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.in, w.out = &recorder{w: in}, &recorder{r: out}
	if err := os.WriteFile(filepath.Join(w.work, "effects"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() }) // or a test that failed leaves it running
	return w
}

// killWhileItWorks runs readers and a caller of a tool, and kills the server again
// and again after some more reads were answered.
func (w *shimWire) killWhileItWorks(ctx context.Context, t *testing.T, h shimHost) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	stop := make(chan struct{})
	answered := make(chan struct{})
	var callers sync.WaitGroup
	for i := range shimReaders {
		reads := h.reads()
		callers.Go(func() {
			for n := i; ; n++ {
				if err := reads[n%len(reads)](ctx); err != nil {
					t.Errorf("a read failed: %v", err)
				}
				select {
				case answered <- struct{}{}:
				case <-stop:
					return
				}
			}
		})
	}
	callers.Go(func() {
		for {
			if err := h.run(ctx); err != nil && !isOurs(err) {
				t.Errorf("a tool failed: %v", err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range shimKills {
		// More than were in flight at the last death, so that no read is in flight
		// at three of them.
		for range 2*shimReaders + random.IntN(40) {
			select {
			case <-answered:
			case <-ctx.Done():
				t.Fatalf("no read is answered any more:\n%s", w.stderr.String())
			}
		}
		w.kill(t)
	}
	for range 2 * shimReaders {
		<-answered
	}
	close(stop)
	callers.Wait()
}

// kill kills the group of the server.
func (w *shimWire) kill(t *testing.T) {
	t.Helper()
	all, err := proc.Marked(w.marker)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Parent == w.cmd.Process.Pid && p.Group == p.PID && p.Name != "respawn" {
			if err := syscall.Kill(-p.Group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			return
		}
	}
}

// isOurs reports whether an error is one of the shim's for a lost call.
func isOurs(err error) bool {
	for _, code := range []int{relay.CodeOutcomeUnknown, relay.CodeNotDelivered} {
		if strings.Contains(err.Error(), fmt.Sprint(code)) {
			return true
		}
	}
	return strings.Contains(err.Error(), "respawn: the MCP server ")
}

// check waits for the shim's end and looks at what went over the wires.
func (w *shimWire) check(t *testing.T) {
	t.Helper()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the shim: %v\n%s", err, w.stderr.String())
	}
	// The shim does not wait for a guard that the system does not let run.
	if left, err := proc.Left(w.marker, patience); err != nil || len(left) > 0 {
		t.Errorf("these processes are left: %v %v", left, err)
	}
	if got := strings.Count(w.stderr.String(), "is started again"); got < shimKills {
		t.Errorf("%d restarts, want %d:\n%s", got, shimKills, w.stderr.String())
	}
	asked, answers := ids(t, w.in.String(), true), ids(t, w.out.String(), false)
	for id, n := range asked {
		if n != 1 || answers[id] != 1 {
			t.Errorf("request %s was made %d times and answered %d times", id, n, answers[id])
		}
	}
	for id := range answers {
		if asked[id] == 0 {
			t.Errorf("an answer to %s, which nobody asked", id)
		}
	}
	w.checkRuns(t)
	t.Logf("%d requests, %d bytes of answers", len(asked), len(w.out.String()))
}

// message is what a line of a recording is looked at for.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// ids counts the requests, or the answers, of a recording by their ids.
func ids(t *testing.T, recording string, requests bool) map[string]int {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(recording) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Errorf("no message: %.200s", line)
			continue
		}
		if m.ID != nil && (m.Method != "") == requests {
			count[string(m.ID)]++
		}
	}
	return count
}

// checkRuns counts what the servers were asked to run, over all their lives.
func (w *shimWire) checkRuns(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.taken, "*"))
	if err != nil || len(files) <= shimKills {
		t.Fatalf("%d servers were started (%v), want one more than kills", len(files), err)
	}
	runs := map[string]int{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(f)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var m message
			if json.Unmarshal(in.Bytes(), &m) == nil && m.Method == "tools/call" { // the last line may be half of one
				runs[string(m.ID)]++
			}
		}
		f.Close()
	}
	if len(runs) < shimKills {
		t.Errorf("%d tools were run", len(runs))
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("tool call %s was run %d times", id, n)
		}
	}
}

// shimSDK is the official SDK's client.
type shimSDK struct {
	session *mcp.ClientSession
	server  string
	n       atomic.Int64
}

func dialShimSDK(ctx context.Context, w *shimWire, server string) (shimHost, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.IOTransport{Reader: w.out, Writer: w.in}, nil)
	return &shimSDK{session: session, server: server}, err
}

func (h *shimSDK) reads() []func(context.Context) error {
	list := func(ctx context.Context) error {
		got, err := h.session.ListTools(ctx, nil)
		if err == nil && len(got.Tools) == 0 {
			return errors.New("no tools")
		}
		return err
	}
	if h.server != "server-everything" {
		return []func(context.Context) error{list}
	}
	return []func(context.Context) error{list, func(ctx context.Context) error {
		got, err := h.session.ListResources(ctx, nil)
		if err != nil {
			return err
		}
		_, err = h.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: got.Resources[0].URI})
		return err
	}, func(ctx context.Context) error {
		_, err := h.session.ListPrompts(ctx, nil)
		return err
	}}
}

func (h *shimSDK) run(ctx context.Context) error {
	name, args := effect(h.server, h.n.Add(1))
	_, err := h.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	return err
}

func (h *shimSDK) close() error { return h.session.Close() }

// effect is a tool of a server that may be run at most once for a call.
func effect(server string, n int64) (name string, args map[string]any) {
	if server == "server-everything" {
		return "echo", map[string]any{"message": fmt.Sprint(n)}
	}
	return "write_file", map[string]any{"path": "effects", "content": fmt.Sprint(n)}
}

// shimMark is mcp-go's client.
type shimMark struct {
	client *mcpgoclient.Client
	server string
	n      atomic.Int64
}

func dialShimMark(ctx context.Context, w *shimWire, server string) (shimHost, error) {
	c := mcpgoclient.NewClient(transport.NewIO(w.out, w.in, io.NopCloser(strings.NewReader(""))))
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	var init mcpgo.InitializeRequest
	init.Params.ClientInfo = mcpgo.Implementation{Name: "host", Version: "1"}
	init.Params.ProtocolVersion = mcpgo.LATEST_PROTOCOL_VERSION
	_, err := c.Initialize(ctx, init)
	return &shimMark{client: c, server: server}, err
}

func (h *shimMark) reads() []func(context.Context) error {
	list := func(ctx context.Context) error {
		got, err := h.client.ListTools(ctx, mcpgo.ListToolsRequest{})
		if err == nil && len(got.Tools) == 0 {
			return errors.New("no tools")
		}
		return err
	}
	if h.server != "server-everything" {
		return []func(context.Context) error{list}
	}
	return []func(context.Context) error{list, func(ctx context.Context) error {
		got, err := h.client.ListResources(ctx, mcpgo.ListResourcesRequest{})
		if err != nil {
			return err
		}
		var read mcpgo.ReadResourceRequest
		read.Params.URI = got.Resources[0].URI
		_, err = h.client.ReadResource(ctx, read)
		return err
	}}
}

func (h *shimMark) run(ctx context.Context) error {
	var call mcpgo.CallToolRequest
	name, args := effect(h.server, h.n.Add(1))
	call.Params.Name, call.Params.Arguments = name, args
	_, err := h.client.CallTool(ctx, call)
	return err
}

func (h *shimMark) close() error { return h.client.Close() }
