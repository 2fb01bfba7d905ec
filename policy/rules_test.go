package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	. "github.com/respawn-mcp/respawn/policy"
)

var readSet = []string{
	"server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list",
	"resources/templates/list", "resources/read", "completion/complete",
}

func TestS33_ReadSetIsExactlyTheEightMethods(t *testing.T) {
	candidates := append(slices.Clone(readSet),
		"", "initialize", "ping", "tools/call", "subscriptions/listen", "resources/subscribe", "resources/unsubscribe",
		"logging/setLevel", "roots/list", "sampling/createMessage", "elicitation/create", "tasks/list", "tasks/get",
		"vendor/list", "x/tools/list", "tools/list/", "Tools/List", " tools/list")
	var got []string
	for _, method := range candidates {
		if ReadOnlyMethod(method) {
			got = append(got, method)
		}
	}
	equal(t, "read set", readSet, got)
}

// Decisions as they are expected, whole.
var (
	notHere      = Decision{Action: NotHere, Rule: 0, Why: "its stream, or the opening exchange, decides"}
	nobodyWaits  = Decision{Action: Fail, Rule: 1, Why: "nobody waits for the answer any more"}
	held         = Decision{Action: Hold, Rule: 2, Why: "nothing of it reached the peer, and it may wait for one"}
	mayNotWait   = Decision{Action: Fail, Rule: 2, Why: "nothing of it reached the peer, and it may not wait for one"}
	secondLoss   = Decision{Action: Fail, Rule: 3, Why: "it was sent again once, and a second loss is not a blip"}
	cursorLost   = Decision{Action: Fail, Rule: 4, CursorLost: true, Why: "its cursor belonged to the session that is gone"}
	refused      = Decision{Action: ResendNewID, NewerOnly: true, Rule: 5, Why: "a refusal proves that it did not run"}
	continuation = Decision{Action: Fail, Rule: 6, Why: "the state it continues may be good for one use only"}
	resumed      = Decision{Action: Resume, Rule: 7, Why: "the peer keeps the rest of its stream, and asking for it runs nothing again"}
	readOnPipe   = Decision{Action: ResendSameID, NewerOnly: true, Rule: 7, Why: "a read may run twice, and lost reads are to be sent again"}
	readOnPosts  = Decision{Action: ResendNewID, NewerOnly: true, Rule: 7, Why: "a read may run twice, and lost reads are to be sent again"}
	readTooOften = Decision{Action: Fail, Rule: 7, Why: "it was in flight at one death too many and may be their cause"}
	readModern   = Decision{Action: ResendNewID, Rule: 7, Why: "a read may run twice, and the protocol asks for a re-issue"}
	readLegacy   = Decision{Action: ResendNewID, Rule: 7, Why: "a read may run twice, its stream can't be resumed, and lost reads are to be sent again"}
	readNoOptIn  = Decision{Action: Fail, Rule: 7, Why: "lost reads are sent again only where the user opted in"}
	toolDied     = Decision{Action: Fail, Rule: 8, Why: "the tool may have run, and annotations say nothing about half a run"}
	toolDistrust = Decision{Action: Fail, Rule: 9, Why: "the tool may have run, and its annotations are distrusted"}
	toolGranted  = Decision{Action: ResendNewID, Rule: 9, Why: "the peer says that running this tool twice does no harm"}
	toolNoGrant  = Decision{Action: Fail, Rule: 9, Why: "the tool may have run, and nothing says that running it twice does no harm"}
	anythingElse = Decision{Action: Fail, Rule: 10, Why: "it may have run, and nothing says that running it twice does no harm"}
)

func decides(t *testing.T, tests []lossCase) {
	t.Helper()
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			equal(t, "decision", tc.want, Rules(nil).Decide(tc.loss))
		})
	}
}

type lossCase struct {
	name string
	loss Loss
	want Decision
}

