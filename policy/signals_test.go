package policy_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/respawn-mcp/respawn/policy"
)

const (
	noBody       = ""
	html         = "<html><body>404 Not Found</body></html>"
	restError    = `{"error":{"code":404,"message":"Not Found"}}` // no jsonrpc: some gateway's own format
	noSession    = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`
	noID         = `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}`
	ownError     = `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}`
	ownNotFound  = `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found"}}`
	textNotFound = `{"jsonrpc":"2.0","id":"7","error":{"code":-32601,"message":"Method not found"}}`
	nullNotFound = `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`
	ownResult    = `{"jsonrpc":"2.0","id":7,"result":{}}`
	otherResult  = `{"jsonrpc":"2.0","id":8,"result":{}}`
	discovered   = `{"jsonrpc":"2.0","id":7,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`
	unsupported  = `{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"Unsupported","data":{"supported":["2027-01-01"]}}}`
	headerMiss   = `{"jsonrpc":"2.0","error":{"code":-32020,"message":"Header mismatch"}}`
)

// Judgements as they are expected, whole.
var (
	noEra          = Judgement{NoSignal, "no era is settled, so there is no session"}
	noIssued       = Judgement{NoSignal, "it carried no session that the server issued"}
	streamLost     = Judgement{Suspect, "a stream that had been open is not found any more"}
	noWitness      = Judgement{NoSignal, "only a request is a witness: others fail for reasons of their own"}
	perhapsMethod  = Judgement{Suspect, "it may be the method that is unknown, not the session"}
	gone           = Judgement{Gone, "the server does not know the session"}
	suspect        = Judgement{Suspect, "some servers answer a forgotten session so"}
	suspectModern  = Judgement{Suspect, "a modern server refuses so before anything runs"}
	suspectMet     = Judgement{SuspectAnswered, "it may be about the session, but who names the request has met it"}
	unmatchedMet   = Judgement{SuspectAnswered, "the id may be this request's, spelled differently"}
	unauthorized   = Judgement{NoSignal, "it was refused for that, whatever became of the session"}
	otherReason    = Judgement{NoSignal, "refused for a reason that has nothing to do with sessions"}
	unmatched      = Judgement{Suspect, "an error for no request may be about the session"}
	nothing        = Judgement{NoSignal, "nothing points at the session"}
	otherEra       = Judgement{Suspect, "no modern server answers so: another era may have moved in"}
	eraMet         = Judgement{SuspectAnswered, "another era may have moved in, but who names the request has met it"}
	knownModern    = Judgement{NoSignal, "only a modern server knows this error"}
	ordinary       = Judgement{NoSignal, "an error about the request, and not about where it came to"}
	modernAnswer   = Judgement{NoSignal, "modern requests carry no session, and this is an answer"}
	pingAnswered   = Judgement{Alive, "the session answered the ping"}
	pingRefused    = Judgement{Gone, "the ping was refused too"}
	pingElse       = Judgement{NoSignal, "the ping neither failed nor was answered as by a forgotten session"}
	stillModern    = Judgement{Alive, "the server answered as a modern one"}
	modernRefusal  = Judgement{Alive, "only a modern server knows this error"}
	tellsNoEra     = Judgement{NoSignal, "no answer that tells an era"}
	notModernAgain = Judgement{Gone, "the server gives no modern answer any more"}
)

// legacy is a request with id 7 that carried the issued session.
func legacy(status int, body string) Refusal {
	return Refusal{Era: Legacy, ID: "7", Issued: true, Status: status, Body: []byte(body)}
}

func (c judgeCase) run(t *testing.T) {
	t.Run(c.name, func(t *testing.T) { equal(t, "judgement", c.want, Judge(c.refusal)) })
}

type judgeCase struct {
	name    string
	refusal Refusal
	want    Judgement
}

func TestH1_NotFoundMeansGoneWhateverTheBodySays(t *testing.T) {
	for _, tc := range []judgeCase{
		{"404, no body", legacy(404, noBody), gone},
		{"404, a page", legacy(404, html), gone},
		{"404, an error for no request", legacy(404, noSession), gone},
		{"404, an error for this request", legacy(404, ownError), gone},
		{"404, -32601 for another id", legacy(404, textNotFound), gone},
		{"404, -32601 for no id", legacy(404, nullNotFound), gone},
		{"410", legacy(410, noBody), gone},
		{"410, -32601 for this id", legacy(410, ownNotFound), gone},
		{"404, -32601 for this very id", legacy(404, ownNotFound), perhapsMethod},
	} {
		tc.run(t)
	}
}

