package policy

import (
	"fmt"
	"slices"
)

// Rule is one row of the retry rules. When lists conditions that must all hold;
// an empty list always does.
type Rule struct {
	N          int // rows that elaborate one rule share its number
	When       []Cond[Loss]
	Then       Action
	NewerOnly  bool
	CursorLost bool
	Why        string
}

// Rules decide what becomes of a lost request: the first row that matches wins,
// and where none does the request fails. Empty means [DefaultRules].
type Rules []Rule

// Decide answers for one loss. It is pure.
func (r Rules) Decide(l Loss) Decision {
	if len(r) == 0 {
		r = defaultRules
	}
	for _, row := range r {
		if all(row.When, l) {
			return Decision{row.Then, row.NewerOnly, row.CursorLost, row.N, row.Why}
		}
	}
	return Decision{Rule: -1, Why: "no rule matches"}
}

// Validate reports, wrapping [ErrInvalid], a row with an unknown action, with a
// condition that checks nothing, or without a reason.
func (r Rules) Validate() error {
	for i, row := range r {
		if row.Then > NotHere {
			return fmt.Errorf("%w: retry rule in row %d has unknown action %d", ErrInvalid, i, row.Then)
		}
		if row.Why == "" {
			return fmt.Errorf("%w: retry rule in row %d has no Why", ErrInvalid, i)
		}
		for _, c := range row.When {
			if c.Holds == nil {
				return fmt.Errorf("%w: retry rule in row %d has a condition %q that checks nothing", ErrInvalid, i, c.Name)
			}
		}
	}
	return nil
}

// DefaultRules returns the built-in rules, a copy to extend: a row of one's own
// goes before the ones it shall beat.
func DefaultRules() Rules { return slices.Clone(defaultRules) }

// The conditions that the default rules are written in.
var (
	isUnsent  = Cond[Loss]{"unsent", func(l Loss) bool { return l.Kind == Unsent }}
	isRefused = Cond[Loss]{"refused", func(l Loss) bool { return l.Kind == Refused }}
	isBroken  = Cond[Loss]{"broken", func(l Loss) bool { return l.Kind == Broken }}
	isDied    = Cond[Loss]{"died", func(l Loss) bool { return l.Kind == Died }}

	isLegacy = Cond[Loss]{"legacy", func(l Loss) bool { return l.Era == Legacy }}
	isModern = Cond[Loss]{"modern", func(l Loss) bool { return l.Era == Modern }}
	onPipe   = Cond[Loss]{"on a Pipe", func(l Loss) bool { return l.Shape == Pipe }}

	isListen       = Cond[Loss]{"`" + methodListen + "`", func(l Loss) bool { return l.Method == methodListen }}
	isOpening      = Cond[Loss]{"the opening exchange", func(l Loss) bool { return l.Opening }}
	isToolCall     = Cond[Loss]{"`" + methodToolCall + "`", func(l Loss) bool { return l.Method == methodToolCall }}
	isRead         = Cond[Loss]{"the read set", func(l Loss) bool { return ReadOnlyMethod(l.Method) }}
	isCursor       = Cond[Loss]{"a listing with a cursor", func(l Loss) bool { return l.Cursor && slices.Contains(listings, l.Method) }}
	isContinuation = Cond[Loss]{"a multi-round-trip continuation", func(l Loss) bool { return l.Continuation }}

	deadlinePassed = Cond[Loss]{"its deadline passed", func(l Loss) bool { return l.DeadlinePassed }}
	callerGone     = Cond[Loss]{"its caller gave up", func(l Loss) bool { return l.CallerGone }}
	mayWait        = Cond[Loss]{"calls may wait", func(l Loss) bool { return l.MayWait }}
	wasResent      = Cond[Loss]{"already sent again once for that", func(l Loss) bool { return l.Resent }}
	resumable      = Cond[Loss]{"resumable", func(l Loss) bool { return l.Era == Legacy && l.Resumable }}
	optedIn        = Cond[Loss]{"`RetryLost`", func(l Loss) bool { return l.RetryLost }}
	deathsLeft     = Cond[Loss]{"deaths left", func(l Loss) bool { return l.MaxDeaths <= 0 || l.Deaths < l.MaxDeaths }}
	distrusted     = Cond[Loss]{"`DistrustAnnotations`", func(l Loss) bool { return l.DistrustAnnotations }}
	granted        = Cond[Loss]{"the annotation gate says so", func(l Loss) bool { return l.Evidence }}
)

