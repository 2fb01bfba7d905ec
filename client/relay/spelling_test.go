package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client/relay"
)

// answering is a legacy server that answers tools/list by what answer says of its
// request's id.
func answering(answer func(l *life, m message) string) *server {
	return &server{on: func(l *life, m message) error {
		if m.Method != "tools/list" {
			return legacy(l, m)
		}
		l.Write(0, answer(l, m))
		return nil
	}}
}

// A server that decodes and encodes an id may spell it differently. The host gets it
// as it wrote it.
func TestRelay_Rule2_AnIdThatTheServerSpellsItsOwnWayIsTheHostsAgain(t *testing.T) {
	for ours, theirs := range map[string]string{
		`"é"`: `"\u00e9"`, `"a\/b"`: `"a/b"`, `1e2`: `100.0`, `5`: `"5"`, `"5"`: `5`, `"😀"`: `"\ud83d\ude00"`, `-7`: `-7.0`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := answering(func(*life, message) string { return `{"result":{"x":1},"id":` + theirs + `,"jsonrpc":"2.0"}` })
			h := opened(t, s, relay.Config{})
			h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{}}`, ours))
			if diff := cmp.Diff([]string{`{"result":{"x":1},"id":` + ours + `,"jsonrpc":"2.0"}`}, h.heard()); diff != "" {
				t.Errorf("%s answered as %s: %s", ours, theirs, diff)
			}
		})
	}
}

func TestRelay_Rule6_ATokenThatTheServerSpellsItsOwnWayIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(func(l *life, m message) string {
			l.Write(0, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\u00e9","progress":1}}`)
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		})
		h := opened(t, s, relay.Config{})
		h.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":"é"}}}`)
		expect(t, "the host hears", h.brief(), []string{"progress", "1: {}"})
	})
}

// The token of a request that is answered by a task stays valid until the task ends
// (2025-11-25, basic/utilities/progress); with its server it has ended.
func TestRelay_Rule6_ATaskHasProgressAfterItsRequestIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`
		s := answering(func(_ *life, m message) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"a"}}}`, m.ID)
		})
		h := opened(t, s, relay.Config{})
		h.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":"t"}}}`)
		expect(t, "the task", h.brief(), []string{`1: {"task":{"taskId":"a"}}`})
		s.cur.Write(0, progress)
		synctest.Wait()
		expect(t, "its progress", h.brief(), []string{"progress"})
		s.kill()
		sleep(1e9)
		h.brief()
		s.cur.Write(0, progress)
		synctest.Wait()
		expect(t, "progress of another server's", h.brief(), nil)
	})
}

func TestRelay_Rule3_WhatCanNotBeReadIsAnsweredAllTheSame(t *testing.T) {
	deep := strings.Repeat("[", 3000) + strings.Repeat("]", 3000)
	synctest.Test(t, func(t *testing.T) {
		results := []string{`{"x":NaN}`, deep, "{\"x\":\"a\x01b\"}"}
		s := answering(func(_ *life, m message) string {
			result := results[0]
			results = results[1:]
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		})
		h := opened(t, s, relay.Config{})
		for id := 1; id <= 3; id++ {
			h.say(call(id, "tools/list"))
		}
		expect(t, "the server's answers", h.brief(), []string{
			"1: -31001, unknown, attempt 1", "2: -31001, unknown, attempt 1", "3: -31001, unknown, attempt 1",
		})
		s.took()
		h.say(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":`+deep+`}`,
			`{"id":5,"method":"tools/call","params":{}}`,
			`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"x":NaN}}`,
			`{"jsonrpc":"2.0","id":7}`, `{"jsonrpc":"2.0","method":"x","params":NaN}`, `{"jsonrpc":"2.0","id":8,"result":NaN}`)
		expect(t, "the host's requests", h.brief(), []string{
			"4: -31002, not executed, attempt 0", "5: -31002, not executed, attempt 0", "6: -31002, not executed, attempt 0",
		})
		expect(t, "the server reads", s.took(), nil)
	})
}