func TestRules_EachRow(t *testing.T) {
	decides(t, []lossCase{
		{"0: a listen stream", Loss{Kind: Broken, Method: "subscriptions/listen", Era: Modern}, notHere},
		{"0: the era probe", Loss{Kind: Died, Method: "server/discover", Shape: Pipe, Opening: true, RetryLost: true}, notHere},
		{"1: its deadline passed", Loss{Kind: Refused, Method: "tools/list", DeadlinePassed: true}, nobodyWaits},
		{"1: its caller gave up", Loss{Kind: Unsent, Method: "tools/list", CallerGone: true, MayWait: true}, nobodyWaits},
		{"2: unsent, and it may wait", Loss{Kind: Unsent, Method: "tools/call", MayWait: true}, held},
		{"2: unsent, and it may not wait", Loss{Kind: Unsent, Method: "tools/list", RetryLost: true}, mayNotWait},
		{"3: refused twice", Loss{Kind: Refused, Method: "tools/list", Resent: true}, secondLoss},
		{"3: broken twice", Loss{Kind: Broken, Method: "tools/list", Era: Modern, Resent: true}, secondLoss},
		{"4: a listing with a cursor, refused", Loss{Kind: Refused, Method: "resources/templates/list", Cursor: true}, cursorLost},
		{"5: refused", Loss{Kind: Refused, Method: "tools/call", Era: Legacy, Shape: Posts}, refused},
		{"5: a vendor's method, refused", Loss{Kind: Refused, Method: "vendor/pay", Era: Legacy}, refused},
		{"5: a cursor of what is no listing", Loss{Kind: Refused, Method: "vendor/list", Cursor: true}, refused},
		{"6: a continuation that died", Loss{Kind: Died, Method: "prompts/get", Shape: Pipe, Continuation: true, RetryLost: true}, continuation},
		{"6: a continuation that broke", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Continuation: true, Evidence: true}, continuation},
		{"7: a legacy stream that can be resumed", Loss{Kind: Broken, Method: "tools/call", Era: Legacy, Resumable: true}, resumed},
		{"7: a read that died on a pipe", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true}, readOnPipe},
		{"7: a read that died with its session", Loss{Kind: Died, Method: "tools/list", Shape: Posts, RetryLost: true}, readOnPosts},
		{"7: a read that died, first of two", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true, MaxDeaths: 2}, readOnPipe},
		{"7: a read that died, second of two", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true, Deaths: 1, MaxDeaths: 2}, readOnPipe},
		{"7: a read that died, third of two", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true, Deaths: 2, MaxDeaths: 2}, readTooOften},
		{"7: a read that died often, unbounded", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true, Deaths: 99}, readOnPipe},
		{"7: a read that died, no opt in", Loss{Kind: Died, Method: "tools/list", Shape: Pipe}, readNoOptIn},
		{"7: a modern read that broke, no opt in", Loss{Kind: Broken, Method: "server/discover", Era: Modern}, readModern},
		{"7: a legacy read that broke", Loss{Kind: Broken, Method: "resources/read", Era: Legacy, RetryLost: true}, readLegacy},
		{"7: a legacy read that broke, no opt in", Loss{Kind: Broken, Method: "resources/read", Era: Legacy}, readNoOptIn},
		{"8: a tool call that died, whatever its annotations", Loss{Kind: Died, Method: "tools/call", Era: Modern, Shape: Pipe, Evidence: true, RetryLost: true}, toolDied},
		{"9: a modern tool call that broke, granted", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Evidence: true}, toolGranted},
		{"9: granted, but distrusted", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Evidence: true, DistrustAnnotations: true}, toolDistrust},
		{"9: not granted", Loss{Kind: Broken, Method: "tools/call", Era: Modern, RetryLost: true}, toolNoGrant},
		{"10: a legacy tool call that broke, granted", Loss{Kind: Broken, Method: "tools/call", Era: Legacy, Evidence: true, RetryLost: true}, anythingElse},
		{"10: a vendor's method that broke", Loss{Kind: Broken, Method: "vendor/list", Era: Modern, Evidence: true, RetryLost: true}, anythingElse},
		{"10: a vendor's method that died", Loss{Kind: Died, Method: "vendor/list", Shape: Pipe, RetryLost: true}, anythingElse},
		{"10: an ending of no known kind", Loss{Method: "tools/list", RetryLost: true, MayWait: true}, anythingElse},
	})
}

