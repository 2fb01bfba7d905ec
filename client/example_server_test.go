package client_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/respawn-mcp/respawn/transports"
)

// The examples run against servers in the same process, which die when they are
// told to. With a real one, only the factory differs:
// stdio.Command("npx", "-y", "some-server").

// fragileServer answers each call with the number of its life. Its first life ends
// while it works on a call named in fatal.
func fragileServer(fatal ...string) (server transports.Factory, kill func()) {
	p := &peer{on: func(l *life, m message) (bool, error) {
		for _, method := range fatal {
			if m.Method == method && l.gen == 1 {
				return true, errKilled
			}
		}
		switch m.Method {
		case "resources/read":
			l.result(m, `{"contents":[{"uri":"file:///notes","text":"read by life %d"}]}`, l.gen)
		case "tools/call":
			l.progress(m, 1)
			l.progress(m, 2)
			l.result(m, `{"content":[{"type":"text","text":"done by life %d"}]}`, l.gen)
		default:
			return false, nil
		}
		return true, nil
	}}
	return p.factory(), p.kill
}

// pagedServer lists three tools on three pages.
func pagedServer() transports.Factory { return newPaged(3).factory() }

// changingServer tells its subscribers once in each life that its tools changed.
func changingServer() (server transports.Factory, kill func()) {
	p := &peer{on: func(l *life, m message) (bool, error) {
		if m.Method != "subscriptions/listen" {
			return false, nil
		}
		l.answer(m)
		l.tell(m, "notifications/tools/list_changed")
		return true, nil
	}}
	return p.factory(), p.kill
}

// askingServer is a legacy server which answers a call with what the client
// answers to a request of its own.
func askingServer(method, params string) transports.Factory {
	var call message
	p := &peer{legacy: true, on: func(l *life, m message) (bool, error) {
		switch m.Method {
		case "tools/call":
			call = m
			l.ask("1", method, params)
		case "":
			text, _ := json.Marshal(string(m.Result) + string(m.Error))
			l.result(call, `{"content":[{"type":"text","text":%s}]}`, text)
		default:
			return false, nil
		}
		return true, nil
	}}
	return p.factory()
}

// formServer is a modern server whose tool needs a form filled in, and greets
// whoever did.
func formServer() transports.Factory {
	p := &peer{on: func(l *life, m message) (bool, error) {
		if m.Method != "tools/call" {
			return false, nil
		}
		if !strings.Contains(string(m.Params), "inputResponses") {
			l.result(m, `{"resultType":"input_required","requestState":"form 1","inputRequests":{"who":{"method":"elicitation/create","params":%s}}}`,
				`{"mode":"form","message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"greeting":{"type":"string","default":"hello"}}}}`)
			return true, nil
		}
		var p struct {
			Responses map[string]struct {
				Content struct{ Name, Greeting string }
			} `json:"inputResponses"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			return true, err
		}
		who := p.Responses["who"].Content
		l.result(m, `{"content":[{"type":"text","text":%q}]}`, fmt.Sprintf("%s, %s", who.Greeting, who.Name))
		return true, nil
	}}
	return p.factory()
}

// sleepyServer answers nothing any more in its first life, once it serves.
func sleepyServer() transports.Factory {
	p := &peer{}
	p.on = func(l *life, m message) (bool, error) { return l.gen == 1 && len(p.messages()) > 1, nil }
	return p.factory()
}
