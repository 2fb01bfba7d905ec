package streamable_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// sentHeaders sends one message and returns the headers that arrived.
func sentHeaders(t *testing.T, conf func(*streamable.Config), out transports.Outbound) (got http.Header, host string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
			got, host = r.Header.Clone(), r.Host
			w.WriteHeader(http.StatusAccepted)
		})
		c := w.config()
		if conf != nil {
			conf(&c)
		}
		l := live(t, c.Factory())
		l.send(out)
		synctest.Wait()
		l.stop(errTestOver)
		w.Close()
	})
	for _, name := range []string{"User-Agent", "Accept-Encoding", "Content-Length"} { // net/http's own
		got.Del(name)
	}
	return got, host
}

func TestStandardHeadersAreThoseOfTheEra(t *testing.T) {
	post := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
	with := func(h http.Header, more ...string) http.Header {
		h = h.Clone()
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	call := func(version, method, name string) transports.Outbound {
		out := request(1, version, method)
		out.Name = name
		return out
	}
	for _, tc := range []struct {
		name string
		out  transports.Outbound
		want http.Header
	}{
		{
			"modern tools/call", call(modern, "tools/call", "add"),
			with(post, "MCP-Protocol-Version", modern, "Mcp-Method", "tools/call", "Mcp-Name", "add"),
		},
		{
			"a resource whose name is no ASCII", call(modern, "resources/read", "file:///é"),
			with(post, "MCP-Protocol-Version", modern, "Mcp-Method", "resources/read", "Mcp-Name", "=?base64?ZmlsZTovLy/DqQ==?="),
		},
		{
			"a name with a line break", call(modern, "prompts/get", "a\r\nX-Evil: 1"),
			with(post, "MCP-Protocol-Version", modern, "Mcp-Method", "prompts/get", "Mcp-Name", "=?base64?YQ0KWC1FdmlsOiAx?="),
		},
		{
			"a method that has no Mcp-Name", call(modern, "completion/complete", "x"),
			with(post, "MCP-Protocol-Version", modern, "Mcp-Method", "completion/complete"),
		},
		{
			"a later version", call("2027-01-01", "tools/list", ""),
			with(post, "MCP-Protocol-Version", "2027-01-01", "Mcp-Method", "tools/list"),
		},
		{"legacy", call(legacy, "tools/call", "add"), with(post, "MCP-Protocol-Version", legacy)},
		{"initialize", call("", "initialize", ""), post},
		{"before versions were sent", call("", "tools/call", "add"), post},
		{
			"the standalone stream", listen(1, "e1"),
			http.Header{"Accept": {"text/event-stream"}, "Mcp-Protocol-Version": {legacy}, "Last-Event-Id": {"e1"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := sentHeaders(t, nil, tc.out)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheUsersHeadersGoOutButOursWin(t *testing.T) {
	out := request(1, modern, "tools/list")
	out.Header.Set("X-Call", "one")
	out.Header["x-trace"] = []string{"a", "b"}
	out.Header["mcp-param-region"] = []string{"Zürich"}
	got, host := sentHeaders(t, func(c *streamable.Config) {
		c.Header = http.Header{
			"x-key": {"k"}, "X-Call": {"static"}, "Accept": {"text/plain"}, "content-type": {"text/plain"},
			"Mcp-Method": {"wrong"}, "Mcp-Name": {"wrong"}, "MCP-Protocol-Version": {"1999-01-01"}, "Last-Event-ID": {"e9"},
			"Host": {"virtual.test"}, "Idempotency-Key": {"i"},
		}
	}, out)
	if diff := cmp.Diff(http.Header{
		"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
		"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/list"}, "Mcp-Param-Region": {"=?base64?WsO8cmljaA==?="},
		"X-Key": {"k"}, "X-Call": {"one"}, "X-Trace": {"a", "b"}, "Idempotency-Key": {"i"},
	}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if host != "virtual.test" {
		t.Errorf("Host is %q", host)
	}
}

// Replicas are told apart by a cookie where sessions stick to one (and nothing but
// the jar of the user's client keeps any).
func TestCookiesAreThoseOfTheUsersJar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
			got = append(got, r.Header.Get("Cookie"))
			http.SetCookie(w, &http.Cookie{Name: "replica", Value: fmt.Sprint(len(got))})
			if len(got) == 2 {
				http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
				return
			}
			writeJSON(w, answer(readMessage(r).ID))
		})
		conf := w.config()
		conf.Header = http.Header{"Cookie": {"user=x"}}
		without := live(t, conf.Factory())
		conf.Client = &http.Client{Transport: w.client.Transport, Jar: jar}
		with := live(t, conf.Factory())
		for ref := uint64(1); ref < 4; ref++ {
			with.send(request(ref, modern, "ping"))
			synctest.Wait()
		}
		without.send(request(4, modern, "ping"))
		synctest.Wait()
		if diff := cmp.Diff([]string{
			"user=x", "user=x; replica=1", "user=x; replica=2", "user=x; replica=3", "user=x",
		}, got); diff != "" {
			t.Errorf("cookies (-want +got):\n%s", diff)
		}
		with.stop(errTestOver)
		without.stop(errTestOver)
		w.Close()
	})
}

func TestUserAndPasswordOfTheURLAreBasicAuthorization(t *testing.T) {
	for _, tc := range []struct {
		header http.Header
		want   string
	}{
		{nil, "Basic dTpwOnc="},
		{http.Header{"authorization": {"Bearer x"}}, "Bearer x"},
	} {
		got, _ := sentHeaders(t, func(c *streamable.Config) {
			c.URL, c.Header = "http://u:p%3Aw@server.test/mcp", tc.header
		}, request(1, modern, "ping"))
		if auth := got.Get("Authorization"); auth != tc.want {
			t.Errorf("Authorization is %q, want %q", auth, tc.want)
		}
	}
}

func TestNoLineBreakGetsIntoAHeader(t *testing.T) {
	inBubble(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }, func(_ *wire, l *life) {
		for name, out := range map[string]transports.Outbound{
			"X-Call":        withHeader(request(1, modern, "ping"), "X-Call", "a\r\nX-Evil: 1"),
			"Bad Name":      withHeader(request(2, modern, "ping"), "Bad Name", "a"),
			"Mcp-Param-A b": withHeader(request(3, modern, "ping"), "Mcp-Param-A b", "a"),
			"Mcp-Method":    request(4, modern, "a\nb"),
			"Last-Event-Id": listen(5, "a\nb"),
		} {
			bad := new(streamable.HeaderError)
			if err := l.tr.Send(out); !errors.As(err, &bad) || bad.Name != name {
				t.Errorf("Send with a bad %s: %v", name, err)
			} else if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the error itself has a line break: %q", err)
			}
		}
		for _, op := range []transports.Op{transports.OpListen, transports.OpResume} {
			out := listen(6, "e1")
			out.Op, out.Header = op, http.Header{"Mcp-Protocol-Version": {modern}}
			if err := l.tr.Send(out); err != streamable.ErrNoStream {
				t.Errorf("Send of a modern GET: %v", err)
			}
		}
		l.want()
	})
}

