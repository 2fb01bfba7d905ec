//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestRelay_Rule3_EachRequestIsAnsweredOnceWhateverTheServerSays(t *testing.T) {
	s, a := opened(t, "")
	s.say(request("1", "tools/list", "{}"))
	a.take()
	a.says(
		result("99", "{}"),                 // nobody asked
		result(`"one"`, "{}"),              // nor under that id
		result("1", `{"first":true}`),      //
		result("1", `{"second":true}`),     // it was answered
		refusal("1", -32603, "third time"), //
		result("1125899906842625", "{}"),   // nor did we
		notification("notifications/vendor", "{}"),
	)
	s.hears(result("1", `{"first":true}`), notification("notifications/vendor", "{}")) // all was read by now
	s.say(request("1", "tools/list", "{}"))                                            // the id is free again
	a.answers(request("1", "tools/list", "{}"), `{}`)
	s.hears(result("1", `{}`))
	s.ends(exitOK)
}

func TestS31_ADuplicateIdNeverDisturbsTheFirst(t *testing.T) {
	s, a := opened(t, "")
	s.say(request("1", "tools/call", `{"name":"first"}`), request("1", "tools/list", `{}`), request("2", "tools/list", `{}`))
	a.takes(request("1", "tools/call", `{"name":"first"}`), request("2", "tools/list", `{}`))
	a.says(result("2", "{}"), result("1", `{}`))
	s.hears(result("2", "{}"), result("1", `{}`))
	s.stderr.until(t, "in use")
	s.ends(exitOK)
}

func TestS30_ALostToolCallIsAnsweredAtOnceAndNeverSentAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*actor)
		want lost
	}{
		{"killed", (*actor).dies, lost{ID: `"c"`, Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1}},
		{"exit 7", func(a *actor) { a.exits(7) }, lost{ID: `"c"`, Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1, ExitCode: 7, HasExitCode: true}},
		{"exit 0", func(a *actor) { a.exits(0) }, lost{ID: `"c"`, Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1, HasExitCode: true}},
		{"closes its stdout and stays", func(a *actor) { a.does(order{Stubborn: true, Shut: true}) }, lost{ID: `"c"`, Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, a := opened(t, "")
			call := request(`"c"`, "tools/call", `{"name":"pay","arguments":{}}`)
			s.say(call)
			a.takes(call)
			tc.end(a)
			s.hearsLost(tc.want)
			b := s.replayed()
			s.hears(toolsNews)
			s.say(call) // it is the host's to make again
			b.answers(call, "{}")
			s.hears(result(`"c"`, "{}"))
			s.curtainless()
		})
	}
}

// curtainless ends a scene in which the host made a call again under its own id.
func (s *scene) curtainless() {
	s.t.Helper()
	s.ends(exitOK)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = nil
}

func TestS34_AReadIsSentAgainUnderItsIdAndTheHostSeesOnlyTheAnswer(t *testing.T) {
	s, a := opened(t, "")
	reads := []string{
		request("1", "tools/list", `{"cursor":"x"}`), request("2", "resources/read", `{"uri":"a"}`), request(`"3"`, "prompts/get", `{"name":"p"}`),
		request("4", "completion/complete", "{}"), request("5", "resources/templates/list", "{}"), request("6", "resources/list", "{}"), request("7", "prompts/list", "{}"),
	}
	s.say(reads...)
	a.takes(reads...)
	a.exits(1)
	b := s.replayed()
	b.takes(reads...) // in their order
	s.hears(toolsNews)
	for _, r := range reads {
		b.says(result(idOf(t, r), "{}"))
		s.hears(result(idOf(t, r), "{}"))
	}
	s.ends(exitOK)
}

