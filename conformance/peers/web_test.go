//go:build linux

package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proc"
	"github.com/respawn-mcp/respawn/conformance/peers/internal/proxy"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// webPeer is a server that somebody else wrote, over Streamable HTTP.
type webPeer struct {
	name string
	npm  bool // needs the npm packages, and runs in their folder
	era  string
	// argv starts it on a port. tool is the name of one more tool, for a server
	// that can have one.
	argv func(addr, tool string) []string
	// resumes says that its events have ids and can be replayed.
	resumes bool
	// everything is the reference server, whose tools are its own.
	everything bool
}

func webPeers() []webPeer {
	goServer := func(name string, flags ...string) func(addr, tool string) []string {
		return func(addr, tool string) []string {
			return append([]string{filepath.Join(bin, name), "-http", addr, "-tool", tool}, flags...)
		}
	}
	script, err := filepath.Abs("tsserver/server.mjs")
	if err != nil {
		panic(err)
	}
	tsServer := func(flags ...string) func(addr, tool string) []string {
		return func(addr, tool string) []string {
			argv := append([]string{"node", script}, flags...)
			if tool != "" {
				argv = append(argv, "-tool", tool)
			}
			return append(argv, port(addr))
		}
	}
	return []webPeer{
		{name: "official Go SDK, sessions", era: "legacy", argv: goServer("sdkserver")},
		{name: "official Go SDK, sessions and event ids", era: "legacy", argv: goServer("sdkserver", "-resumable"), resumes: true},
		{name: "official Go SDK, stateless", era: "modern", argv: goServer("sdkserver", "-stateless")},
		{
			name: "server-everything", npm: true, era: "legacy", resumes: true, everything: true,
			argv: func(addr, _ string) []string {
				return []string{"env", "PORT=" + port(addr), "node_modules/.bin/mcp-server-everything", "streamableHttp"}
			},
		},
		{name: "TypeScript SDK v2, sessions", npm: true, era: "legacy", argv: tsServer()},
		{name: "TypeScript SDK v2, modern", npm: true, era: "modern", argv: tsServer("-modern")},
		{name: "mcp-go, sessions", era: "legacy", argv: goServer("mcpgoserver", "-legacy")},
		{name: "mcp-go", era: "modern", argv: goServer("mcpgoserver")},
	}
}

func port(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return port
}

// webServer is one process of a webPeer.
type webServer struct {
	cmd    *exec.Cmd
	output chan struct{} // closed when its output is over
}

// serve starts the peer and waits until it says that it listens.
func (p webPeer) serve(t *testing.T, addr, tool, marker string) *webServer {
	t.Helper()
	argv := p.argv(addr, tool)
	s := &webServer{cmd: exec.Command(argv[0], argv[1:]...), output: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env = peer{npm: p.npm}.dir(t), append(os.Environ(), marker)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	says, err := s.cmd.StderrPipe() // where all of them say it
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listens := make(chan struct{})
	go func() {
		defer close(s.output)
		for lines := bufio.NewScanner(says); lines.Scan(); {
			if strings.Contains(lines.Text(), "listening on") {
				close(listens)
				break
			}
			t.Log(lines.Text())
		}
		_, _ = io.Copy(io.Discard, says)
	}()
	select {
	case <-listens:
		return s
	case <-s.output:
	case <-time.After(patience):
	}
	s.kill()
	t.Fatalf("the server did not listen; it ended: %v", s.cmd.ProcessState)
	return nil
}

// kill kills the server with all its descendants; its death is certain then.
func (s *webServer) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.output
	_ = s.cmd.Wait() // always "signal: killed"
}

// webRig is a peer behind a proxy, and a client of it.
type webRig struct {
	*client.Client
	peer      webPeer
	proxy     *proxy.Proxy
	server    *webServer
	addr      string
	marker    string
	reconnect chan client.Reconnect
}

// rigWeb starts a peer and connects to it. After the test nothing of either may
// be left.
func rigWeb(t *testing.T, p webPeer, cfg client.Config) *webRig {
	t.Helper()
	noLeaks := goleak.IgnoreCurrent()
	r := &webRig{
		peer:      p,
		marker:    fmt.Sprintf("RESPAWN_PEER=%d/%s", os.Getpid(), t.Name()),
		reconnect: make(chan client.Reconnect, 100), // more than any test has
	}
	t.Cleanup(func() {
		if left, err := proc.Marked(r.marker); err != nil || len(left) > 0 {
			t.Errorf("these processes are left: %v %v", left, err)
		}
		goleak.VerifyNone(t, noLeaks)
	})
	var err error
	if r.addr, err = proxy.FreeAddr(); err != nil {
		t.Fatal(err)
	}
	r.server = p.serve(t, r.addr, "", r.marker)
	t.Cleanup(func() { r.server.kill() })
	if r.proxy, err = proxy.Start(r.addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.OnReconnect = func(c client.Reconnect) { r.reconnect <- c }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r.Client, err = client.Connect(ctx, streamable.Endpoint("http://"+r.proxy.Addr()+"/mcp", nil), &cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// restart kills the server and starts it again, with one more tool if it can have
// one. In between connections are refused, as they would be without the proxy.
func (r *webRig) restart(t *testing.T, tool string) {
	t.Helper()
	r.proxy.Refuse()
	r.server.kill()
	r.server = r.peer.serve(t, r.addr, tool, r.marker)
	if err := r.proxy.Up(); err != nil {
		t.Fatal(err)
	}
}

func (r *webRig) toolNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for tool, err := range r.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// within bounds a wait.
func within(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
	}
}