func TestH1_IDsAreComparedAsJSONValues(t *testing.T) {
	body := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id)
	}
	for _, tc := range []struct {
		id, named string
		want      Judgement
	}{
		{`7`, `7`, perhapsMethod},
		{`"7"`, `"7"`, perhapsMethod},
		{`"a"`, `"\u0061"`, perhapsMethod},
		{`7`, `"7"`, gone},
		{`"7"`, `7`, gone},
		{`7`, `70`, gone},
		{``, `""`, gone},
	} {
		t.Run(tc.id+" is "+tc.named, func(t *testing.T) {
			r := legacy(404, body(tc.named))
			r.ID = tc.id
			equal(t, "judgement", tc.want, Judge(r))
		})
	}
}

func TestH2_SomeRefusalsAreSuspicions(t *testing.T) {
	for _, tc := range []judgeCase{
		{"400, the official reference server", legacy(400, noSession), suspect},
		{"400, no body", legacy(400, noBody), suspect},
		{"400, an error for another request", legacy(400, strings.Replace(ownError, `"id":7`, `"id":8`, 1)), suspect},
		{"400, a page", legacy(400, html), suspect},
		{"400, an error of a gateway's", legacy(400, restError), suspect},
		{"400, a modern error for this request", legacy(400, unsupported), suspectModern},
		{"400, a modern error for no request", legacy(400, headerMiss), suspectModern},
		{"401", legacy(401, noBody), suspect},
		{"409", legacy(409, html), suspect},
		{"200, an error for id null", legacy(200, noSession), unmatched},
		{"200, an error without an id", legacy(200, noID), unmatched},
		{"200, an error for another id", legacy(200, `{"jsonrpc":"2.0","id":8,"error":{"code":1}}`), unmatched},
		{"422, an error for no request", legacy(422, noSession), unmatched},
	} {
		tc.run(t)
	}
}

// What may be the answer of its request is a suspicion, too, but the request is
// not sent again for it.
func TestH12_ARefusalThatNamesItsRequestIsAnAnswer(t *testing.T) {
	var tests []judgeCase
	for _, status := range []int{400, 401, 409} {
		for name, body := range map[string]string{
			"an error":              ownError,
			"an error, id as text":  strings.Replace(ownError, `"id":7`, `"id":"7"`, 1),
			"an error, id as 7.0":   strings.Replace(ownError, `"id":7`, `"id":7.0`, 1),
			"an error, no jsonrpc":  `{"id":7,"error":{"code":-32001}}`,
			"an error, no code":     `{"jsonrpc":"2.0","id":7,"error":{}}`,
			"a result":              ownResult,
			"an error that is cut":  ownError[:30],
			"an id that is unclear": `{"jsonrpc":"2.0","id":7,"id":8,"error":{"code":-32001}}`,
		} {
			tests = append(tests, judgeCase{fmt.Sprint(status, ", ", name), legacy(status, body), suspectMet})
		}
	}
	for _, tc := range append(tests,
		judgeCase{"422, an error, id as text", legacy(422, textNotFound), unmatchedMet},
		judgeCase{"404 is the specification's word for a session that is gone", legacy(404, ownError), gone},
		judgeCase{"410 is the same", legacy(410, ownError), gone},
	) {
		tc.run(t)
	}
}

