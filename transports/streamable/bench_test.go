package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/respawn-mcp/respawn/transports"
)

// endless repeats its text.
type endless struct {
	text string
	off  int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.off:])
	e.off = (e.off + n) % len(e.text)
	return n, nil
}

func BenchmarkEvents(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := newEvents(&endless{text: "id: 1\nevent: message\ndata: " + strings.Repeat("x", size) + "\n\n"}, 2<<20, "")
			defer e.release()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if ev, err := e.next(); err != nil || len(ev.data) != size {
					b.Fatal(len(ev.data), err)
				}
			}
		})
	}
}

// listing is an answer with many small members, the worst case for a scan.
func listing() []byte {
	var s strings.Builder
	s.WriteString(`{"jsonrpc":"2.0","id":12,"result":{"tools":[`)
	for i := range 400 {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"name":"tool%d","description":"does this and that","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}}`, i)
	}
	s.WriteString(`]}}`)
	return []byte(s.String())
}

func BenchmarkClassify(b *testing.B) {
	for name, frame := range map[string][]byte{
		"100B":    []byte(`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 28) + `"}]}}`),
		"text":    []byte(`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum ", 5461) + `"}]}}`),
		"listing": listing(),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				if k, _ := classify(frame); k != result {
					b.Fatal(k)
				}
			}
		})
	}
}

// BenchmarkExchange is a request and its answer over loopback, beside the same by
// net/http alone.
func BenchmarkExchange(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		reply := []byte(`{"jsonrpc":"2.0","id":1,"result":{"text":"` + strings.Repeat("x", size) + `"}}`)
		for _, media := range []string{"application/json", "text/event-stream"} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", media)
				if media == "application/json" {
					w.Write(reply)
					return
				}
				fmt.Fprintf(w, "event: message\ndata: %s\n\n", reply)
			}))
			name := fmt.Sprintf("%d/%s", size, strings.TrimPrefix(media, "application/"))
			frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", size) + `"}}}`)
			b.Run(name+"/raw", func(b *testing.B) { benchRaw(b, server.URL, frame) })
			b.Run(name+"/ours", func(b *testing.B) { benchOurs(b, server.URL, frame) })
			server.Close()
		}
	}
}

func benchRaw(b *testing.B, url string, frame []byte) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: DefaultIdleConns}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(frame))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

func benchOurs(b *testing.B, url string, frame []byte) {
	t := Endpoint(url, nil).New()
	ctx, cancel := context.WithCancelCause(context.Background())
	ready, done, over := make(chan struct{}), make(chan struct{}), make(chan transports.Event, 1)
	go func() {
		defer close(done)
		t.Serve(ctx, func(e transports.Event) {
			switch e.(type) {
			case transports.Ready:
				close(ready)
			case transports.Alive:
			default:
				over <- e
			}
		})
	}()
	<-ready
	b.ReportAllocs()
	out := transports.Outbound{
		ID: "1", Method: "tools/call", Name: "echo", Frame: frame, Header: http.Header{headerVersion: {firstModern}},
	}
	for b.Loop() {
		out.Ref++
		if err := t.Send(out); err != nil {
			b.Fatal(err)
		}
		if e, ok := (<-over).(transports.Message); !ok {
			b.Fatalf("%#v", e)
		}
	}
	cancel(errors.New("over"))
	<-done
}
