package streamable_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"testing/synctest"

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
