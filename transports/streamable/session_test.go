package streamable_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

// legacyServer answers like a small stateful server that issues id.
func legacyServer(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch m := readMessage(r); {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", id)
			writeJSON(w, answer(m.ID))
		case m.ID == 0:
			w.WriteHeader(http.StatusAccepted)
		default:
			writeJSON(w, answer(m.ID))
		}
	}
}

func TestH11_TheSessionIDComesFromASuccessfulInitializeAndGoesOnAllThatFollows(t *testing.T) {
	inBubble(t, legacyServer("S1"), func(w *wire, l *life) {
		l.send(request(1, "", "initialize"))
		synctest.Wait()
		l.send(notification(2, "notifications/initialized"))
		synctest.Wait()
		l.send(request(3, legacy, "tools/list"))
		synctest.Wait()
		l.send(request(4, "", "initialize"))
		synctest.Wait()
		l.want(message(1, answer(1)), transports.Sent{Ref: 2}, message(3, answer(3)), message(4, answer(4)))
		l.stop(errTestOver)
		var got []seen
		for _, s := range w.requests() {
			s.Body = ""
			got = append(got, s)
		}
		if diff := cmp.Diff([]seen{
			{Method: "POST", Path: "/mcp"},
			{Method: "POST", Path: "/mcp", Session: "S1", Version: legacy},
			{Method: "POST", Path: "/mcp", Session: "S1", Version: legacy},
			{Method: "POST", Path: "/mcp"},
			{Method: "DELETE", Path: "/mcp", Session: "S1", Version: legacy},
		}, got); diff != "" {
			t.Errorf("on the wire (-want +got):\n%s", diff)
		}
	})
}