func TestRules_WhereTwoMatchTheFirstWins(t *testing.T) {
	decides(t, []lossCase{
		{"0 before 1: a listen stream whose caller gave up", Loss{Kind: Broken, Method: "subscriptions/listen", CallerGone: true}, notHere},
		{"0 before 2: an opening exchange that was not sent", Loss{Kind: Unsent, Method: "initialize", Opening: true, MayWait: true}, notHere},
		{"0 before 5: a listen stream that was refused", Loss{Kind: Refused, Method: "subscriptions/listen"}, notHere},
		{"0 before 7: a probe that broke", Loss{Kind: Broken, Method: "server/discover", Era: Modern, Opening: true}, notHere},
		{"1 before 2: unsent, but too late", Loss{Kind: Unsent, Method: "tools/list", MayWait: true, DeadlinePassed: true}, nobodyWaits},
		{"1 before 5: refused, but too late", Loss{Kind: Refused, Method: "tools/call", DeadlinePassed: true}, nobodyWaits},
		{"1 before 7: resumable, but nobody waits", Loss{Kind: Broken, Method: "tools/call", Era: Legacy, Resumable: true, CallerGone: true}, nobodyWaits},
		{"1 before 7: a read that died too late", Loss{Kind: Died, Method: "tools/list", Shape: Pipe, RetryLost: true, DeadlinePassed: true}, nobodyWaits},
		{"1 before 9: granted, but nobody waits", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Evidence: true, CallerGone: true}, nobodyWaits},
		{"2 whatever else: unsent after a re-send", Loss{Kind: Unsent, Method: "tools/call", Resent: true, MayWait: true}, held},
		{"2 whatever else: an unsent continuation", Loss{Kind: Unsent, Method: "tools/call", Continuation: true, MayWait: true}, held},
		{"3 before 4: a cursor refused twice", Loss{Kind: Refused, Method: "tools/list", Cursor: true, Resent: true}, secondLoss},
		{"3 before 5: refused twice", Loss{Kind: Refused, Method: "tools/call", Resent: true}, secondLoss},
		{"3 before 6: a continuation that broke after a refusal", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Continuation: true, Resent: true}, secondLoss},
		{"3 before 7: a modern read that broke twice", Loss{Kind: Broken, Method: "resources/read", Era: Modern, Resent: true}, secondLoss},
		{"3 not before 7: a resume is no second run", Loss{Kind: Broken, Method: "tools/call", Era: Legacy, Resumable: true, Resent: true}, resumed},
		{"3 not before 7: a read that broke, then died", Loss{Kind: Died, Method: "resources/read", Era: Modern, Shape: Pipe, Resent: true, RetryLost: true}, readOnPipe},
		{"3 before 9: a granted tool that broke twice", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Evidence: true, Resent: true}, secondLoss},
		{"4 before 5: a refused listing with a cursor", Loss{Kind: Refused, Method: "prompts/list", Cursor: true}, cursorLost},
		{"5 before 6: a refused continuation never ran", Loss{Kind: Refused, Method: "tools/call", Continuation: true}, refused},
		{"6 before 7: a read that continues", Loss{Kind: Broken, Method: "resources/read", Era: Modern, Continuation: true}, continuation},
		{"6 before 8: a tool call that continues, died", Loss{Kind: Died, Method: "tools/call", Continuation: true}, continuation},
		{"6 before 9: a granted tool call that continues", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Continuation: true, Evidence: true}, continuation},
		{"7 resume before 7 re-send: a legacy read", Loss{Kind: Broken, Method: "resources/read", Era: Legacy, Resumable: true, RetryLost: true}, resumed},
		{"7 resume before 10: a vendor's method", Loss{Kind: Broken, Method: "vendor/x", Era: Legacy, Resumable: true}, resumed},
		{"8 before 10: a tool call that died", Loss{Kind: Died, Method: "tools/call"}, toolDied},
		{"9 distrust before 9 evidence", Loss{Kind: Broken, Method: "tools/call", Era: Modern, Evidence: true, DistrustAnnotations: true}, toolDistrust},
	})
}

// everyLoss is each combination of what the rules may look at.
func everyLoss(visit func(Loss)) {
	methods := []string{"tools/call", "tools/list", "resources/read", "server/discover", "subscriptions/listen", "vendor/x"}
	for _, method := range methods {
		for kind := range 5 {
			for era := range 3 {
				for shape := range 3 {
					for bits := range 1 << 11 {
						bit := func(n int) bool { return bits>>n&1 == 1 }
						l := Loss{
							Kind: Kind(kind), Method: method, Era: Era(era), Shape: Shape(shape),
							Opening: bit(0), Cursor: bit(1), Continuation: bit(2), Evidence: bit(3),
							DistrustAnnotations: bit(4), Resumable: bit(5), Resent: bit(6),
							DeadlinePassed: bit(7), MayWait: bit(8), RetryLost: bit(9),
						}
						if bit(10) {
							l.Deaths, l.MaxDeaths = 2, 2
						}
						visit(l)
					}
				}
			}
		}
	}
}

