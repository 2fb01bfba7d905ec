package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tmaxmax/go-sse"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// heard is what an event stream told.
type heard struct {
	Messages []string
	LastID   string
}

// served is a round tripper whose every answer is one event stream, in parts.
type served struct {
	text string
	part func(most int) int
}

func (s *served) RoundTrip(*http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"text/event-stream"}}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(&inParts{strings.NewReader(s.text), s.part}), ContentLength: -1}, nil
}

type inParts struct {
	from *strings.Reader
	part func(most int) int
}

func (p *inParts) Read(b []byte) (int, error) {
	return p.from.Read(b[:min(p.part(p.from.Len()+1), len(b))])
}

// ours is what the transport makes of a stream: the standalone one passes on every
// message as it is.
func ours(t *testing.T, text string, part func(most int) int) (got heard) {
	t.Helper()
	conf := streamable.Config{URL: "http://server.test/", Client: &http.Client{Transport: &served{text, part}}}
	tr := conf.Factory().New()
	ctx, cancel := context.WithCancelCause(context.Background())
	over := errors.New("over")
	listen := transports.Outbound{Ref: 1, Op: transports.OpListen}
	err := tr.Serve(ctx, func(e transports.Event) {
		switch e := e.(type) {
		case transports.Ready:
			if err := tr.Send(listen); err != nil {
				cancel(err)
			}
		case transports.Message:
			got.Messages = append(got.Messages, string(e.Frame))
		case transports.Broken:
			got.LastID = e.LastID
			cancel(over)
		case transports.Opened, transports.Alive:
		default:
			cancel(fmt.Errorf("unexpected %#v", e))
		}
	})
	if err != over {
		t.Fatal(err)
	}
	return got
}

// theirs is what go-sse makes of it. It also yields events without data, which the
// standard does not dispatch.
func theirs(t *testing.T, text string) (got heard) {
	t.Helper()
	for ev, err := range sse.Read(strings.NewReader(text), &sse.ReadConfig{MaxEventSize: len(text) + 1}) {
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if ev.Data != "" && (ev.Type == "" || ev.Type == "message") {
			got.Messages = append(got.Messages, ev.Data)
		}
		got.LastID = ev.LastEventID
	}
	return got
}

// Two readers that know nothing of each other agree on any stream.
func TestEventStreamsAreReadAsByAnIndependentReader(t *testing.T) {
	const streams = 3000
	for seed := range uint64(streams) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		text := eventStream(rnd)
		want := theirs(t, text)
		for name, part := range map[string]func(int) int{
			"at once":  func(most int) int { return most },
			"in parts": func(most int) int { return 1 + rnd.IntN(min(most, 40)) },
		} {
			if diff := cmp.Diff(want, ours(t, text, part)); diff != "" {
				t.Fatalf("stream %d, %q, read %s (-go-sse +ours):\n%s", seed, text, name, diff)
			}
		}
	}
}

// eventStream is a stream of fields that mean something, that almost do and that
// don't, with each kind of line end.
func eventStream(rnd *rand.Rand) string {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	var b strings.Builder
	b.WriteString(pick("", "", "\xef\xbb\xbf", "\xef\xbb"))
	for range rnd.IntN(30) {
		value := pick("", " ", "a", " a", "  a ", ": x", "é\u2028", `{"jsonrpc":"2.0","method":"m"}`, strings.Repeat("long ", rnd.IntN(100)), "7", "\x00")
		switch rnd.IntN(12) {
		case 0, 1, 2, 3:
			b.WriteString("data" + pick("", ":") + value)
		case 4:
			b.WriteString("id" + pick("", ":") + value)
		case 5:
			b.WriteString("event:" + pick("message", " message", "ping", "", value))
		case 6:
			b.WriteString("retry:" + value)
		case 7:
			b.WriteString(":" + value)
		case 8:
			b.WriteString(pick("datax", "dat", " data", "Data", "i", "foo", "events") + ":" + value)
		}
		b.WriteString(pick("\n", "\r", "\r\n", "\n\n", "\r\n\r\n", "\r\r"))
	}
	b.WriteString(pick("", "", "data: cut", "data", ":", "\r"))
	return b.String()
}
