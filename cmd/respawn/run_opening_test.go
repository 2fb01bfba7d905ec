//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The host offers 2025-11-25, the server settles on 2025-06-18. The spaces and the
// number are such as no encoder would write.
const (
	hostParams  = `{"clientInfo":{"name":"host","version":"1"},  "protocolVersion": %q,"capabilities":{"roots":{}},"x":1.50}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ofServer    = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{}},"serverInfo":{"name":"puppet","version":"1"}}`
	toolsNews   = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
)

var hostInitialize = request("0", "initialize", fmt.Sprintf(hostParams, "2025-11-25"))

func request(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func result(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func refusal(id string, code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

func notification(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}

// idOf is the id of a message, as its bytes stand.
func idOf(t *testing.T, line string) string {
	t.Helper()
	var m wire
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v in %.200s", err, line)
	}
	return string(m.ID)
}

// opened is a scene whose host and first server have agreed.
func opened(t *testing.T, flags string, directions ...direction) (*scene, *actor) {
	t.Helper()
	s := stage(t, flags, directions...)
	s.say(hostInitialize)
	a := s.next()
	a.takes(hostInitialize)
	a.says(result("0", ofServer))
	s.hears(result("0", ofServer))
	s.say(initialized)
	a.takes(initialized)
	return s, a
}

// replayed is the next server of an opened scene, which answers the replay as the
// first one did.
func (s *scene) replayed() *actor {
	s.t.Helper()
	a := s.next()
	a.replay(ofServer)
	a.takes(initialized)
	return a
}

// replay expects a replayed initialize and answers it.
func (a *actor) replay(with string) {
	a.s.t.Helper()
	line := a.take()
	id := idOf(a.s.t, line)
	if diff := cmp.Diff(request(id, "initialize", fmt.Sprintf(hostParams, "2025-06-18")), line); diff != "" {
		a.s.t.Fatalf("server %d is greeted (-want +got):\n%s", a.gen, diff)
	}
	if len(id) < len("1125899906842624") {
		a.s.t.Errorf("an id of ours is %s, which a host may use", id)
	}
	a.says(result(id, with))
}

// answers answers the next request that the server reads, which it checks.
func (a *actor) answers(want, with string) {
	a.s.t.Helper()
	a.takes(want)
	a.says(result(idOf(a.s.t, want), with))
}

// lost is our error for a request, in the words that do not depend on the cause.
type lost struct {
	ID                string
	Code              int
	Outcome           string
	Generation        uint64
	ExitCode, Attempt int
	HasExitCode       bool
}

// hearsLost expects the error for a lost request and checks what it says to a model.
func (s *scene) hearsLost(want lost) {
	s.t.Helper()
	line := s.hear()
	var m wire
	var data struct {
		Outcome    string
		Generation uint64
		Cause      string
		ExitCode   *int
		Attempt    int
	}
	if json.Unmarshal([]byte(line), &m) != nil || m.Error == nil || json.Unmarshal(m.Error.Data, &data) != nil {
		s.t.Fatalf("the host hears %.300s, want an error of ours", line)
	}
	got := lost{ID: string(m.ID), Code: m.Error.Code, Outcome: data.Outcome, Generation: data.Generation, Attempt: data.Attempt}
	if data.ExitCode != nil {
		got.ExitCode, got.HasExitCode = *data.ExitCode, true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s\n(-want +got):\n%s", line, diff)
	}
	advice := "may have taken effect: check before"
	switch {
	case strings.Contains(m.Error.Message, " initialize") || strings.Contains(m.Error.Message, " server/discover"):
		advice = "Nothing was agreed on"
	case data.Outcome == "not executed":
		advice = "did not run"
	}
	if !strings.Contains(m.Error.Message, advice) || !strings.HasPrefix(m.Error.Message, "respawn: the MCP server ") {
		s.t.Errorf("a model reads %q of an outcome %q", m.Error.Message, data.Outcome)
	}
}

func TestRelay_Rule1_TheOpeningPassesUntouchedAndIsReplayedAtTheAgreedVersion(t *testing.T) {
	s, a := opened(t, "")
	a.dies()
	b := s.replayed()
	s.hears(toolsNews)
	s.say(request("1", "tools/list", "{}"))
	b.answers(request("1", "tools/list", "{}"), `{"tools":[]}`)
	s.hears(result("1", `{"tools":[]}`))
	s.ends(exitOK)
}

func TestRelay_Rule1_InitializedIsReplayedOnlyIfTheHostHadSentIt(t *testing.T) {
	s := stage(t, "")
	s.say(hostInitialize)
	a := s.next()
	a.takes(hostInitialize)
	a.says(result("0", ofServer))
	s.hears(result("0", ofServer))
	a.dies()
	b := s.next()
	b.replay(ofServer)
	s.hears(toolsNews)
	s.say(initialized, request("1", "tools/list", "{}"))
	b.takes(initialized, request("1", "tools/list", "{}"))
	b.says(result("1", "{}"))
	s.hears(result("1", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule1_StateIsReplayedBeforeRequestsAndTheHostIsToldWhatMayHaveChanged(t *testing.T) {
	s, a := opened(t, "")
	for i, r := range []struct{ method, params string }{
		{"logging/setLevel", `{"level":"debug"}`},
		{"resources/subscribe", `{"uri":"file:///a"}`},
		{"resources/subscribe", `{"uri":"file:///\u00fc"}`},
		{"resources/subscribe", `{"uri":"file:///gone"}`},
		{"resources/unsubscribe", `{"uri":"file:///gone"}`},
		{"logging/setLevel", `{"level":"warning"}`},
	} {
		s.say(request(fmt.Sprint(i+1), r.method, r.params))
		a.answers(request(fmt.Sprint(i+1), r.method, r.params), "{}")
		s.hears(result(fmt.Sprint(i+1), "{}"))
	}
	s.say(request("50", "resources/subscribe", `{"uri":"file:///refused"}`))
	a.takes(request("50", "resources/subscribe", `{"uri":"file:///refused"}`))
	a.says(refusal("50", -32002, "no"))
	s.hears(refusal("50", -32002, "no"))

	s.say(request("7", "tools/list", "{}")) // in flight when the server dies
	a.take()
	a.dies()
	b := s.next()
	s.say(request("8", "prompts/list", "{}")) // while nobody serves
	b.replay(ofServer)
	b.takes(initialized)
	var state []string
	for range 3 { // all are sent before any is answered
		state = append(state, b.take())
	}
	for i, want := range []string{
		request(idOf(t, state[0]), "logging/setLevel", `{"level":"warning"}`),
		request(idOf(t, state[1]), "resources/subscribe", `{"uri":"file:///a"}`),
		request(idOf(t, state[2]), "resources/subscribe", `{"uri":"file:///ü"}`),
	} {
		if state[i] != want {
			t.Errorf("state: %s, want %s", state[i], want)
		}
	}
	b.says(result(idOf(t, state[2]), "{}"), refusal(idOf(t, state[1]), -32002, "not now"), result(idOf(t, state[0]), "{}"))
	b.takes(request("7", "tools/list", "{}"), request("8", "prompts/list", "{}")) // the retained one first
	b.says(result("8", "{}"), result("7", "{}"))
	s.hearsInAnyOrder(
		result("7", "{}"), result("8", "{}"), toolsNews,
		notification("notifications/resources/updated", `{"uri":"file:///a"}`),
		notification("notifications/resources/updated", `{"uri":"file:///ü"}`),
	)
	s.stderr.until(t, "not now")
	s.ends(exitOK)
}

func TestRelay_Rule1_ADeathDuringTheHostsOwnInitializeIsForgivenOnce(t *testing.T) {
	s := stage(t, "")
	s.say(hostInitialize)
	a := s.next()
	a.takes(hostInitialize)
	a.exits(3)
	b := s.next()
	b.takes(hostInitialize) // as it came
	b.says(result("0", ofServer))
	s.hears(result("0", ofServer))
	s.say(initialized)
	b.takes(initialized)
	s.ends(exitOK)
}

func TestRelay_Rule1_TheSecondDeathBeforeTheFirstAnswerEndsTheShimWithTheServersCode(t *testing.T) {
	s := stage(t, "")
	s.say(hostInitialize)
	for range 2 {
		a := s.next()
		a.takes(hostInitialize)
		a.does(order{Words: []byte("no config\n")})
		a.exits(3)
	}
	s.hearsLost(lost{ID: "0", Code: -31003, Outcome: "unknown", Generation: 2, ExitCode: 3, HasExitCode: true, Attempt: 2})
	if got := s.code(); got != 3 {
		t.Errorf("exit code %d, want the server's, 3", got)
	}
	s.stderr.until(t, "no config")
}

func TestRelay_Rule1_TheSecondDeathBeforeAnyAnswerEndsTheShimForAModernHostThatAsksNothingToo(t *testing.T) {
	s := stage(t, "")
	s.say(modern("1", "tools/list", ""))
	a := s.next()
	a.takes(modern("1", "tools/list", ""))
	a.exits(3)
	b := s.next()
	b.take() // the question for its era
	b.exits(3)
	s.hearsLost(lost{ID: "1", Code: -31003, Outcome: "unknown", Generation: 1, ExitCode: 3, HasExitCode: true, Attempt: 1})
	if got := s.code(); got != 3 {
		t.Errorf("exit code %d, want the server's, 3", got)
	}
}

func TestRelay_Rule1_AModernServerThatAnsweredAnythingHasItsWholeBudget(t *testing.T) {
	s := stage(t, "")
	call := modern("1", "tools/call", `"name":"x"`)
	s.say(call)
	a := s.next()
	a.takes(call)
	a.exits(3)
	s.hearsLost(lost{ID: "1", Code: -31001, Outcome: "unknown", Generation: 1, ExitCode: 3, HasExitCode: true, Attempt: 1})
	s.rediscovered().exits(3)
	s.rediscovered()
	s.ends(exitOK)
}

func TestRelay_Rule1_AServerThatDiesBeforeTheHostSpeaksIsStartedOnceMore(t *testing.T) {
	s := stage(t, "")
	s.next().exits(3)
	b := s.next()
	s.say(hostInitialize)
	b.takes(hostInitialize)
	b.says(result("0", ofServer))
	s.hears(result("0", ofServer))
	s.ends(exitOK)
}

const (
	modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"host","version":"1"},"io.modelcontextprotocol/clientCapabilities":{ }}`
	discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`
)

var hostDiscover = request("0", "server/discover", `{"_meta":`+modernMeta+`}`)

func modern(id, method, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return request(id, method, `{"_meta":`+modernMeta+fields+`}`)
}

// openedModern is opened for a modern host and server.
func openedModern(t *testing.T, flags string) (*scene, *actor) {
	t.Helper()
	s := stage(t, flags)
	s.say(hostDiscover)
	a := s.next()
	a.answers(hostDiscover, discovered)
	s.hears(result("0", discovered))
	return s, a
}

// rediscovered expects the replay of a modern opening and answers it.
func (s *scene) rediscovered() *actor {
	s.t.Helper()
	a := s.next()
	line := a.take()
	id := idOf(s.t, line)
	if want := modern(id, "server/discover", ""); line != want {
		s.t.Fatalf("server %d is greeted with\n%s, want\n%s", a.gen, line, want)
	}
	a.says(result(id, discovered))
	return a
}

func TestRelay_Rule1_AModernOpeningIsReplayedWithTheHostsMeta(t *testing.T) {
	s, a := openedModern(t, "")
	a.dies()
	b := s.rediscovered()
	s.say(modern("1", "tools/list", ""))
	b.answers(modern("1", "tools/list", ""), `{"tools":[]}`)
	s.hears(result("1", `{"tools":[]}`))
	s.ends(exitOK)
}

func TestRelay_Rule1_AModernHostThatAsksNothingOpensWithItsFirstRequest(t *testing.T) {
	s := stage(t, "")
	s.say(modern("1", "tools/list", ""))
	a := s.next()
	a.answers(modern("1", "tools/list", ""), `{"tools":[]}`)
	s.hears(result("1", `{"tools":[]}`))
	a.dies()
	b := s.next()
	line := b.take()
	id := idOf(t, line)
	if want := modern(id, "server/discover", ""); line != want {
		t.Fatalf("the second server is greeted with\n%s, want\n%s", line, want)
	}
	b.says(refusal(id, -32601, "no such method")) // the first one was never asked
	s.say(modern("2", "tools/list", ""))
	b.answers(modern("2", "tools/list", ""), `{}`)
	s.hears(result("2", `{}`))
	s.ends(exitOK)
}

func TestRelay_Rule1_AProbeThatKillsALegacyServerIsTheHostsToRepeat(t *testing.T) {
	s := stage(t, "")
	s.say(hostDiscover)
	a := s.next()
	a.takes(hostDiscover)
	a.exits(1)
	s.hearsLost(lost{ID: "0", Code: -31001, Outcome: "unknown", Generation: 1, ExitCode: 1, HasExitCode: true, Attempt: 1})
	again := request(`"i"`, "initialize", fmt.Sprintf(hostParams, "2025-11-25"))
	s.say(again)
	b := s.next()
	b.answers(again, ofServer)
	s.hears(result(`"i"`, ofServer))
	s.say(initialized)
	b.takes(initialized)
	b.dies()
	s.replayed()
	s.hears(toolsNews)
	s.ends(exitOK)
}

func TestRelay_Rule1_AProbeThatIsRefusedLeavesTheFallbackToTheHost(t *testing.T) {
	s := stage(t, "")
	s.say(hostDiscover)
	a := s.next()
	a.takes(hostDiscover)
	a.says(refusal("0", -32601, "Method not found"))
	s.hears(refusal("0", -32601, "Method not found"))
	again := request("1", "initialize", fmt.Sprintf(hostParams, "2025-11-25"))
	s.say(again)
	a.answers(again, ofServer)
	s.hears(result("1", ofServer))
	s.ends(exitOK)
}

// A legacy server may say nothing to a request that it does not know, and the host
// falls back after a while (2026-07-28, stdio, Backward Compatibility).
func TestRelay_Rule1_AProbeThatNobodyAnswersDoesNotStandInTheWayOfInitialize(t *testing.T) {
	s := stage(t, "")
	s.say(hostDiscover)
	a := s.next()
	a.takes(hostDiscover)
	again := request("1", "initialize", fmt.Sprintf(hostParams, "2025-11-25"))
	s.say(again)
	a.answers(again, ofServer)
	s.hears(result("1", ofServer))
	s.say(initialized)
	a.takes(initialized)
	a.says(refusal("0", -32601, "at last"))
	s.hears(refusal("0", -32601, "at last"))
	a.dies()
	s.replayed()
	s.hears(toolsNews)
	s.ends(exitOK)
}

func TestRelay_Rule1_ASecondInitializeReplacesTheRecordAndAFailedOneDoesNot(t *testing.T) {
	s, a := opened(t, "")
	other := request("5", "initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"other","version":"2"}}`)
	s.say(other)
	a.takes(other)
	a.says(refusal("5", -32600, "once is enough"))
	s.hears(refusal("5", -32600, "once is enough"))
	a.dies()
	b := s.replayed() // the old one
	s.hears(toolsNews)

	s.say(other)
	agreed := `{"protocolVersion":"2024-11-05","capabilities":{"prompts":{"listChanged":true}},"serverInfo":{"name":"puppet","version":"1"}}`
	b.answers(other, agreed)
	s.hears(result("5", agreed))
	b.dies()
	c := s.next()
	line := c.take()
	id := idOf(t, line)
	if want := request(id, "initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"other","version":"2"}}`); line != want {
		t.Fatalf("the third server is greeted with\n%s, want\n%s", line, want)
	}
	c.says(result(id, agreed))
	s.hears(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	s.say(initialized) // only now, for the second opening
	c.takes(initialized)
	s.ends(exitOK)
}
