//go:build unix

package stdio_test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/conformance"
)

// The test binary is its own server: with roleVar set it plays that role and
// exits. Processes of a test carry its mark in their environment, so that what
// a test left running can be found.
const (
	roleVar = "STDIO_TEST_ROLE"
	markVar = "STDIO_TEST_MARK"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		play, ok := roles[role]
		if !ok {
			fmt.Fprintf(os.Stderr, "no role %q\n", role)
			os.Exit(97)
		}
		play(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// roles is filled by the files that use them.
var roles = map[string]func(args []string){
	"echo":   func([]string) { echo(os.Stdin, os.Stdout) },
	"silent": func([]string) { io.Copy(io.Discard, os.Stdin) },
	// stubborn ignores the end of its stdin and SIGTERM.
	"stubborn": func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(`{"jsonrpc":"2.0","method":"up"}`)
		forever()
	},
	// deaf never reads, and leaves when asked by SIGTERM.
	"deaf": func([]string) {
		fmt.Println(`{"jsonrpc":"2.0","method":"up"}`)
		forever()
	},
	// polite says a last word when it is asked by SIGTERM, and leaves by a code.
	"polite": func([]string) {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println(`{"jsonrpc":"2.0","method":"up"}`)
		<-asked
		fmt.Println(`{"jsonrpc":"2.0","method":"bye"}`)
		os.Exit(5)
	},
	// print writes its argument and leaves.
	"print": func(args []string) { io.WriteString(os.Stdout, args[0]) },
}

// forever is no empty select: without cgo the runtime would call that a deadlock
// and exit.
func forever() { time.Sleep(math.MaxInt64) }

// echo answers each request in order and lets everything else pass.
func echo(r io.Reader, w io.Writer) {
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if reply, ok := conformance.EchoReply(line); ok {
			w.Write(append(reply, '\n'))
		}
		if err != nil {
			return
		}
	}
}
