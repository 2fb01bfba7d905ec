package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

const (
	initialize  = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

	// modernMeta is what each request of a 2026-07-28 host carries.
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"h","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// after is a budget of many restarts, each after d, so that an outage is as long as
// a test wants.
func after(t *testing.T, d time.Duration) policy.Budget {
	t.Helper()
	b, err := policy.Tumbling(1000, time.Hour, policy.Constant(d))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened has sent the host's opening, and heard its answer.
func opened(t *testing.T, s *server, cfg relay.Config) *host {
	t.Helper()
	h := start(t, s, cfg)
	h.say(initialize, initialized)
	h.heard()
	s.took()
	return h
}

func (h *host) say(frames ...string) {
	for _, f := range frames {
		h.FromHost([]byte(f))
	}
	synctest.Wait()
}

// brief is what the host heard, in a form that fits a line: an answer's id and
// result, an error of ours by code, outcome and attempt, or a method.
func (h *host) brief() []string {
	var all []string
	for _, line := range h.heard() {
		var m struct {
			ID     json.RawMessage
			Method string
			Result json.RawMessage
			Error  struct {
				Code int
				Data relay.ErrorData
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			all = append(all, line)
			continue
		}
		switch {
		case m.Method != "":
			all = append(all, strings.TrimPrefix(m.Method, "notifications/"))
		case m.Result != nil:
			all = append(all, fmt.Sprintf("%s: %s", m.ID, m.Result))
		default:
			all = append(all, fmt.Sprintf("%s: %d, %s, attempt %d", m.ID, m.Error.Code, m.Error.Data.Outcome, m.Error.Data.Attempt))
		}
	}
	return all
}

// expect compares what was heard; answers of one server and news of another come
// on goroutines of their own, so their order says nothing.
func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// mute is legacy, but leaves everything unanswered that is no opening.
func mute(l *life, m message) error {
	if m.Method == "initialize" {
		return legacy(l, m)
	}
	return nil
}

func call(id int, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{}}`, id, method)
}

func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRelay_Rule5_ARequestIsHeldForTwentySecondsAndNotLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: func(l *life, m message) error {
			if l.gen == 2 {
				return nil // it starts and does not serve
			}
			return legacy(l, m)
		}}
		h := opened(t, s, relay.Config{Budget: after(t, time.Second), StartTimeout: time.Minute})
		s.kill()
		synctest.Wait()
		h.say(call(1, "tools/call"), call(2, "tools/list"), call(3, "ping"))
		expect(t, "the ping is answered here", h.brief(), []string{`3: {}`})
		sleep(20*time.Second - 1)
		expect(t, "just before", h.brief(), nil)
		sleep(1)
		expect(t, "after 20 s", h.brief(), []string{"1: -31002, not executed, attempt 0", "2: -31002, not executed, attempt 0"})
		s.took()
		sleep(time.Hour)
		expect(t, "the third server reads nothing of it", methods(s.took()), []string{"initialize", "notifications/initialized"})
		expect(t, "the recovery", h.brief(), []string{"tools/list_changed"})
	})
}

func TestRelay_Rule5_WhatCanNotBeServedInTimeIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: legacy}
		h := opened(t, s, relay.Config{Budget: after(t, 30*time.Second)})
		s.kill()
		synctest.Wait()
		h.say(call(1, "tools/list"))
		expect(t, "at once", h.brief(), []string{"1: -31002, not executed, attempt 0"})
		sleep(11 * time.Second)
		h.say(call(2, "tools/list"))
		sleep(19 * time.Second)
		expect(t, "with the replacement", h.brief(), []string{`2: {"gen":2}`, "tools/list_changed"})
	})
}

// methods names what a server read.
func methods(took []string) (names []string) {
	for _, line := range took {
		_, frame, _ := strings.Cut(line, " ")
		var m message
		if json.Unmarshal([]byte(frame), &m) != nil || m.Method == "" {
			names = append(names, frame)
			continue
		}
		name := m.Method
		if id := string(m.ID); id != "" && len(id) < 10 {
			name = id + " " + name
		}
		names = append(names, name)
	}
	return names
}

func TestRelay_Rule5_TheHoldIsSummedOverAllOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: mute}
		h := opened(t, s, relay.Config{Budget: after(t, 12*time.Second)})
		h.say(call(1, "tools/list")) // written, and to be sent again
		s.kill()
		sleep(12 * time.Second)
		s.took()
		sleep(time.Hour) // a server that works on it may take its time
		h.brief()
		s.kill()
		sleep(8*time.Second - 1)
		expect(t, "just before", h.brief(), nil)
		sleep(1)
		expect(t, "after 20 s without a server", h.brief(), []string{"1: -31001, unknown, attempt 2"})
	})
}

func TestRelay_Rule5_TheHoldIsBoundedInNumberAndInBytes(t *testing.T) {
	t.Run("256 requests", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: legacy}
			h := opened(t, s, relay.Config{Budget: after(t, time.Second)})
			s.kill()
			synctest.Wait()
			for i := range 257 {
				h.say(call(i, "tools/list"))
			}
			expect(t, "the last one", h.heard(), []string{`{"jsonrpc":"2.0","id":256,"error":{"code":-31002,"message":"respawn: too many requests wait for the MCP server \"s\" already; tools/list is not held too. The call did not run: making it again is safe.","data":{"outcome":"not executed","cause":"too many requests wait already","attempt":0}}}`})
			sleep(time.Second)
			if got := len(h.brief()); got != 257 { // and the list_changed
				t.Errorf("%d messages after the recovery, want 256 answers and one change", got)
			}
		})
	})
	t.Run("8 MiB", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: legacy}
			h := opened(t, s, relay.Config{Budget: after(t, time.Second)})
			s.kill()
			synctest.Wait()
			big := func(id int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"x":"%s"}}`, id, strings.Repeat("x", 3<<20))
			}
			h.say(big(1), big(2), big(3), call(4, "tools/list"))
			expect(t, "the third", h.brief(), []string{"3: -31002, not executed, attempt 0"})
			sleep(time.Second)
			expect(t, "the others", h.brief(), []string{`1: {"gen":2}`, `2: {"gen":2}`, `4: {"gen":2}`, "tools/list_changed"})
		})
	})
	t.Run("what was written counts too, and its outcome stays unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: mute}
			h := opened(t, s, relay.Config{Budget: after(t, time.Second), MaxHeld: 2})
			h.say(call(1, "tools/list"), call(2, "tools/list"), call(3, "tools/list"))
			s.kill()
			synctest.Wait()
			expect(t, "the third", h.brief(), []string{"3: -31001, unknown, attempt 1"})
		})
	})
}

