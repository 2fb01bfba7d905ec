package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Codes of JSON-RPC and of the specification (2026-07-28 schema).
const (
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// legacySignals: 2025-11-25 basic/transports, Session Management, rules 3 and 4,
// and what servers do instead. A 404 there is the only status that the
// specification names; 410 says the same in plain HTTP, and many servers, the
// official reference server among them, answer a forgotten session with 400.
var legacySignals = []signal{
	{conds(not(isLegacyEra)), NoSignal, "no era is settled, so there is no session"},
	{conds(not(issued)), NoSignal, "it carried no session that the server issued"},
	{conds(on(StandaloneGET), wasOpened, status(404)), Suspect, "a stream that had been open is not found any more"},
	{conds(not(on(RequestPOST))), NoSignal, "only a request is a witness: others fail for reasons of their own"},
	{conds(uncredentialed), NoSignal, "it was refused for that, whatever became of the session"},
	{conds(status(404), methodNotFoundHere), Suspect, "it may be the method that is unknown, not the session"},
	{conds(status(404, 410)), Gone, "the server does not know the session"},
	{conds(status(400, 401, 409), modernError), Suspect, "a modern server refuses so before anything runs"},
	{conds(status(400, 401, 409), mayAnswer), SuspectAnswered, "it may be about the session, but who names the request has met it"},
	{conds(status(400, 401, 409)), Suspect, "some servers answer a forgotten session so"},
	{conds(either(status(403, 405, 429), serverError)), NoSignal, "refused for a reason that has nothing to do with sessions"},
	{conds(unmatchedError, mayAnswer), SuspectAnswered, "the id may be this request's, spelled differently"},
	{conds(unmatchedError), Suspect, "an error for no request may be about the session"},
	{nil, NoSignal, "nothing points at the session"},
}

// modernSignals: 2026-07-28 basic/transports/streamable-http, Backward
// Compatibility: a modern server answers these statuses with an error that it is
// known by. Legacy ones have errors of their own for a request without a session.
var modernSignals = []signal{
	{conds(not(on(RequestPOST))), NoSignal, "only a request is a witness: others fail for reasons of their own"},
	{conds(modernError), NoSignal, "only a modern server knows this error"},
	{conds(ordinaryError), NoSignal, "an error about the request, and not about where it came to"},
	{conds(status(400, 404, 405), mayAnswer), SuspectAnswered, "another era may have moved in, but who names the request has met it"},
	{conds(status(400, 404, 405)), Suspect, "no modern server answers so: another era may have moved in"},
	{nil, NoSignal, "modern requests carry no session, and this is an answer"},
}

var pingSignals = []signal{
	{conds(uncredentialed), NoSignal, "the ping was refused for that, whatever became of the session"},
	{conds(either(both(success, ownAnswer), methodNotFoundHere)), Alive, "the session answered the ping"},
	{conds(status(404, 410, 400, 401, 409)), Gone, "the ping was refused too"},
	{nil, NoSignal, "the ping neither failed nor was answered as by a forgotten session"},
}

// discoverSignals: 401, 403, 429, 5xx and silence never change an era; anything
// else that is not modern identifies a legacy server (2026-07-28
// basic/versioning, Backward Compatibility).
var discoverSignals = []signal{
	{conds(success, discovered), Alive, "the server answered as a modern one"},
	{conds(modernError), Alive, "only a modern server knows this error"},
	{
		conds(either(status(0, 401, 403, 429), serverError)),
		NoSignal, "no answer that tells an era",
	},
	{nil, Gone, "the server gives no modern answer any more"},
}

func conds(c ...Cond[seen]) []Cond[seen] { return c }

func on(x Exchange) Cond[seen] {
	return Cond[seen]{x.String(), func(s seen) bool { return s.Exchange == x }}
}

func status(codes ...int) Cond[seen] {
	names := make([]string, len(codes))
	for i, c := range codes {
		names[i] = fmt.Sprint(c)
		if c == 0 {
			names[i] = "no answer"
		}
	}
	return Cond[seen]{strings.Join(names, " or "), func(s seen) bool { return slices.Contains(codes, s.Status) }}
}

var (
	success     = Cond[seen]{"2xx", func(s seen) bool { return s.Status/100 == 2 }}
	serverError = Cond[seen]{"5xx", func(s seen) bool { return s.Status/100 == 5 }}

	isLegacyEra    = Cond[seen]{"legacy", func(s seen) bool { return s.Era == Legacy }}
	issued         = Cond[seen]{"the issued session", func(s seen) bool { return s.Issued }}
	uncredentialed = Cond[seen]{"no credentials could be had", func(s seen) bool { return s.Uncredentialed }}
	wasOpened      = Cond[seen]{"had been open", func(s seen) bool { return s.Opened }}

	ownAnswer = Cond[seen]{"a JSON-RPC answer naming its id", func(s seen) bool {
		return (s.answer.err || s.answer.result != nil) && sameID(s.answer.id, s.ID)
	}}
	unmatchedError = Cond[seen]{"a JSON-RPC error that names no request", func(s seen) bool {
		return s.answer.err && !sameID(s.answer.id, s.ID)
	}}
	// mayAnswer is wider than ownAnswer: to run a request twice is worse than to
	// report an error that was about the session.
	mayAnswer = Cond[seen]{"a body that names its id however spelled, or an object that is cut or ambiguous", func(s seen) bool {
		body := bytes.TrimSpace(s.Body)
		if len(body) == 0 || body[0] != '{' {
			return false
		}
		members, ok := fields(parse(body))
		return !ok || meansID(members["id"], s.ID)
	}}
	methodNotFoundHere = Cond[seen]{"-32601 naming its id", func(s seen) bool {
		return s.answer.err && s.answer.code == codeMethodNotFound && sameID(s.answer.id, s.ID)
	}}
	ordinaryError = Cond[seen]{"-32601, -32602 or -32603 naming its id", func(s seen) bool {
		switch s.answer.code {
		case codeMethodNotFound, codeInvalidParams, codeInternal:
			return s.answer.err && meansID(s.answer.id, s.ID)
		}
		return false
	}}
	discovered = Cond[seen]{"a DiscoverResult naming its id", func(s seen) bool {
		result, ok := fields(s.answer.result)
		if !ok || !sameID(s.answer.id, s.ID) {
			return false
		}
		var versions []string
		return json.Unmarshal(result["supportedVersions"], &versions) == nil && len(versions) > 0
	}}
	modernError = Cond[seen]{"-32020, -32021 or -32022 naming its id or none", func(s seen) bool {
		switch s.answer.code {
		case codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion:
			return s.answer.err && (absent(s.answer.id) || sameID(s.answer.id, s.ID))
		}
		return false
	}}
)
