package streamable_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

func TestBadAnswersAreRefusalsOfTheirOwnRequest(t *testing.T) {
	nested := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	page := "<html>" + strings.Repeat("x", 3<<20)
	zipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, text)
		z.Close()
		return b.String()
	}
	media := func(w http.ResponseWriter, kind string, header ...string) http.ResponseWriter {
		w.Header().Set("Content-Type", kind)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		return w
	}
	for _, tc := range []struct {
		name  string
		serve func(http.ResponseWriter)
		want  transports.Rejected
		why   string // part of the cause
	}{
		{
			"HTML", func(w http.ResponseWriter) { io.WriteString(media(w, "text/html"), "<html>hi") },
			transports.Rejected{Status: 200, Body: []byte("<html>hi")},
			`content type "text/html"`,
		},
		{
			"a long page is clipped", func(w http.ResponseWriter) { io.WriteString(media(w, "text/html"), page) },
			transports.Rejected{Status: 200, Body: []byte(page[:1<<20])},
			`content type "text/html"`,
		},
		{"a page without end", func(w http.ResponseWriter) {
			media(w, "text/html")
			io.WriteString(w, "<html>")
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
		}, transports.Rejected{Status: 200, Body: []byte("<html>")}, `content type "text/html"`},
		{
			"HTML that says it is JSON", func(w http.ResponseWriter) { writeJSON(w, "<html>hi") },
			transports.Rejected{Status: 200, Body: []byte("<html>hi")},
			"no JSON-RPC response",
		},
		{
			"JSON that is no JSON-RPC", func(w http.ResponseWriter) { writeJSON(w, `{"id":1,"result":{}}`) },
			transports.Rejected{Status: 200, Body: []byte(`{"id":1,"result":{}}`)},
			"no JSON-RPC response",
		},
		{
			"an answer that is no JSON inside",
			func(w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":1,"result":{]}}`) },
			transports.Rejected{Status: 200, Body: []byte(`{"jsonrpc":"2.0","id":1,"result":{]}}`)},
			"no JSON-RPC response",
		},
		{
			"an answer that nests beyond all reason",
			func(w http.ResponseWriter) { writeJSON(w, `{"jsonrpc":"2.0","id":1,"result":`+nested+`}`) },
			transports.Rejected{Status: 200, Body: []byte(`{"jsonrpc":"2.0","id":1,"result":` + nested + `}`)},
			"no JSON-RPC response",
		},
		{
			"a batch", func(w http.ResponseWriter) { writeJSON(w, "["+answer(1)+"]") },
			transports.Rejected{Status: 200, Body: []byte("[" + answer(1) + "]")},
			"no JSON-RPC response",
		},
		{
			"a notification", func(w http.ResponseWriter) { writeJSON(w, progress) },
			transports.Rejected{Status: 200, Body: []byte(progress)},
			"no JSON-RPC response",
		},
		{
			"two objects", func(w http.ResponseWriter) { writeJSON(w, answer(1)+answer(1)) },
			transports.Rejected{Status: 200, Body: []byte(answer(1) + answer(1))},
			"no JSON-RPC response",
		},
		{
			"a cut object of the announced length", func(w http.ResponseWriter) { writeJSON(w, answer(1)[:20]) },
			transports.Rejected{Status: 200, Body: []byte(answer(1)[:20])},
			"no JSON-RPC response",
		},
		{
			"the answer to another request", func(w http.ResponseWriter) { writeJSON(w, answer(2)) },
			transports.Rejected{Status: 200, Body: []byte(answer(2))},
			"it answers 2, and 1 was asked",
		},
		{
			"no content", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
			transports.Rejected{Status: 204},
			"HTTP 204",
		},
		{
			"accepted", func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
			transports.Rejected{Status: 202},
			"HTTP 202",
		},
		{
			"an empty JSON body", func(w http.ResponseWriter) { writeJSON(w, "") },
			transports.Rejected{Status: 200},
			"no JSON-RPC response",
		},
		{"a length over the limit", func(w http.ResponseWriter) {
			io.WriteString(media(w, "application/json", "Content-Length", "1073741824"), "{")
		}, transports.Rejected{Status: 200}, "longer than 65536 bytes"},
		{"a body over the limit, without a length", func(w http.ResponseWriter) {
			media(w, "application/json")
			for range 1 << 14 { // 1 GiB, if somebody took it
				if _, err := io.WriteString(w, strings.Repeat("[", 64<<10)); err != nil {
					return
				}
			}
		}, transports.Rejected{Status: 200}, "longer than 65536 bytes"},
		{"a stream without a newline over the limit", func(w http.ResponseWriter) {
			media(w, "text/event-stream")
			io.WriteString(w, "data: ")
			for range 1 << 14 {
				if _, err := io.WriteString(w, strings.Repeat("[", 64<<10)); err != nil {
					return
				}
			}
		}, transports.Rejected{Status: 200}, "longer than 65536 bytes"},
		{"brotli, which nobody asked for", func(w http.ResponseWriter) {
			writeJSON(media(w, "", "Content-Encoding", "br"), "\x0b\x02\x80")
		}, transports.Rejected{Status: 200, Body: []byte("\x0b\x02\x80")}, "encoded as br"},
		{"a gzip bomb", func(w http.ResponseWriter) {
			writeJSON(media(w, "", "Content-Encoding", "gzip"), zipped(strings.Repeat("[", 1<<20)))
		}, transports.Rejected{Status: 200}, "longer than 65536 bytes"},
		{
			"another status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) },
			transports.Rejected{Status: 418},
			"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
					if m := readMessage(r); m.ID == 9 {
						writeJSON(w, answer(9))
						return
					}
					tc.serve(w)
				})
				conf := w.config()
				conf.MaxMessage = 64 << 10
				l := live(t, conf.Factory())
				l.send(request(1, modern, "tools/call"))
				time.Sleep(time.Hour)
				l.send(request(9, modern, "ping"))
				synctest.Wait()
				got := l.got()
				if len(got) == 3 { // a body over the limit takes its time
					got = got[1:]
				}
				if len(got) != 2 {
					t.Fatalf("%d events, want 2: %.300v", len(got), got)
				}
				r, ok := got[0].(transports.Rejected)
				if !ok {
					t.Fatalf("%#v, want a Rejected", got[0])
				}
				if why := fmt.Sprint(r.Cause); tc.why == "" && r.Cause != nil || !strings.Contains(why, tc.why) {
					t.Errorf("the cause is %q, want %q in it", why, tc.why)
				}
				tc.want.Ref, r.Header, r.Cause = 1, nil, nil
				if diff := cmp.Diff(tc.want, r, cmp.Comparer(bytes.Equal)); diff != "" {
					t.Errorf("refusal (-want +got):\n%.600s", diff)
				}
				if diff := cmp.Diff(transports.Event(message(9, answer(9))), got[1]); diff != "" {
					t.Errorf("the next request (-want +got):\n%s", diff)
				}
				l.stop(errTestOver)
				w.Close()
			})
		})
	}
}

func TestGzipThatNetHTTPAskedForIsUnpacked(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "gzip" {
			t.Errorf("Accept-Encoding is %q", got)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		z := gzip.NewWriter(w)
		io.WriteString(z, answer(1))
		z.Close()
	}, func(_ *wire, l *life) {
		l.send(request(1, modern, "ping"))
		synctest.Wait()
		l.want(message(1, answer(1)))
	})
}
