//go:build unix

// Command ledger is an MCP server that writes down, in the file that is its first
// argument, what it does before it says so. Its second argument is its era.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
)

func main() { serve(os.Args[1], os.Args[2] == "legacy") }

// serve dies by its own hand, as a call asks: when it was "read", "executed" or
// "answered", and at most once for a call, since a read is made again.
func serve(path string, legacy bool) {
	seen := map[string]bool{}
	if before, err := os.ReadFile(path); err == nil {
		for _, line := range strings.Split(string(before), "\n") {
			seen[line] = true
		}
	}
	ledger, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600)
	if err != nil {
		panic(err)
	}
	write := func(format string, args ...any) { fmt.Fprintf(ledger, format+"\n", args...) }
	in, out := bufio.NewReader(os.Stdin), os.Stdout
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				N   int
				Die string
			}
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		answer := func(result string) { fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result) }
		die := func(at string) {
			if mark := fmt.Sprint("dies over ", m.Params.N); m.Params.Die == at && !seen[mark] {
				write(mark)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		switch {
		case m.Method == "server/discover" && !legacy:
			answer(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		case m.Method == "initialize" && legacy:
			answer(`{"protocolVersion":"2025-11-25","capabilities":{}}`)
		case m.Method == "subscriptions/listen" && !legacy:
			write("%d subscribed", os.Getpid())
		case m.Method == "resources/subscribe" && legacy:
			write("%d subscribed", os.Getpid())
			answer(`{}`)
		case m.Params.N > 0:
			die("read")
			write("runs %d", m.Params.N)
			die("executed")
			answer(fmt.Sprintf(`{"n":%d,"pid":%d}`, m.Params.N, os.Getpid()))
			die("answered")
		default:
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
	}
}