func TestRelay_Rule4_TheThirdDeathFailsAReadThatMayBeTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poison := func(l *life, m message) error {
			if string(m.ID) == "1" {
				return errors.New("crash")
			}
			return legacy(l, m)
		}
		s := &server{on: poison}
		h := opened(t, s, relay.Config{}) // the default budget survives it
		h.say(call(1, "resources/read"))
		sleep(time.Minute)
		expect(t, "the host hears", h.brief(), []string{"tools/list_changed", "tools/list_changed", "1: -31001, unknown, attempt 3", "tools/list_changed"})
		h.say(call(2, "tools/list"))
		expect(t, "the fourth server serves", h.brief(), []string{`2: {"gen":4}`})
	})
}

func TestRelay_ParkTriesOncePerIntervalOnUseAndTellsHowLongItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := policy.Park(policy.Never(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{on: legacy}
		h := opened(t, s, relay.Config{Budget: b})
		h.say(call(1, "tools/list"))
		h.brief()
		s.took()
		s.kill()
		sleep(10 * time.Minute)
		if got := s.count(); got != 1 {
			t.Errorf("%d servers, and nobody asked for the second", got)
		}
		h.say(call(2, "tools/list")) // a use, long after the interval
		sleep(time.Second)
		expect(t, "the use", h.brief(), []string{`2: {"gen":2}`, "tools/list_changed"})
		s.kill()
		synctest.Wait()
		h.say(call(3, "tools/call")) // too early, and it can't be held that long
		expect(t, "at once", h.heard(), []string{`{"jsonrpc":"2.0","id":3,"error":{"code":-31002,"message":"respawn: the MCP server \"s\" is down and not tried again for 1m0s; it was not sent tools/call. The call did not run: making it again is safe.","data":{"outcome":"not executed","attempt":0}}}`})
		sleep(45 * time.Second)
		h.say(call(4, "tools/call"), call(5, "tools/list"))
		sleep(15 * time.Second)
		if got := methods(s.took()); !slices.Contains(got, "4 tools/call") {
			t.Errorf("the third server reads %v", got)
		}
		expect(t, "with the try", h.brief(), []string{`5: {"gen":3}`, "tools/list_changed"})
	})
}

