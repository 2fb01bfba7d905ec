package relay_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/transports"
)

const discover = `{"jsonrpc":"2.0","id":"i","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// Over HTTP a refusal of the opening ends nothing, so nobody else comes to answer it.
func TestRelay_OverHTTPAnOpeningThatIsNotAnsweredIsAnErrorAndTheNextOneWorks(t *testing.T) {
	rejected := func(status int) func(uint64) transports.Event {
		return func(ref uint64) transports.Event { return transports.Rejected{Ref: ref, Status: status} }
	}
	unknown, not := "\"i\": -31001, unknown, attempt 1", "\"i\": -31002, not executed, attempt 1"
	for name, c := range map[string]struct {
		ends func(ref uint64) transports.Event
		want string
		says string
	}{
		"401": {rejected(401), not, "by HTTP (status 401)"},
		"403": {rejected(403), not, "by HTTP (status 403)"},
		"404": {rejected(404), unknown, "by HTTP (status 404)"},
		"500": {rejected(500), unknown, "by HTTP (status 500)"},
		"503": {rejected(503), unknown, "by HTTP (status 503)"},
		"a page": {func(ref uint64) transports.Event {
			return transports.Rejected{Ref: ref, Status: 200, Cause: errors.New("it is text/html")}
		}, unknown, "is no answer (HTTP status 200)"},
		"a reset": {func(ref uint64) transports.Event {
			return transports.Broken{Ref: ref, Cause: errors.New("connection reset")}
		}, unknown, "connection reset"},
	} {
		for _, opening := range []string{initialize, discover} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var well atomic.Bool
					s := &server{shape: transports.Posts, on: func(l *life, m message) error {
						if well.Load() {
							return legacy(l, m)
						}
						l.Emit(c.ends(m.ref))
						return nil
					}}
					h := start(t, s, relay.Config{})
					h.say(opening)
					heard := h.heard()
					if len(heard) != 1 || !strings.Contains(heard[0], c.says) || strings.Contains(heard[0], "taken effect") {
						t.Errorf("heard %q, want one error that says %q", heard, c.says)
					}
					h.got = heard
					expect(t, "the answer", h.brief(), []string{c.want})
					well.Store(true)
					h.say(initialize, initialized, call(1, "tools/list"))
					h.hears(t, `"i": {"protocolVersion":"2025-06-18"`, `1: {"gen":1}`)
				})
			})
		}
	}
}

// hears checks how each thing that the host heard begins.
func (h *host) hears(t *testing.T, want ...string) {
	t.Helper()
	got := h.brief()
	for i, line := range got {
		for _, w := range want {
			if strings.HasPrefix(line, w) {
				got[i] = w
			}
		}
	}
	expect(t, "what the host heard", got, want)
}

func TestRelay_OverHTTPAnOpeningWaitsAsLongAsAnyRequestForAServerThatCanNotBeReached(t *testing.T) {
	for _, opening := range []string{initialize, discover} {
		synctest.Test(t, func(t *testing.T) {
			var well atomic.Bool
			h := start(t, unreachable(&well, legacy), relay.Config{})
			h.say(opening)
			sleep(20*time.Second - 1)
			expect(t, "just before", h.brief(), nil)
			sleep(1)
			if heard := h.heard(); len(heard) != 1 || !strings.Contains(heard[0], `-31002`) || !strings.Contains(heard[0], "connection refused") {
				t.Errorf("heard %q", heard)
			}
			h.say(initialize)
			sleep(time.Second)
			well.Store(true)
			sleep(5 * time.Second)
			h.hears(t, `"i": {"protocolVersion":"2025-06-18"`)
		})
	}
}

func TestRelay_OverHTTPACancelledProbeIsOfferedToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{shape: transports.Posts, on: func(l *life, m message) error {
			l.Emit(transports.Unsent{Ref: m.ref, Cause: errors.New("connection refused")})
			return nil
		}}
		h := start(t, s, relay.Config{})
		h.say(discover, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"i"}}`)
		s.took()
		sleep(time.Minute)
		expect(t, "the server", s.took(), nil)
		expect(t, "the host", h.heard(), nil)
	})
}

func TestRelay_OverHTTPAnInitializedThatHangsHoldsWhatFollowsAsLongAsAnyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{shape: transports.Posts, on: legacy, hangs: "notifications/initialized"}
		h := start(t, s, relay.Config{})
		h.say(initialize, initialized)
		h.heard()
		s.took()
		h.say(call(1, "tools/list"), call(2, "ping"))
		sleep(20*time.Second - 1)
		expect(t, "the server before", methods(s.took()), nil)
		sleep(1)
		expect(t, "the server after", methods(s.took()), []string{"1 tools/list", "2 ping"})
		h.say(call(3, "ping"))
		expect(t, "the host", h.brief(), []string{`1: {"gen":1}`, `2: {"gen":1}`, `3: {"gen":1}`})
	})
}

func TestRelay_OverHTTPWhatWaitsForAnInitializedAtTheEndIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{shape: transports.Posts, on: legacy, hangs: "notifications/initialized"}
		h := start(t, s, relay.Config{})
		h.say(initialize, initialized)
		h.heard()
		h.say(call(1, "tools/list"))
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, "the host", h.brief(), []string{"1: -31003, not executed, attempt 0"})
	})
}