func withHeader(out transports.Outbound, name, value string) transports.Outbound {
	out.Header[name] = []string{value}
	return out
}

func TestRedirectsStayWithinTheOrigin(t *testing.T) {
	for _, tc := range []struct {
		status   int
		location string
		followed bool
	}{
		{307, "/elsewhere/", true},
		{308, "http://server.test/elsewhere/", true},
		{301, "http://SERVER.test/elsewhere/", true},
		{302, "elsewhere/", true},
		{303, "/elsewhere/", false},
		{307, "http://other.test/elsewhere/", false},
		{301, "http://other.test/mcp", false},
		{307, "http://server.test:8080/elsewhere/", false},
		{307, "http://sub.server.test/elsewhere/", false},
		{307, "https://server.test/elsewhere/", false},
		{307, "//other.test/elsewhere/", false},
		{307, "", false},
		{307, "http://[bad", false},
		{300, "/elsewhere/", false},
	} {
		t.Run(fmt.Sprint(tc.status, " ", tc.location), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Path == "/elsewhere/":
						writeJSON(w, answer(readMessage(r).ID))
					case tc.location != "":
						w.Header().Set("Location", tc.location)
						fallthrough
					default:
						w.WriteHeader(tc.status)
					}
				})
				conf := w.config()
				conf.Header = http.Header{"Authorization": {"Bearer secret"}}
				l := live(t, conf.Factory())
				out := request(1, legacy, "tools/call")
				l.send(out)
				synctest.Wait()
				want := []seen{{Method: "POST", Path: "/mcp", Version: legacy, Authorization: "Bearer secret", Body: string(out.Frame)}}
				if tc.followed {
					l.want(message(1, answer(1)))
					again := want[0]
					again.Path = "/elsewhere/"
					want = append(want, again)
				} else {
					l.want(transports.Rejected{Ref: 1, Status: tc.status})
					if got := l.got()[0].(transports.Rejected).Header.Get("Location"); got != tc.location {
						t.Errorf("the refusal names %q", got)
					}
				}
				if diff := cmp.Diff(want, w.requests()); diff != "" {
					t.Errorf("on the wire (-want +got):\n%s", diff)
				}
				l.stop(errTestOver)
				w.Close()
			})
		})
	}
}

