// Command echoserver is the lightest MCP server that a client can be measured
// against: it finds what it needs in a line by looking for a few bytes, parses
// nothing, and answers tools/call with the text it was given. It is right only
// for the frames of the bench, whose texts need no escapes.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
)

// bufferSize holds the largest message of the bench (64 KiB of text) whole, so
// that a line costs one read where the pipe gives it in one.
const bufferSize = 128 << 10

func main() {
	legacy := flag.Bool("legacy", false, "speak 2025-11-25 (initialize) instead of 2026-07-28 (server/discover)")
	flag.Parse()
	if err := serve(os.Stdin, os.Stdout, *legacy); err != nil {
		fmt.Fprintln(os.Stderr, "echoserver:", err)
		os.Exit(1)
	}
}

func serve(r io.Reader, w io.Writer, legacy bool) error {
	in := bufio.NewReaderSize(r, bufferSize)
	out := bufio.NewWriterSize(w, bufferSize)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer(out, line, legacy)
		// Answers wait for each other only while requests are waiting too.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// answer writes the response to one line; a notification has no id and gets none.
func answer(out *bufio.Writer, line []byte, legacy bool) {
	id := field(line, `"id":`, ",}")
	if id == nil {
		return
	}
	out.WriteString(`{"jsonrpc":"2.0","id":`)
	out.Write(id)
	method := string(field(line, `"method":"`, `"`))
	switch {
	case method == "tools/call":
		out.WriteString(`,"result":{"resultType":"complete","content":[{"type":"text","text":"`)
		out.Write(field(line, `"text":"`, `"`))
		out.WriteString(`"}]}}`)
	case method == "server/discover" && !legacy:
		out.WriteString(`,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public",` +
			`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`)
	case method == "initialize" && legacy:
		out.WriteString(`,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"echoserver","version":"1"}}}`)
	case method == "bench/pid": // whom to kill
		fmt.Fprintf(out, `,"result":{"resultType":"complete","pid":%d}}`, os.Getpid())
	default:
		out.WriteString(`,"error":{"code":-32601,"message":"Method not found"}}`)
	}
	out.WriteByte('\n')
}

// field returns what stands between the first occurrence of key and the next of
// any byte in ends, or nil.
func field(line []byte, key, ends string) []byte {
	at := bytes.Index(line, []byte(key))
	if at < 0 {
		return nil
	}
	rest := line[at+len(key):]
	var end int
	if len(ends) == 1 {
		end = bytes.IndexByte(rest, ends[0]) // much faster over a long text
	} else {
		end = bytes.IndexAny(rest, ends)
	}
	if end < 0 {
		return nil
	}
	return rest[:end]
}