// byHand is the rules written a second time, without a table.
func byHand(l Loss) Decision {
	read := slices.Contains(readSet, l.Method)
	tool := l.Method == "tools/call"
	switch {
	case l.Method == "subscriptions/listen" || l.Opening:
		return notHere
	case l.DeadlinePassed || l.CallerGone:
		return nobodyWaits
	}
	switch l.Kind {
	case Unsent:
		if l.MayWait {
			return held
		}
		return mayNotWait
	case Refused:
		switch {
		case l.Resent:
			return secondLoss
		case l.Cursor && l.Method == "tools/list":
			return cursorLost
		}
		return refused
	case Broken:
		resume := l.Resumable && l.Era == Legacy
		switch {
		case l.Resent && !resume:
			return secondLoss
		case l.Continuation:
			return continuation
		case resume:
			return resumed
		case read && l.Era == Modern:
			return readModern
		case read && l.Era == Legacy && l.RetryLost:
			return readLegacy
		case read:
			return readNoOptIn
		case tool && l.Era == Modern && l.DistrustAnnotations:
			return toolDistrust
		case tool && l.Era == Modern && l.Evidence:
			return toolGranted
		case tool && l.Era == Modern:
			return toolNoGrant
		}
	case Died:
		switch {
		case l.Continuation:
			return continuation
		case read && !l.RetryLost:
			return readNoOptIn
		case read && l.MaxDeaths > 0 && l.Deaths >= l.MaxDeaths:
			return readTooOften
		case read && l.Shape == Pipe:
			return readOnPipe
		case read:
			return readOnPosts
		case tool:
			return toolDied
		}
	}
	return anythingElse
}

func TestRules_AgreeWithTheRulesWrittenByHand(t *testing.T) {
	wrong := 0
	everyLoss(func(l Loss) {
		if want, got := byHand(l), Rules(nil).Decide(l); want != got {
			if wrong++; wrong <= 10 {
				t.Errorf("%+v:\n got %+v\nwant %+v", l, got, want)
			}
		}
	})
}

func TestRules_NeverRunAToolTwiceWithoutProof(t *testing.T) {
	wrong := 0
	everyLoss(func(l Loss) {
		d := Rules(nil).Decide(l)
		again := d.Action == Hold || d.Action == ResendSameID || d.Action == ResendNewID
		proven := l.Kind == Unsent || l.Kind == Refused
		granted := l.Kind == Broken && l.Era == Modern && l.Evidence && !l.DistrustAnnotations && !l.Resent && !l.Continuation
		if again && !ReadOnlyMethod(l.Method) && !proven && !granted {
			if wrong++; wrong <= 10 {
				t.Errorf("%+v is sent again: %+v", l, d)
			}
		}
	})
}

func TestRules_EveryRowIsReached(t *testing.T) {
	rules := DefaultRules()
	reached := map[string]bool{}
	everyLoss(func(l Loss) {
		d := Rules(nil).Decide(l)
		reached[fmt.Sprint(d.Rule, d.Action, d.Why)] = true
	})
	for i, r := range rules {
		if !reached[fmt.Sprint(r.N, r.Then, r.Why)] {
			t.Errorf("row %d (rule %d) can't be reached", i, r.N)
		}
	}
}

func TestRules_AreAValueToExtend(t *testing.T) {
	mine := Rule{
		N: 100, Then: Fail, Why: "no reads twice, please",
		When: []Cond[Loss]{{Name: "a read", Holds: func(l Loss) bool { return ReadOnlyMethod(l.Method) }}},
	}
	rules := append(Rules{mine}, DefaultRules()...)
	loss := Loss{Kind: Broken, Method: "tools/list", Era: Modern}
	equal(t, "extended", Decision{Action: Fail, Rule: 100, Why: "no reads twice, please"}, rules.Decide(loss))
	equal(t, "default", readModern, DefaultRules().Decide(loss))
	equal(t, "empty is default", readModern, Rules{}.Decide(loss))
	equal(t, "without a row that matches", Decision{Action: Fail, Rule: -1, Why: "no rule matches"},
		Rules{mine}.Decide(Loss{Kind: Refused, Method: "tools/call"}))

	changed := DefaultRules()
	changed[0].Then = Fail
	equal(t, "a changed copy leaves the default", notHere, Rules(nil).Decide(Loss{Method: "subscriptions/listen"}))
}

func TestRules_RefuseRowsThatMakeNoSense(t *testing.T) {
	tests := []struct {
		name  string
		rules Rules
		want  string // "" is valid
	}{
		{"nil", nil, ""},
		{"the default", DefaultRules(), ""},
		{"unknown action", Rules{{Then: NotHere + 1, Why: "w"}}, "policy: invalid value: retry rule in row 0 has unknown action 6"},
		{"no reason", Rules{{}}, "policy: invalid value: retry rule in row 0 has no Why"},
		{
			"a condition that checks nothing",
			Rules{{Why: "w"}, {Why: "w", When: []Cond[Loss]{{Name: "moon"}}}},
			`policy: invalid value: retry rule in row 1 has a condition "moon" that checks nothing`,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err, got := tc.rules.Validate(), ""
			if err != nil {
				got = err.Error()
			}
			equal(t, "error", tc.want, got)
			equal(t, "wraps ErrInvalid", tc.want != "", errors.Is(err, ErrInvalid))
		})
	}
}