func TestRelay_Rule1_TheReplayOfStateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: func(l *life, m message) error {
			if l.gen > 1 && strings.HasPrefix(m.Method, "resources/subscribe") {
				return nil // never answers it again
			}
			return legacy(l, m)
		}}
		h := opened(t, s, relay.Config{})
		for i := range 3 {
			h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"u%d"}}`, i, i))
		}
		h.brief()
		s.kill()
		synctest.Wait()
		h.say(call(7, "tools/list"))
		sleep(5*time.Second - 1)
		expect(t, "just before", h.brief(), nil)
		sleep(1)
		expect(t, "after 5 s", h.brief(), []string{`7: {"gen":2}`, "resources/updated", "resources/updated", "resources/updated", "tools/list_changed"})
	})
}

func TestRelay_TheFirstOpeningWaitsForTheHostAndForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		s := &server{on: func(l *life, m message) error {
			if m.Method == "initialize" && l.gen == 1 {
				<-slow // an installer
			}
			return legacy(l, m)
		}}
		h := start(t, s, relay.Config{})
		sleep(24 * time.Hour)
		h.say(`{"jsonrpc":"2.0","id":0,"method":"ping"}`) // the one request that may come first (2025-11-25, lifecycle)
		expect(t, "before the opening", h.brief(), []string{`0: {}`})
		h.say(initialize)
		sleep(time.Hour)
		close(slow)
		synctest.Wait()
		if got := h.brief(); len(got) != 1 || !strings.HasPrefix(got[0], `"i": {"protocolVersion"`) {
			t.Errorf("the opening: %v", got)
		}
	})
}

func TestRelay_AReplacementThatDoesNotServeInTimeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: func(l *life, m message) error {
			if l.gen == 2 {
				return nil // says nothing at all
			}
			return legacy(l, m)
		}}
		h := opened(t, s, relay.Config{Hold: -1})
		s.kill()
		synctest.Wait()
		h.say(call(1, "tools/list"))
		sleep(2*time.Minute + time.Second)
		expect(t, "the third serves", h.brief(), []string{`1: {"gen":3}`, "tools/list_changed"})
	})
}

func TestS31_AHostsIdMayBeOneOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: legacy}
		h := opened(t, s, relay.Config{})
		for i := range 8 { // one of them is what the replay would take next
			h.say(call(1<<50+i, "tools/list"))
		}
		if got := h.brief(); len(got) != 8 {
			t.Errorf("answers: %v", got)
		}
		s.on = mute
		for i := range 8 {
			h.say(call(1<<50+i+8, "tools/list"))
		}
		s.kill()
		sleep(time.Second)
		s.on = legacy
		if !strings.Contains(fmt.Sprint(h.brief()), "list_changed") {
			t.Error("the replacement does not serve")
		}
	})
}

func TestT15_AnErrorOfOursIsNoErrorOfThePeer(t *testing.T) {
	for _, code := range []int{relay.CodeOutcomeUnknown, relay.CodeNotDelivered, relay.CodeGaveUp} {
		// -32768 to -32000 is JSON-RPC's, and in it -32099 to -32000 the
		// specification's and the servers' (2026-07-28, basic/index, Error codes).
		if code >= -32768 && code <= -32000 || code > -31000 {
			t.Errorf("code %d may be a server's", code)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: mute}
		h := opened(t, s, relay.Config{Budget: policy.Never()})
		h.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}`)
		s.kill()
		<-h.Done()
		h.say(call(2, "tools/list")) // no server will follow
		want := []string{
			`{"jsonrpc":"2.0","id":1,"error":{"code":-31003,"message":"respawn: the MCP server \"s\" went away and is not started again; tools/call got no answer. The call may have taken effect: check before you make it again.","data":{"outcome":"unknown","generation":1,"cause":"killed","attempt":1}}}`,
			`{"jsonrpc":"2.0","id":2,"error":{"code":-31003,"message":"respawn: the MCP server \"s\" went away and is not started again; tools/list got no answer. The call did not run: making it again is safe.","data":{"outcome":"not executed","cause":"killed","attempt":0}}}`,
		}
		expect(t, "the host hears", h.heard(), want)
		if err := h.Err(); err == nil || err.Error() != "killed" {
			t.Errorf("Err is %v", err)
		}
	})
}