func TestH3_NotATrigger(t *testing.T) {
	with := func(r Refusal, change func(*Refusal)) Refusal { change(&r); return r }
	exchange := func(x Exchange) Refusal {
		return with(legacy(404, noBody), func(r *Refusal) { r.Exchange = x })
	}
	tests := []judgeCase{
		{"a notification", exchange(NotificationPOST), noWitness},
		{"a reply", exchange(ReplyPOST), noWitness},
		{"initialize", exchange(InitializePOST), noWitness},
		{"DELETE", exchange(SessionDELETE), noWitness},
		{"a resume GET", exchange(ResumeGET), noWitness},
		{"a session of the user's headers, or none", with(legacy(404, noBody), func(r *Refusal) { r.Issued = false }), noIssued},
		{"no credentials could be had", with(legacy(401, noBody), func(r *Refusal) { r.Uncredentialed = true }), unauthorized},
		{"no era yet", with(legacy(404, noBody), func(r *Refusal) { r.Era = 0 }), noEra},
		{"200, a page", legacy(200, html), nothing},
		{"204", legacy(204, noBody), nothing},
		{"200, an error for this request", legacy(200, ownError), nothing},
		{"418", legacy(418, noBody), nothing},
		{"418, a gateway's own error format", legacy(418, restError), nothing},
		{"418, an error with a result", legacy(418, `{"jsonrpc":"2.0","error":{"code":1},"result":{}}`), nothing},
		{"418, two codes", legacy(418, `{"jsonrpc":"2.0","error":{"code":1,"code":2}}`), nothing},
		{"418, a code that is no number", legacy(418, `{"jsonrpc":"2.0","error":{"code":"1"}}`), nothing},
		{"418, a body beyond what is looked into", legacy(418, noSession+strings.Repeat(" ", 1<<20)), nothing},
	}
	for _, status := range []int{403, 405, 429, 500, 502, 503, 504} {
		for _, body := range []string{noBody, html, noSession, ownError} {
			tests = append(tests, judgeCase{fmt.Sprintf("%d %.20s", status, body), legacy(status, body), otherReason})
		}
	}
	for _, tc := range tests {
		tc.run(t)
	}
}

func TestH4_StandaloneGET(t *testing.T) {
	get := func(status int, opened bool) Refusal {
		r := legacy(status, noBody)
		r.ID, r.Exchange, r.Opened = "", StandaloneGET, opened
		return r
	}
	tests := []judgeCase{
		{"404 of one that had been open", get(404, true), streamLost},
		{"410 of one that had been open", get(410, true), noWitness},
		{"500 of one that had been open", get(500, true), noWitness},
	}
	for _, status := range []int{400, 401, 404, 405, 406, 410, 501} {
		tests = append(tests, judgeCase{fmt.Sprint(status, " of one that never worked"), get(status, false), noWitness})
	}
	for _, tc := range tests {
		tc.run(t)
	}
}

func TestH2_ThePingSettlesASuspicion(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   Judgement
	}{
		{"200, answered", 200, ownResult, pingAnswered},
		{"200, an error for it", 200, ownError, pingAnswered},
		{"200, method not found", 200, ownNotFound, pingAnswered},
		{"404, method not found, its id", 404, ownNotFound, pingAnswered},
		{"400, method not found, its id", 400, ownNotFound, pingAnswered},
		{"404", 404, noBody, pingRefused},
		{"404, method not found, no id", 404, nullNotFound, pingRefused},
		{"410", 410, noBody, pingRefused},
		{"400", 400, noSession, pingRefused},
		{"401", 401, noBody, pingRefused},
		{"409", 409, noBody, pingRefused},
		{"200, an answer for another id", 200, otherResult, pingElse},
		{"200, an error for no request", 200, noSession, pingElse},
		{"200, a page", 200, html, pingElse},
		{"202", 202, noBody, pingElse},
		{"403", 403, noBody, pingElse},
		{"429", 429, noBody, pingElse},
		{"503", 503, noBody, pingElse},
		{"no answer at all", 0, noBody, pingElse},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			equal(t, "judgement", tc.want, JudgePing(Probe{ID: "7", Status: tc.status, Body: []byte(tc.body)}))
		})
	}
}

func TestH2_APingWithoutCredentialsSettlesNothing(t *testing.T) {
	got := JudgePing(Probe{ID: "7", Status: 401, Uncredentialed: true})
	equal(t, "judgement", Judgement{NoSignal, "the ping was refused for that, whatever became of the session"}, got)
}

