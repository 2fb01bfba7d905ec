//go:build unix

package main

import (
	"testing"
)

func TestRelay_Rule3_AServersRequestHasAnIdOfItsOwnOverAllGenerations(t *testing.T) {
	s, a := opened(t, "")
	ask := func(id string) string { return request(id, "sampling/createMessage", `{"messages":[ ],"n":1.50}`) }
	a.says(ask("7"), ask(`"7"`))
	first, second := s.hear(), s.hear()
	one, two := idOf(t, first), idOf(t, second)
	if first != ask(one) || second != ask(two) || one == two {
		t.Fatalf("the host is asked\n%s and\n%s", first, second)
	}
	s.say(result(two, `{"role":"assistant"}`))
	a.takes(result(`"7"`, `{"role":"assistant"}`)) // under the server's own id
	s.say(result(two, `{"role":"twice"}`))         // it was answered
	a.dies()
	b := s.replayed()
	s.hearsInAnyOrder(toolsNews, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+one+`,"reason":"the server that asked went away"}}`)
	b.says(ask("7"))
	third := idOf(t, s.hear())
	if third == one || third == two {
		t.Errorf("a replacement asks under %s, which its predecessor did", third)
	}
	s.say(result(one, `{"role":"for the dead"}`), refusal(third, -1, "no"))
	b.takes(refusal("7", -1, "no"))
	s.ends(exitOK)
}

func TestRelay_Rule3_AServersCancelOfItsOwnRequestNamesTheHostsId(t *testing.T) {
	s, a := opened(t, "")
	a.says(request("7", "elicitation/create", `{}`))
	id := idOf(t, s.hear())
	a.says(notification("notifications/cancelled", `{"requestId":8}`), // nobody's
		notification("notifications/cancelled", `{"reason": "never mind","requestId":7}`))
	s.hears(notification("notifications/cancelled", `{"reason": "never mind","requestId":`+id+`}`))
	s.say(result(id, "{}")) // too late
	s.say(request("1", "tools/list", "{}"))
	a.answers(request("1", "tools/list", "{}"), "{}")
	s.hears(result("1", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule3_AServersRequestInItsReplayIsAnsweredToo(t *testing.T) {
	s, a := opened(t, "")
	a.dies()
	b := s.next()
	line := b.take()
	b.says(request("1", "ping", "{}"))
	id := idOf(t, s.hear())
	s.say(result(id, "{}"))
	b.takes(result("1", "{}"))
	b.says(result(idOf(t, line), ofServer))
	b.takes(initialized)
	s.hears(toolsNews)
	s.ends(exitOK)
}

func TestRelay_Rule1_WhatFollowsTheAnswerToInitializeStaysBehindIt(t *testing.T) {
	s := stage(t, "")
	s.say(hostInitialize)
	a := s.next()
	a.takes(hostInitialize)
	word := notification("notifications/message", `{"level":"info","data":"hello"}`)
	a.says(result("0", ofServer), word)
	s.hears(result("0", ofServer), word)
	s.ends(exitOK)
}

const filter = `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}`

func acknowledged(id, notifications string) string {
	return notification("notifications/subscriptions/acknowledged", `{"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`},"notifications":`+notifications+`}`)
}

func ofStream(id, method, fields string) string {
	return notification(method, `{`+fields+`"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}`)
}

func TestRelay_Rule1_AStreamIsOpenedAgainUnderItsIdAndItsSecondAcknowledgementIsNoNews(t *testing.T) {
	s, a := openedModern(t, "")
	listen := modern(`"s"`, "subscriptions/listen", filter)
	granted := `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`
	s.say(listen)
	a.takes(listen)
	a.says(acknowledged(`"s"`, granted), ofStream(`"s"`, "notifications/tools/list_changed", ""))
	s.hears(acknowledged(`"s"`, granted), ofStream(`"s"`, "notifications/tools/list_changed", ""))
	read := modern("1", "resources/read", `"uri":"file:///a"`)
	s.say(read)
	a.takes(read)
	a.dies()
	b := s.next()
	line := b.take()
	held := modern("2", "tools/list", "")
	s.say(held)
	b.says(result(idOf(t, line), discovered))
	b.takes(read, listen, held) // retained, streams, held
	b.says(acknowledged(`"s"`, granted), result("1", "{}"), result("2", "{}"), ofStream(`"s"`, "notifications/resources/updated", `"uri":"file:///a",`))
	updated := ofStream(`"s"`, "notifications/resources/updated", `"uri":"file:///a",`)
	changed := ofStream(`"s"`, "notifications/tools/list_changed", "")
	s.hears(updated, changed, // of what is granted: it may have changed
		result("1", "{}"), result("2", "{}"), updated)
	b.dies()
	c := s.rediscovered()
	c.takes(listen)
	less := `{"toolsListChanged":true}`
	c.says(acknowledged(`"s"`, less)) // that is news
	s.hears(acknowledged(`"s"`, less), changed)
	c.says(result(`"s"`, `{"resultType":"complete"}`)) // a graceful end
	s.hears(result(`"s"`, `{"resultType":"complete"}`))
	c.dies()
	d := s.rediscovered()
	s.say(modern("3", "tools/list", ""))
	d.answers(modern("3", "tools/list", ""), "{}") // and no stream before it
	s.hears(result("3", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule5_ACancelledStreamIsNotOpenedAgain(t *testing.T) {
	s, a := openedModern(t, "")
	listen := modern("5", "subscriptions/listen", filter)
	s.say(listen)
	a.takes(listen)
	a.says(acknowledged("5", `{"toolsListChanged":true}`))
	s.hears(acknowledged("5", `{"toolsListChanged":true}`))
	cancel := notification("notifications/cancelled", `{"requestId":5,"reason":"closed by its host"}`)
	s.say(cancel)
	a.takes(cancel)
	a.dies()
	b := s.rediscovered()
	s.say(modern("6", "tools/list", ""))
	b.answers(modern("6", "tools/list", ""), "{}")
	s.hears(result("6", "{}"))
	s.ends(exitOK)
}

func TestRelay_Rule1_ARefusedStreamIsAnsweredAndOver(t *testing.T) {
	s, a := openedModern(t, "")
	listen := modern("5", "subscriptions/listen", filter)
	s.say(listen)
	a.takes(listen)
	a.says(refusal("5", -32602, "no"))
	s.hears(refusal("5", -32602, "no"))
	a.dies()
	b := s.rediscovered()
	s.say(modern("6", "tools/list", ""))
	b.answers(modern("6", "tools/list", ""), "{}")
	s.hears(result("6", "{}"))
	s.ends(exitOK)
}
