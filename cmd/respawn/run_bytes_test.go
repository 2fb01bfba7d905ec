//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
)

// crashed is an opened scene whose first server was killed and replaced.
func crashed(t *testing.T, flags string) (*scene, *actor) {
	t.Helper()
	s, a := opened(t, flags)
	a.dies()
	b := s.replayed()
	s.hears(toolsNews)
	return s, b
}

func TestRelay_Rule2_BytesPassAsTheyCameBothWays(t *testing.T) {
	s, a := crashed(t, "")
	big := strings.Repeat("0123456789abcdef", 5<<20/16)
	for i, params := range []string{
		`{"b":1,"a":2,"b":3}`,
		`{ "n" : [1.50, 1e5, 10000000000000000000000001, -0.0] }`,
		`{"s":"\u00e9é\ud83d\ude00😀\u2028` + "\u2028" + `\/"}`,
		`{"_meta":{"vendor.example/x":null,"progressToken":1.0},"unknown":{"deep":[[[]]]}}`,
		`{"big":"` + big + `"}`,
	} {
		id := fmt.Sprint(i)
		line := `{"method":"vendor/echo","x":"unknown field","params":` + params + `,"id":` + id + `,"jsonrpc":"2.0"}`
		s.say(line)
		a.takes(line)
		answer := `{"result":` + params + `,"x":[],"jsonrpc":"2.0", "id":` + id + `}`
		a.says(answer)
		s.hears(answer)
		word := `{"params":` + params + `,"jsonrpc":"2.0","method":"notifications/vendor"}`
		s.say(word)
		a.takes(word)
		a.says(word)
		s.hears(word)
	}
	s.ends(exitOK)
}

func TestS31_NumbersAndStringsAreIdsOfTheirOwn(t *testing.T) {
	s, a := crashed(t, "")
	ids := []string{`7`, `"7"`, `7.0`, `-1`, `0`, `""`, `"a\u0041"`, `"aA"`, `9007199254740993`, `"é\"\\"`, `1e3`}
	var lines, answers []string
	for _, id := range ids {
		lines = append(lines, request(id, "tools/list", "{}"))
		answers = append([]string{result(id, "{}")}, answers...)
	}
	s.say(lines...)
	a.takes(lines...)
	a.says(answers...) // the last one first
	s.hears(answers...)
	s.ends(exitOK)
}

func TestRelay_Rule2_AMessageOverTheLimitIsDroppedAloneInBothDirections(t *testing.T) {
	s, a := opened(t, "-max-message 64KiB")
	long := `{"pad":"` + strings.Repeat("x", 100<<10) + `"}`
	s.say(request("1", "tools/list", long), request("2", "tools/list", "{}"))
	s.hearsLost(lost{ID: "1", Code: -31002, Outcome: "not executed"})
	a.takes(request("2", "tools/list", "{}"))
	a.says(notification("notifications/vendor", long), result("2", "{}"))
	s.hears(result("2", "{}"))
	s.say(request("3", "tools/list", "{}"))
	a.takes(request("3", "tools/list", "{}"))
	a.says(result("3", long))
	s.hearsLost(lost{ID: "3", Generation: 1, Code: -31001, Outcome: "unknown", Attempt: 1})
	s.stderr.until(t, "too long")
	s.ends(exitOK)
}

func TestRelay_OnlyProtocolReachesStdout(t *testing.T) {
	s, a := opened(t, "")
	s.say(request("1", "tools/list", "{}"))
	a.take()
	a.does(order{Say: []byte("\n\r\nlistening on port 3000\n\x1b[31mred\x1b[0m\n42\nnull\n[]\n" +
		`[{"jsonrpc":"2.0","id":1,"result":{}}]` + "\n{\n{}\n" +
		`{"jsonrpc":"1.0","id":1,"result":{}}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"both"}}` + "\n" +
		`{"jsonrpc":"2.0","id":1}` + "\n" +
		`{"jsonrpc":"2.0","error":{"code":1,"message":"no id"},"id":null}` + "\n" +
		`{"level":"info","id":1}` + "\n" + strings.Repeat("[", 2<<20) + "\n" + `{"a":` + strings.Repeat("[", 2<<20) + "\n" +
		"\xef\xbb\xbf" + result("1", `{"x":1}`) + "\r\n" + `half a line`)})
	s.hears(result("1", `{"x":1}`))
	a.does(order{Say: []byte(" and its end\n")})
	s.say(request("2", "tools/list", "{}"))
	a.answers(request("2", "tools/list", "{}"), "{}")
	s.hears(result("2", "{}"))
	a.does(order{Say: []byte(`{"jsonrpc":"2.0","id":3,"resu`)}) // and dies in the middle
	a.dies()
	s.replayed()
	s.hears(toolsNews)
	s.ends(exitOK)
}

// The host is trusted no more than the server to speak the protocol.
func TestRelay_WhatTheHostSaysThatIsNoMessageIsDroppedAlone(t *testing.T) {
	s, a := opened(t, "")
	for _, noise := range []string{
		"", "  ", "hello", "42", "null", "{}", `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":9}`, "[]", "[1]",
		strings.Repeat("[", 2<<20), strings.Repeat("[", 100) + strings.Repeat("]", 100), "\xff\xfe",
	} {
		s.say(noise)
	}
	s.say(`{"jsonrpc":"2.0","method":"x","params":`+strings.Repeat("[", 2<<20),
		request("1", "x", strings.Repeat("[", 2000)+strings.Repeat("]", 2000)))
	s.hearsLost(lost{ID: "1", Code: -31002, Outcome: "not executed"}) // it can be told that this is a request
	s.say("\ufeff"+request("1", "tools/list", "{}")+"\r", request("2", "tools/list", "{}"))
	a.takes(request("2", "tools/list", "{}"))
	a.says(result("2", "{}"))
	s.hears(result("2", "{}"))
	s.ends(exitOK)
}

func TestRelay_ABatchIsTakenApartAndEachRequestAnsweredOnce(t *testing.T) {
	s, a := opened(t, "")
	one, two, three := request("1", "tools/list", `{"x": 1.0}`), notification("notifications/vendor", "{}"), request(`"2"`, "tools/call", `{"name":"x"}`)
	s.say("[" + one + ", " + two + " ,\t" + three + "]")
	a.takes(one, two, three)
	a.says(result(`"2"`, "{}"), result("1", "{}"))
	s.hears(result(`"2"`, "{}"), result("1", "{}"))
	s.ends(exitOK)
}
