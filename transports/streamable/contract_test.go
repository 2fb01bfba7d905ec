package streamable_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

func TestTheContractOfTransports(t *testing.T) {
	for name, answerWith := range map[string]func(http.ResponseWriter, string){
		"JSON":          writeJSON,
		"event streams": func(w http.ResponseWriter, body string) { stream(w)("data: " + body + "\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.TestTransport(t, func(t *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
				return contractPeer(t, kind, answerWith)
			})
		})
	}
}

func contractPeer(t *testing.T, kind conformance.PeerKind, answerWith func(http.ResponseWriter, string)) conformance.TransportPeer {
	if kind == conformance.PeerAbsent {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // the port is nobody's now
		return conformance.TransportPeer{Factory: streamable.Endpoint("http://"+l.Addr().String(), nil)}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if kind == conformance.PeerSilent {
			<-r.Context().Done()
			return
		}
		if reply, ok := conformance.EchoReply(body); ok {
			answerWith(w, string(reply))
		} else {
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	conns := &openConns{changed: make(chan struct{}, 1), open: map[net.Conn]bool{}}
	server.Config.ConnState = conns.note
	server.Start()
	var once sync.Once
	return conformance.TransportPeer{
		Factory: streamable.Endpoint(server.URL, nil),
		Left:    conns.left,
		Close:   func() { once.Do(server.Close) },
	}
}

// openConns are the connections that a server has.
type openConns struct {
	changed chan struct{}

	mu   sync.Mutex
	open map[net.Conn]bool
}

func (o *openConns) note(c net.Conn, s http.ConnState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch s {
	case http.StateNew:
		o.open[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(o.open, c)
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// left names those that stay open. A server hears a moment later that the client
// closed one.
func (o *openConns) left() (names []string) {
	late := time.After(5 * time.Second)
	for {
		names = nil
		o.mu.Lock()
		for c := range o.open {
			names = append(names, c.RemoteAddr().String())
		}
		o.mu.Unlock()
		if len(names) == 0 {
			return nil
		}
		select {
		case <-o.changed:
		case <-late:
			return names
		}
	}
}
