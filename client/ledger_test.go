//go:build unix

package client_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// With this variable set to a file, the test binary is a server that writes down
// there what it does before it says so.
const ledgerVar = "RESPAWN_TEST_LEDGER"

// The moments in the life of a call at which a server can be told to die.
const (
	dieNever    = ""
	dieRead     = "read"     // it has read the call
	dieExecuted = "executed" // ... and run it
	dieAnswered = "answered" // ... and answered
)

func init() {
	if path := os.Getenv(ledgerVar); path != "" {
		serveLedger(path, os.Getenv("RESPAWN_TEST_ERA") == "legacy")
		os.Exit(0)
	}
}

// serveLedger is the server. It dies by its own hand, and at most once for a call,
// since a read is made again.
func serveLedger(path string, legacy bool) {
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
			die(dieRead)
			write("runs %d", m.Params.N)
			die(dieExecuted)
			answer(fmt.Sprintf(`{"n":%d,"pid":%d}`, m.Params.N, os.Getpid()))
			die(dieAnswered)
		default:
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
	}
}
