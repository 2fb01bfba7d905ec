package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// target is the server that every client talks to.
type target struct {
	path   string
	legacy bool
	front  []string // the command line to put in front of its own, if any
}

func (t target) args() []string {
	if t.legacy {
		return []string{"-legacy"}
	}
	return nil
}

// peer is one side of the comparison, connected and ready.
type peer interface {
	// call sends the text to the echo tool and returns what came back.
	call(ctx context.Context, text string) (string, error)
	close() error
}

// contender is a client under its name in the table.
type contender struct {
	name string
	dial func(context.Context, target) (peer, error)
}

// meta is what a 2026-07-28 request carries (2026-07-28, Base Protocol, _meta).
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

// opening is the handshake of an era: lines to write, and how many of them are
// answered.
func (t target) opening() (lines []string, answers int) {
	if t.legacy {
		return []string{
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
				`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		}, 1
	}
	return []string{`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + meta + `}}`}, 1
}

// callFrame is a tools/call with its newline, built without a JSON library.
func (t target) callFrame(id int, text string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}`, id, text)
	if !t.legacy {
		b.WriteString("," + meta)
	}
	b.WriteString("}}\n")
	return []byte(b.String())
}

// process is the server as a bare child: two pipes and nothing else.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// lineBuffer holds the largest answer of the bench whole.
const lineBuffer = 128 << 10

// start runs the server and does the opening exchange.
func (t target) start() (*process, error) {
	argv := slices.Concat(t.front, []string{t.path}, t.args())
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewReaderSize(out, lineBuffer)}
	lines, answers := t.opening()
	for _, line := range lines {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			return nil, err
		}
	}
	for range answers {
		if _, err := p.out.ReadSlice('\n'); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *process) close() error {
	p.in.Close()
	return p.cmd.Wait()
}
