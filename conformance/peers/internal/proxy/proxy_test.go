package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// setup is a server behind a proxy, and a client.
type setup struct {
	*Proxy
	client  *http.Client
	reached atomic.Int64 // requests that the server read whole
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	noLeaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, noLeaks) })
	s := &setup{client: &http.Client{Transport: &http.Transport{}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.reached.Add(1)
		w.Header().Set("Mcp-Session-Id", "s")
		w.Write(body)
	}))
	t.Cleanup(server.Close)
	var err error
	if s.Proxy, err = Start(server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Proxy.Close)
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *setup) post(ctx context.Context, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+"/", io.NopCloser(strings.NewReader(body)))
	if err != nil {
		return "", err
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Mcp-Session-Id", "s")
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return string(got), err
}

func frame(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"tool"}}`, id)
}

func second(x Exchange) bool { return x.ID == "2" }

func TestWhatIsNotBrokenPassesAndIsNoted(t *testing.T) {
	s := newSetup(t)
	for id := 1; id <= 3; id++ {
		if got, err := s.post(t.Context(), frame(id)); err != nil || got != frame(id) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	x, err := s.Await(t.Context(), func(x Exchange) bool { return x.ID == "3" && x.Over })
	if err != nil {
		t.Fatal(err)
	}
	if x.Asked <= len(frame(3)) || x.Size <= len(frame(3)) {
		t.Errorf("sizes %d and %d", x.Asked, x.Size)
	}
	x.Asked, x.Size = 0, 0
	want := Exchange{Verb: "POST", Session: "s", Method: "tools/call", ID: "3", Params: []byte(`{"name":"tool"}`), Status: 200, Over: true}
	if diff := cmp.Diff(want, x); diff != "" {
		t.Errorf("the third exchange (-want +got):\n%s", diff)
	}
	if s.Dials() != 1 || s.Count(func(x Exchange) bool { return x.Tool() == "tool" }) != 3 {
		t.Errorf("%d connections, exchanges %+v", s.Dials(), s.Exchanges())
	}
}

func TestAFaultBreaksTheOneExchangeItIsMeantFor(t *testing.T) {
	type outcome struct {
		Reached int64 // of three requests
		Err     string
	}
	tests := []struct {
		fault Fault
		want  outcome
	}{
		{Fault{Request: true, At: 10, Do: Reset}, outcome{2, "reset"}},
		{Fault{Request: true, At: 10, Do: End}, outcome{2, "EOF"}},
		{Fault{Request: true, At: 10, Do: Hold}, outcome{2, "deadline"}},
		{Fault{Request: true, At: 10, Do: Delay, For: time.Millisecond}, outcome{3, ""}},
		{Fault{At: 0, Do: Reset}, outcome{3, "reset"}},
		{Fault{At: 0, Do: End}, outcome{3, "EOF"}},
		{Fault{At: 190, Do: End}, outcome{3, "unexpected EOF"}}, // within the body
		{Fault{At: 30, Do: Hold}, outcome{3, "deadline"}},
		{Fault{At: 30, Do: Delay, For: time.Millisecond}, outcome{3, ""}},
		{Fault{At: -1, Do: End}, outcome{3, ""}}, // the end of it comes too late for this one
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("request %v, %d, %s", test.fault.Request, test.fault.At, test.fault.Do), func(t *testing.T) {
			s := newSetup(t)
			test.fault.When = second
			broke := s.Break(test.fault)
			var got outcome
			for id := 1; id <= 3; id++ {
				limit := time.Minute
				if id == 2 && test.fault.Do == Hold {
					limit = 100 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err := s.post(ctx, frame(id))
				cancel()
				if id == 2 {
					<-broke.Done
					got.Err = short(err)
				} else if err != nil {
					t.Errorf("request %d: %v", id, err)
				}
			}
			got.Reached = s.reached.Load()
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func short(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected EOF"
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	return err.Error()
}

func TestAServerThatRefusesIsBackOnTheSamePort(t *testing.T) {
	s := newSetup(t)
	if _, err := s.post(t.Context(), frame(1)); err != nil {
		t.Fatal(err)
	}
	s.Refuse()
	s.Cut()
	s.client.CloseIdleConnections()
	if _, err := s.post(t.Context(), frame(2)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it refuses: %v", err)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.post(t.Context(), frame(3)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if s.Dials() != 2 {
		t.Errorf("%d connections, want 2", s.Dials())
	}
}

func TestAServerThatIsNotThereResetsItsClients(t *testing.T) {
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}