func TestRedirectsEnd(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
	}, func(w *wire, l *life) {
		l.send(request(1, modern, "ping"))
		synctest.Wait()
		l.want(transports.Rejected{Ref: 1, Status: 307})
		if n := w.count("POST"); n != 11 {
			t.Errorf("%d POSTs, want the first and 10 more", n)
		}
	})
}

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

func TestAConfigThatMakesNoSenseIsServesError(t *testing.T) {
	for _, tc := range []struct {
		name string
		conf streamable.Config
		want streamable.ConfigError
	}{
		{"not a URL", streamable.Config{URL: "http://a b/?key=secret"}, streamable.ConfigError{Field: "URL", Why: "is not a URL"}},
		{"empty", streamable.Config{}, streamable.ConfigError{Field: "URL", Why: "is neither http nor https"}},
		{"another scheme", streamable.Config{URL: "ftp://u:secret@host/x"}, streamable.ConfigError{Field: "URL", Value: "ftp://u:xxxxx@host/x", Why: "is neither http nor https"}},
		{"a path", streamable.Config{URL: "/mcp"}, streamable.ConfigError{Field: "URL", Value: "/mcp", Why: "is neither http nor https"}},
		{"no host", streamable.Config{URL: "http:///mcp"}, streamable.ConfigError{Field: "URL", Value: "http:///mcp", Why: "names no host"}},
		{"a header with a line break", streamable.Config{URL: "http://h/", Header: http.Header{"X-A": {"a\nb"}}}, streamable.ConfigError{Field: "Header", Value: `"X-A"`, Why: "has a control character in its value"}},
		{"a header that is none", streamable.Config{URL: "http://h/", Header: http.Header{"X A": {"a"}}}, streamable.ConfigError{Field: "Header", Value: `"X A"`, Why: "is no header name"}},
		{"a negative bound", streamable.Config{URL: "http://h/", ReadOut: -1}, streamable.ConfigError{Field: "ReadOut", Value: "-1", Why: "is negative"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.conf.Factory())
			<-l.done
			got := new(streamable.ConfigError)
			if !errors.As(l.err, &got) {
				t.Fatalf("Serve returned %v", l.err)
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
			if !got.Permanent() || strings.Contains(got.Error(), "secret") {
				t.Errorf("%v: permanent %v", got, got.Permanent())
			}
			l.want()
			if err := l.tr.Send(request(1, modern, "ping")); err != transports.ErrGone {
				t.Errorf("Send returned %v", err)
			}
		})
	}
}

func TestALabelHoldsNoSecret(t *testing.T) {
	for _, tc := range []struct {
		conf streamable.Config
		want string
	}{
		{streamable.Config{URL: "https://user:secret@host:8443/a/mcp?key=secret#x"}, "host:8443/a/mcp"},
		{streamable.Config{URL: "https://host/", Label: "mine"}, "mine"},
		{streamable.Config{URL: "http://secret secret"}, "http"},
	} {
		f := tc.conf.Factory()
		if f.Label != tc.want || f.Shape != transports.Posts {
			t.Errorf("%s: label %q, shape %s, want %q on posts", tc.conf.URL, f.Label, f.Shape, tc.want)
		}
	}
	if got := streamable.Endpoint("http://host/mcp", &streamable.Config{URL: "ignored"}).Label; got != "host/mcp" {
		t.Errorf("Endpoint's label is %q", got)
	}
}
