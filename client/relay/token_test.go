package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
)

func TestRelay_Rule1_AReplayCarriesNoProgressTokenOfTheHosts(t *testing.T) {
	const meta = `"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	for opening, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"i","method":"server/discover","params":{"_meta":{` + meta + `,"progressToken":1}}}`:                                        `"params":{"_meta":{` + meta + `}}}`,
		`{"jsonrpc":"2.0","id":"i","method":"tools/list","params":{"_meta":{` + meta + `,"progressToken":"a"}}}`:                                           `"params":{"_meta":{` + meta + `}}}`,
		`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"_meta":{"progressToken":1,"x":1.0},"capabilities":{},"protocolVersion":"2025-06-18"}}`: `"params":{"_meta":{"x":1.0},"capabilities":{},"protocolVersion":"2025-06-18"}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: func(l *life, m message) error {
				if m.Method == "server/discover" {
					l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`, m.ID))
					return nil
				}
				return legacy(l, m)
			}}
			h := start(t, s, relay.Config{})
			h.say(opening)
			s.took()
			s.kill()
			sleep(time.Second)
			if got := s.took(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
				t.Errorf("the replay of %s is %q, want %s", opening, got, want)
			}
		})
	}
}

func TestRelay_Rule3_TheHostsProgressGoesToTheServerThatAskedAndToNoOther(t *testing.T) {
	progress := func(token string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`
	}
	ask := func(s *server, id int, token string) {
		s.cur.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"_meta":{"progressToken":%s}}}`, id, token))
	}
	for name, c := range map[string]struct {
		does func(s *server, h *host)
		want []string
	}{
		"it waits": {func(*server, *host) {}, []string{"1 " + progress("7"), "1 " + progress(`"7"`)}},
		"it died": {func(s *server, _ *host) {
			s.kill()
			sleep(time.Second)
			s.took()
		}, nil},
		"another one asks under the same token": {func(s *server, _ *host) {
			s.kill()
			sleep(time.Second)
			s.took()
			ask(s, 1, "7")
		}, []string{"2 " + progress("7")}},
		"it was answered": {func(s *server, h *host) {
			h.answers(t, `{"content":"x"}`)
			s.took()
		}, nil},
		"it was answered by a task": {func(s *server, h *host) {
			h.answers(t, `{"task":{"taskId":"t"}}`)
			s.took()
		}, []string{"1 " + progress("7"), "1 " + progress(`"7"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{on: legacy}
				h := opened(t, s, relay.Config{})
				ask(s, 1, "7")
				ask(s, 2, `"7"`)
				synctest.Wait()
				c.does(s, h)
				h.say(progress("7"), progress(`"7"`), progress("8"))
				expect(t, "the server reads", s.took(), c.want)
			})
		})
	}
}

// answers gives a result to each dialog that is open.
func (h *host) answers(t *testing.T, result string) {
	t.Helper()
	for _, line := range h.heard() {
		m := parse([]byte(line))
		h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
	}
}
