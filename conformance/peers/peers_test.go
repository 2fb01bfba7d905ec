//go:build linux

// Package peers tests against servers that others wrote, as real processes. It
// is a module of its own, so that nobody who uses respawn gets its dependencies.
package peers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bin holds the Go servers and the command, built once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "respawn-peers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	build := exec.Command("go", "build", "-o", bin, "./sdkserver", "./mcpgoserver",
		"github.com/respawn-mcp/respawn/cmd/respawn")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the servers:", err)
		return 1
	}
	return m.Run()
}

// peer is a server that somebody else wrote.
type peer struct {
	name string
	// argv is how its users start it. The npm servers come through npx, which
	// puts npm and a shell before the server; the Go servers get a shell, so
	// that each has a leader and a last descendant that differ.
	argv []string
	npm  bool // needs the npm servers, and runs in their folder
	era  string
	call *mcp.CallToolParams // any tool that answers
}

func all() []peer {
	echo := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}}
	return []peer{
		{
			name: "server-everything", argv: []string{"npx", "--no", "--", "mcp-server-everything", "stdio"}, npm: true, era: "legacy",
			call: &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}},
		},
		{
			name: "server-filesystem", argv: []string{"npx", "--no", "--", "mcp-server-filesystem", "."}, npm: true, era: "legacy",
			call: &mcp.CallToolParams{Name: "list_allowed_directories"},
		},
		{name: "official Go SDK", argv: shell("sdkserver"), era: "modern", call: echo},
		{name: "mcp-go", argv: shell("mcpgoserver"), era: "modern", call: echo},
	}
}

// shell runs a Go server below a shell that can't replace itself with it.
func shell(server string) []string {
	return []string{"sh", "-c", `"$0"; exit $?`, filepath.Join(bin, server)}
}

// dir is where the peer runs. A peer that is not installed skips the test,
// unless RESPAWN_REAL=1 says that everything is.
func (p peer) dir(t *testing.T) string {
	t.Helper()
	if !p.npm {
		return t.TempDir()
	}
	dir := os.Getenv("RESPAWN_NPM")
	if dir == "" && os.Getenv("RESPAWN_REAL") == "1" {
		t.Fatal("RESPAWN_REAL=1, but RESPAWN_NPM names no folder with the npm servers")
	}
	if dir == "" {
		t.Skip("the npm servers are not installed here; make real installs them")
	}
	return dir
}

// probe is the first request of a client that speaks both eras (2026-07-28,
// stdio, Backward Compatibility).
const probe = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"peers","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"

// TestWhatRealPeersAnswerToTheProbe holds what the tests of recovery rest on:
// that both eras are there, and how a legacy server turns the probe down.
func TestWhatRealPeersAnswerToTheProbe(t *testing.T) {
	type answer struct {
		Version string
		Code    int
	}
	want := map[string]answer{
		"legacy": {Code: -32601},
		"modern": {Version: "2026-07-28"},
	}
	for _, p := range all() {
		t.Run(p.name, func(t *testing.T) {
			cmd := exec.Command(p.argv[0], p.argv[1:]...)
			cmd.Dir = p.dir(t)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte(probe)); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var frame struct {
				Result struct{ SupportedVersions []string }
				Error  struct{ Code int }
			}
			if err := json.Unmarshal(line, &frame); err != nil {
				t.Fatal(err)
			}
			got := answer{Code: frame.Error.Code}
			if versions := frame.Result.SupportedVersions; len(versions) > 0 {
				got.Version = versions[0]
			}
			if diff := cmp.Diff(want[p.era], got); diff != "" {
				t.Errorf("the answer to the probe (-want +got):\n%s", diff)
			}
			in.Close() // the graceful way to stop a server on stdio
			if err := cmd.Wait(); err != nil {
				t.Errorf("after its stdin was closed: %v", err)
			}
		})
	}
}