func TestRelay_Rule4_AReadThatWasInFlightAtThreeDeathsFails(t *testing.T) {
	s, a := opened(t, "")
	poison := request("1", "resources/read", `{"uri":"poison"}`)
	s.say(poison)
	a.takes(poison)
	a.exits(1)
	for i := range 2 {
		b := s.replayed()
		b.takes(poison)
		if i == 0 {
			s.hears(toolsNews)
			b.exits(1)
			continue
		}
		s.hears(toolsNews)
		b.exits(2)
	}
	s.hearsLost(lost{ID: "1", Code: -31001, Outcome: "unknown", Generation: 3, Attempt: 3, ExitCode: 2, HasExitCode: true})
	c := s.replayed()
	s.hears(toolsNews)
	s.say(request("2", "tools/list", "{}"))
	c.answers(request("2", "tools/list", "{}"), "{}") // and nothing before it
	s.hears(result("2", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule4_WhatIsNoReadFailsAtTheFirstDeath(t *testing.T) {
	for _, tc := range []struct{ name, flags, method, params string }{
		{"a tool", "", "tools/call", `{"name":"x"}`},
		{"a vendor's method", "", "vendor/read", `{}`},
		{"state", "", "logging/setLevel", `{"level":"debug"}`},
		{"a continuation", "", "resources/read", `{"uri":"a","requestState":"s"}`},
		{"a read, with the retry off", "-retry off", "resources/read", `{"uri":"a"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, a := opened(t, tc.flags)
			s.say(request("1", tc.method, tc.params))
			a.take()
			a.exits(1)
			s.hearsLost(lost{ID: "1", Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1, ExitCode: 1, HasExitCode: true})
			b := s.replayed()
			s.hears(toolsNews)
			s.say(request("2", "tools/list", "{}"))
			b.answers(request("2", "tools/list", "{}"), "{}")
			s.hears(result("2", "{}"))
			s.ends(exitOK)
		})
	}
}

func TestRelay_Rule4_WhatWasNotWrittenIsHeldAndSentAgainAToolToo(t *testing.T) {
	s, a := opened(t, "")
	a.does(order{Deaf: true})
	// The first fills the pipe and is begun; the second waits behind it.
	big := request("1", "tools/call", `{"name":"big","pad":"`+strings.Repeat("x", 1<<20)+`"}`)
	call := request("2", "tools/call", `{"name":"small"}`)
	s.say(big, call, request("3", "vendor/x", "{}"))
	s.say(request("4", "ping", "{}"), notification("notifications/cancelled", `{"requestId":4}`))
	s.say(call)
	s.stderr.until(t, "in use") // so all of that was read
	a.begins()
	a.dies()
	s.hearsLost(lost{ID: "1", Code: -31001, Outcome: "unknown", Generation: 1, Attempt: 1})
	b := s.replayed()
	b.takes(call, request("3", "vendor/x", "{}"))
	b.says(result("3", "{}"), result("2", "{}"))
	s.hearsInAnyOrder(toolsNews, result("3", "{}"), result("2", "{}"))
	s.ends(exitOK)
}

func TestS4_TheShimHoldsRequestsUntilAReplacementServesAndAnswersPingItself(t *testing.T) {
	s, a := opened(t, "")
	a.dies()
	b := s.next()
	line := b.take() // the replay, which it does not answer yet
	s.say(request("1", "tools/call", `{"name":"x"}`), request("2", "tools/list", "{}"), request(`"p"`, "ping", "{}"), request("4", "tools/list", "{}"))
	s.hears(result(`"p"`, "{}"))
	s.say(notification("notifications/cancelled", `{"requestId":2}`), request("p2", "ping", "{}"))
	s.say(request(`"p3"`, "ping", "{}"))
	s.hears(result(`"p3"`, "{}"))
	b.says(result(idOf(t, line), ofServer))
	b.takes(initialized, request("1", "tools/call", `{"name":"x"}`), request("4", "tools/list", "{}"))
	b.says(result("4", "{}"), result("1", "{}"))
	s.hearsInAnyOrder(toolsNews, result("4", "{}"), result("1", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule5_ACancelGoesToWhoeverHasTheRequestAndToNobodyElse(t *testing.T) {
	s, a := opened(t, "")
	cancel := func(id string) string {
		return notification("notifications/cancelled", `{"reason":"enough", "requestId":`+id+`}`)
	}
	call := request(`"live"`, "tools/call", `{"name":"x"}`)
	s.say(call)
	a.takes(call)
	s.say(cancel(`"live"`), cancel("0"), cancel(`"nobody's"`)) // the second is the initialize
	a.takes(cancel(`"live"`))
	a.says(result(`"live"`, "{}")) // too late, and nobody's any more
	read := request("1", "tools/list", "{}")
	s.say(read)
	a.takes(read)
	a.dies()
	b := s.next()
	line := b.take()
	s.say(cancel("1"), request("2", "tools/list", "{}")) // the first waits to be sent again
	s.say(request("3", "ping", "{}"))
	s.hears(result("3", "{}")) // so all of that was read
	b.says(result(idOf(t, line), ofServer))
	b.takes(initialized, request("2", "tools/list", "{}"))
	b.says(result("2", "{}"))
	s.hearsInAnyOrder(toolsNews, result("2", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule6_ProgressReachesTheHostOnlyForWhatIsInFlightAndAfterAReSendToo(t *testing.T) {
	s, a := opened(t, "")
	read := request("1", "resources/read", `{"uri":"a","_meta":{"progressToken":"t"}}`)
	progress := func(token string, n int) string {
		return notification("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, n))
	}
	s.say(read)
	a.takes(read)
	a.says(progress(`"t"`, 50), progress(`"other"`, 1), progress("1", 1))
	s.hears(progress(`"t"`, 50))
	a.dies()
	b := s.replayed()
	b.takes(read)
	s.hears(toolsNews)
	b.says(progress(`"t"`, 1), result("1", "{}"), progress(`"t"`, 99))
	s.hears(progress(`"t"`, 1), result("1", "{}"))
	s.say(request("2", "tools/list", "{}"))
	b.answers(request("2", "tools/list", "{}"), "{}")
	s.hears(result("2", "{}"))
	s.ends(exitOK)
}

func TestRelay_AServerThatHangsIsTheHostsToCancel(t *testing.T) {
	s, a := opened(t, "")
	s.say(request("1", "tools/call", `{"name":"hang"}`), request("2", "tools/list", "{}"))
	a.takes(request("1", "tools/call", `{"name":"hang"}`), request("2", "tools/list", "{}"))
	a.says(result("2", "{}"))
	s.hears(result("2", "{}"))
	cancel := notification("notifications/cancelled", `{"requestId":1}`)
	s.say(cancel)
	a.takes(cancel)
	s.ends(exitOK)
}

func TestRelay_Rule3_WhatADeadServerStillSaysReachesNobody(t *testing.T) {
	s, a := opened(t, "")
	read := request("1", "tools/list", "{}")
	s.say(read)
	a.takes(read)
	a.does(order{Stubborn: true, Fork: true}) // somebody keeps its stdout open
	a.does(order{Say: []byte(`{"jsonrpc":"2.0","id":1,"result":{"half":`)})
	a.dies()
	b := s.replayed()
	b.takes(read)
	s.hears(toolsNews)
	b.says(result("1", `{"whole":true}`))
	s.hears(result("1", `{"whole":true}`))
	s.ends(exitOK)
}