// when is a row's list of conditions.
func when(conds ...Cond[Loss]) []Cond[Loss] { return conds }

var defaultRules = Rules{
	{
		N: 0, When: when(either(isListen, isOpening)), Then: NotHere,
		Why: "its stream, or the opening exchange, decides",
	},
	{
		N: 1, When: when(either(deadlinePassed, callerGone)), Then: Fail,
		Why: "nobody waits for the answer any more",
	},
	{
		N: 2, When: when(isUnsent, mayWait), Then: Hold,
		Why: "nothing of it reached the peer, and it may wait for one",
	},
	{
		N: 2, When: when(isUnsent), Then: Fail,
		Why: "nothing of it reached the peer, and it may not wait for one",
	},
	{ // A resume is no second run, so having been sent again does not forbid it.
		N: 3, When: when(either(isRefused, both(isBroken, not(resumable))), wasResent), Then: Fail,
		Why: "it was sent again once, and a second loss is not a blip",
	},
	{
		N: 4, When: when(isRefused, isCursor), Then: Fail, CursorLost: true,
		Why: "its cursor belonged to the session that is gone",
	},
	{
		N: 5, When: when(isRefused), Then: ResendNewID, NewerOnly: true,
		Why: "a refusal proves that it did not run",
	},
	{ // 2026-07-28 basic/patterns/mrtr: a server may consume a requestState at most once.
		N: 6, When: when(isContinuation, either(isDied, isBroken)), Then: Fail,
		Why: "the state it continues may be good for one use only",
	},
	{ // 2025-11-25 basic/transports, Resumability: for any method, tools/call included.
		N: 7, When: when(isBroken, isLegacy, resumable), Then: Resume,
		Why: "the peer keeps the rest of its stream, and asking for it runs nothing again",
	},
	{ // 2026-07-28 basic/transports/stdio: requests lost with the process can be retried.
		N: 7, When: when(isRead, isDied, optedIn, deathsLeft, onPipe), Then: ResendSameID, NewerOnly: true,
		Why: "a read may run twice, and lost reads are to be sent again",
	},
	{
		N: 7, When: when(isRead, isDied, optedIn, deathsLeft), Then: ResendNewID, NewerOnly: true,
		Why: "a read may run twice, and lost reads are to be sent again",
	},
	{
		N: 7, When: when(isRead, isDied, optedIn), Then: Fail,
		Why: "it was in flight at one death too many and may be their cause",
	},
	{ // 2026-07-28 changelog: a broken response stream loses the request, re-issue with a new id.
		N: 7, When: when(isRead, isBroken, isModern), Then: ResendNewID,
		Why: "a read may run twice, and the protocol asks for a re-issue",
	},
	{
		N: 7, When: when(isRead, isBroken, isLegacy, optedIn), Then: ResendNewID,
		Why: "a read may run twice, its stream can't be resumed, and lost reads are to be sent again",
	},
	{
		N: 7, When: when(isRead, either(isDied, isBroken)), Then: Fail,
		Why: "lost reads are sent again only where the user opted in",
	},
	{
		N: 8, When: when(isToolCall, isDied), Then: Fail,
		Why: "the tool may have run, and annotations say nothing about half a run",
	},
	{
		N: 9, When: when(isToolCall, isBroken, isModern, distrusted), Then: Fail,
		Why: "the tool may have run, and its annotations are distrusted",
	},
	{ // 2026-07-28 server/tools: annotations are untrusted unless the server is trusted.
		N: 9, When: when(isToolCall, isBroken, isModern, granted), Then: ResendNewID,
		Why: "the peer says that running this tool twice does no harm",
	},
	{
		N: 9, When: when(isToolCall, isBroken, isModern), Then: Fail,
		Why: "the tool may have run, and nothing says that running it twice does no harm",
	},
	{
		N: 10, Then: Fail,
		Why: "it may have run, and nothing says that running it twice does no harm",
	},
}
