package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/transports"
)

// serve runs an incarnation and returns its events and its end.
func serve(t *testing.T, f transports.Factory) (tr transports.Transport, events <-chan transports.Event, stop func()) {
	t.Helper()
	tr = f.New()
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan transports.Event, 100)
	done := make(chan error, 1)
	go func() { done <- tr.Serve(ctx, func(e transports.Event) { c <- e }) }()
	if e := <-c; e != transports.Event(transports.Ready{}) {
		t.Fatalf("%#v, want Ready", e)
	}
	over := errors.New("over")
	return tr, c, func() {
		cancel(over)
		if err := <-done; err != over {
			t.Errorf("Serve returned %v", err)
		}
	}
}

func isMessage(e transports.Event) bool {
	_, ok := e.(transports.Message)
	return ok
}

// With HTTP/2 a connection is in use for a moment after its last stream was
// cancelled. It is closed all the same.
func TestT11_NothingIsLeftOfTheOwnClientOverHTTP2(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request came by %s", r.Proto)
		}
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "listen") {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that nobody needed any more
	server.StartTLS()
	defer server.Close()

	s := newShared(Config{URL: server.URL})
	s.own.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	f := transports.Factory{Shape: transports.Posts, New: func() transports.Transport { return newTransport(s) }}
	for range 3 { // an own client goes on with the next incarnation
		tr, events, stop := serve(t, f)
		for ref, method := range map[uint64]string{1: "listen", 2: "ping", 3: "listen", 4: "ping"} {
			frame := `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`
			if err := tr.Send(transports.Outbound{Ref: ref, ID: "1", Method: method, Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if e := <-events; !isMessage(e) {
				t.Errorf("%#v, want a message", e)
			}
		}
		tr.Cancel(1)
		stop()
		if n := len(s.open); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	}
}

// A dial goes on in net/http when its request is cancelled, for the next one.
// After the last incarnation there is none.
func TestADialEndsWithTheLastIncarnation(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := newShared(Config{URL: "http://server.test/"})
	dialing, aborted := make(chan struct{}), make(chan struct{})
	s.own.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := &net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
			close(dialing)
			<-ctx.Done() // as a host that does not answer
			close(aborted)
			return ctx.Err()
		}}
		return s.dial(ctx, d, network, "127.0.0.1:9")
	}
	f := transports.Factory{Shape: transports.Posts, New: func() transports.Transport { return newTransport(s) }}
	tr, events, stop := serve(t, f)
	if err := tr.Send(transports.Outbound{Ref: 1, ID: "1", Method: "ping", Frame: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	<-dialing
	stop()
	<-aborted
	if u, ok := (<-events).(transports.Unsent); !ok || u.Ref != 1 {
		t.Errorf("%#v, want an Unsent", u)
	}
}

// The frame of a cancelled request must not follow its headers, once Cancel said
// that nothing was written.
func TestAClaimedFrameDoesNotFollowItsHeaders(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	for _, plain := range []bool{true, false} {
		a := &attempt{frame: []byte("{}"), plain: plain, taken: func() {}}
		hooks := a.trace()
		hooks.GotConn(httptrace.GotConnInfo{Conn: ours})
		for range 2 {
			if !a.claim() {
				t.Error("a frame of which nothing was handed over can't be claimed")
			}
		}
		if plain {
			hooks.WroteHeaders()
			if _, err := ours.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection still takes bytes: %v", err)
			}
			continue
		}
		if n, err := a.Read(make([]byte, 10)); n != 0 || err != io.ErrClosedPipe {
			t.Errorf("Read returned %d, %v", n, err)
		}
	}
}

func TestAFrameThatWasBegunCantBeClaimed(t *testing.T) {
	a := &attempt{frame: []byte("{}"), plain: true, taken: func() {}}
	a.trace().WroteHeaders()
	if a.claim() {
		t.Error("a frame was claimed whose headers are followed by it")
	}
	b := &attempt{frame: []byte("{}"), taken: func() {}}
	if _, err := b.Read(make([]byte, 1)); err != nil || b.claim() {
		t.Errorf("a frame was claimed that was read: %v", err)
	}
}

// On a connection of the factory's own, bytes are counted: headers that were
// composed and not written prove nothing was.
func TestWhatNoConnectionTookIsUnsent(t *testing.T) {
	ours, theirs := net.Pipe()
	theirs.Close()
	c := &conn{Conn: ours, s: &shared{}}
	for _, tc := range []struct {
		name    string
		plain   bool
		written int64
		want    bool
	}{
		{"nothing was written", true, 0, true},
		{"some of the headers were", true, 7, false},
		{"a body that knows", false, 0, false},
	} {
		a := &attempt{frame: []byte("{}"), plain: tc.plain, taken: func() {}}
		a.gotConn(httptrace.GotConnInfo{Conn: c})
		a.begin()
		c.written.Add(tc.written)
		if got := a.unsent(); got != tc.want {
			t.Errorf("%s: unsent is %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A server that closes a connection while a request is on its way to it has
// none of that request or all of it; each attempt is accounted for, and none runs
// twice.
func TestT12_EachRequestRunsOnceWhateverTheConnectionsDo(t *testing.T) {
	defer goleak.VerifyNone(t)
	runs := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		runs <- string(body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer server.Close()
	tr, events, stop := serve(t, Endpoint(server.URL, &Config{Header: http.Header{"Idempotency-Key": {"x"}}}))
	fate := map[string]string{}
	for ref := uint64(1); ref <= 200; ref++ {
		frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"m","params":%d}`, ref)
		if err := tr.Send(transports.Outbound{Ref: ref, ID: "1", Method: "m", Frame: []byte(frame)}); err != nil {
			t.Fatal(err)
		}
		if ref%3 == 0 {
			server.CloseClientConnections()
		}
		fate[frame] = fmt.Sprintf("%T", <-events)
		if ref%7 == 0 {
			server.CloseClientConnections()
		}
	}
	stop()
	server.Close()
	close(runs)
	ran := map[string]int{}
	for frame := range runs {
		ran[frame]++
	}
	for frame, what := range fate {
		switch n := ran[frame]; {
		case n > 1:
			t.Errorf("%s ran %d times", frame, n)
		case what == "transports.Message" && n != 1, what == "transports.Unsent" && n != 0:
			t.Errorf("%s: %s, and it ran %d times", frame, what, n)
		case what != "transports.Message" && what != "transports.Unsent" && what != "transports.Broken":
			t.Errorf("%s: %s", frame, what)
		}
	}
}