func TestModernTwin_WhatNoModernServerAnswersIsASuspicion(t *testing.T) {
	modern := func(status int, body string) Refusal {
		return Refusal{Era: Modern, ID: "7", Status: status, Body: []byte(body)}
	}
	notice := modern(400, noBody)
	notice.Exchange = NotificationPOST
	issued := modern(404, ownNotFound)
	issued.Issued = true
	for _, tc := range []judgeCase{
		{"400, no body", modern(400, noBody), otherEra},
		{"404, a page", modern(404, html), otherEra},
		{"405, a gateway's own error format", modern(405, restError), otherEra},
		{"400, an error for id null", modern(400, noSession), otherEra},
		{"400, an error without an id", modern(400, noID), otherEra},
		{"404, an error for an id of the server's", modern(404, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`), otherEra},
		{"400, unknown method, for no request", modern(400, nullNotFound), otherEra},
		{"400, an invalid request, its id", modern(400, strings.Replace(ownError, "-32001", "-32600", 1)), eraMet},
		{"400, an error of a tool's", modern(400, ownError), eraMet},
		{"400, a result", modern(400, ownResult), eraMet},
		{"400, an error that is cut", modern(400, ownError[:30]), eraMet},
		{"404, unknown method", modern(404, ownNotFound), ordinary},
		{"404, unknown method, id as text", modern(404, textNotFound), ordinary},
		{"400, invalid params", modern(400, strings.Replace(ownError, "-32001", "-32602", 1)), ordinary},
		{"400, internal error", modern(400, strings.Replace(ownError, "-32001", "-32603", 1)), ordinary},
		{"400, unsupported version", modern(400, unsupported), knownModern},
		{"400, header mismatch, no id", modern(400, headerMiss), knownModern},
		{"400, missing capability", modern(400, strings.Replace(ownError, "-32001", "-32021", 1)), knownModern},
		{"401", modern(401, noBody), modernAnswer},
		{"410", modern(410, noBody), modernAnswer},
		{"503", modern(503, noBody), modernAnswer},
		{"a notification", notice, noWitness},
		{"a session header changes nothing", issued, ordinary},
	} {
		tc.run(t)
	}
}

func TestModernTwin_DiscoverSettlesIt(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   Judgement
	}{
		{"200, discovered", 200, discovered, stillModern},
		{"400, unsupported version", 400, unsupported, modernRefusal},
		{"400, header mismatch, no id", 400, headerMiss, modernRefusal},
		{"200, discovered for another id", 200, strings.Replace(discovered, `"id":7`, `"id":8`, 1), notModernAgain},
		{"200, a result of another kind", 200, ownResult, notModernAgain},
		{"200, no versions", 200, `{"jsonrpc":"2.0","id":7,"result":{"supportedVersions":[]}}`, notModernAgain},
		{"400, a modern code for another id", 400, strings.Replace(unsupported, `"id":7`, `"id":8`, 1), notModernAgain},
		{"400, no session", 400, noSession, notModernAgain},
		{"404, method not found", 404, ownNotFound, notModernAgain},
		{"404", 404, noBody, notModernAgain},
		{"405", 405, noBody, notModernAgain},
		{"200, a page", 200, html, notModernAgain},
		{"401", 401, noBody, tellsNoEra},
		{"403", 403, noBody, tellsNoEra},
		{"429", 429, noBody, tellsNoEra},
		{"503, a page", 503, html, tellsNoEra},
		{"no answer at all", 0, noBody, tellsNoEra},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			equal(t, "judgement", tc.want, JudgeDiscover(Probe{ID: "7", Status: tc.status, Body: []byte(tc.body)}))
		})
	}
}

func FuzzJudge(f *testing.F) {
	for _, body := range []string{html, restError, noSession, ownNotFound, ownResult, discovered, `{"jsonrpc":"2.0"`} {
		f.Add(404, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		for _, j := range []Judgement{
			Judge(legacy(status, body)),
			Judge(Refusal{Era: Modern, ID: "7", Status: status, Body: []byte(body)}),
			JudgePing(Probe{ID: "7", Status: status, Body: []byte(body)}),
			JudgeDiscover(Probe{ID: "7", Status: status, Body: []byte(body)}),
		} {
			if j.Why == "" {
				t.Errorf("a judgement without a reason: %v", j)
			}
		}
		if j := Judge(legacy(404, body)); j.Signal == NoSignal {
			t.Errorf("a 404 on the issued session is no signal: %v", j)
		}
	})
}
