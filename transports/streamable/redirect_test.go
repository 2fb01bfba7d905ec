package streamable_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

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