func TestRelay_Rule3_AnAnswerOverTheLimitIsAnsweredByAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.on = func(l *life, m message) error {
			if m.Method != "tools/call" {
				return legacy(l, m)
			}
			l.Emit(transports.Noise{Bytes: 65 << 20, ID: string(m.ID), Sample: `{"jsonrpc`})
			return nil
		}
		h := start(t, s, relay.Config{})
		h.FromHost([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`))
		synctest.Wait()
		h.heard()
		h.FromHost([]byte(`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"x"}}`))
		synctest.Wait()
		want := []string{`{"jsonrpc":"2.0","id":"big","error":{"code":-31001,"message":"respawn: the MCP server \"s\" gave an answer to tools/call that is too large to be passed on. ` +
			`The call may have taken effect: check before you make it again.","data":{"outcome":"unknown","generation":1,"cause":"an answer of 68157440 bytes","attempt":1}}}`}
		if diff := cmp.Diff(want, h.heard()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRelay_Rule5_AStreamThatNeverWasOpenIsHeldLikeAnyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listen := func(id string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, id, modernMeta)
		}
		s := &server{on: func(l *life, m message) error {
			switch {
			case l.gen == 2: // it starts and does not serve
			case m.Method == "server/discover":
				l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}}`, m.ID))
			case m.Method == "subscriptions/listen":
				l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID))
			}
			return nil
		}}
		h := start(t, s, relay.Config{Budget: after(t, time.Second), StartTimeout: time.Minute})
		h.say(modernProbe, listen(`"open"`))
		expect(t, "the opening", h.brief(), []string{
			`"d": {"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`, "subscriptions/acknowledged",
		})
		s.kill()
		synctest.Wait()
		h.say(listen(`"late"`))
		sleep(20*time.Second - 1)
		expect(t, "just before", h.brief(), nil)
		sleep(1)
		expect(t, "after 20 s", h.brief(), []string{`"late": -31002, not executed, attempt 0`})
		s.took()
		sleep(time.Hour)
		var listens []string
		for _, line := range s.took() {
			if strings.Contains(line, "subscriptions/listen") {
				listens = append(listens, line)
			}
		}
		expect(t, "the third server is asked for the one that was open", listens, []string{"3 " + listen(`"open"`)})
		expect(t, "and what may have changed is told once", h.brief(), []string{"tools/list_changed"})
	})
}

// A host that cancelled hears nothing of it any more, whoever is quicker.
func TestRelay_Rule5_AStreamThatTheHostCancelledHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: func(l *life, m message) error {
			if m.Method == "server/discover" {
				l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`, m.ID))
			}
			return nil
		}}
		h := start(t, s, relay.Config{})
		h.say(modernProbe)
		h.heard()
		for id := range 500 {
			h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, id, modernMeta))
			h.say(cancelOf(fmt.Sprint(id)))
			if got := h.heard(); len(got) > 0 {
				t.Fatalf("the host hears %v", got)
			}
		}
	})
}
