package policy

import "slices"

// Kind is how a request lost its answer. The zero Kind is no kind: the rules
// send nothing again for it.
type Kind uint8

const (
	// Unsent: provably nothing of the request reached the peer.
	Unsent Kind = iota + 1
	// Refused: the peer answered that it forgot the session; it did not run.
	Refused
	// Broken: the request's own response stream ended without its answer.
	Broken
	// Died: the peer went away while the request was in flight.
	Died
)

func (k Kind) String() string {
	return name(k, "unknown", "unsent", "refused", "broken", "died")
}

// Era is the family of protocol revisions a peer speaks. The zero Era is not
// known yet.
type Era uint8

const (
	// Legacy is 2024-11-05 to 2025-11-25: the initialize handshake, sessions.
	Legacy Era = iota + 1
	// Modern is 2026-07-28 and later: stateless, server/discover.
	Modern
)

func (e Era) String() string { return name(e, "unknown", "legacy", "modern") }

// Shape is how messages travel. The zero Shape is not known; an id is then never
// used twice.
type Shape uint8

const (
	// Pipe is one ordered channel: no late answer of a dead incarnation can be
	// taken for a new one, so an id may be used again.
	Pipe Shape = iota + 1
	// Posts is one exchange a message: each attempt has an id of its own.
	Posts
)

func (s Shape) String() string { return name(s, "unknown", "pipe", "posts") }

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return names[0]
}

// Loss is everything the retry rules may look at: one attempt of one request
// that ended without an answer. The zero value of each field is the one that
// allows less.
type Loss struct {
	Kind   Kind
	Method string
	Era    Era
	Shape  Shape

	// Opening: it belongs to an opening exchange (initialize, or server/discover
	// as the era probe), not to a settled connection.
	Opening bool
	// Cursor: it is a listing that carries a pagination cursor.
	Cursor bool
	// Continuation: its params carry inputResponses or requestState; each alone
	// is enough.
	Continuation bool
	// Evidence: the peer's complete listing granted this tool both when the
	// request was sent and now ([Evidence.Grants]).
	Evidence bool
	// DistrustAnnotations: the user said that evidence counts for nothing.
	DistrustAnnotations bool
	// Resumable: its legacy stream showed an event id, its session is not known
	// to be gone, and resume attempts are left.
	Resumable bool

	// Resent: it was already sent again once, for a refusal or a break.
	Resent bool
	// Deaths is how many deaths it has survived, this one not counted, and
	// MaxDeaths how many it may survive; 0 means no bound but its deadline and
	// the restart budget. Only deaths that it was written before count: what it
	// never reached it did not cause.
	Deaths, MaxDeaths int

	// DeadlinePassed and CallerGone: nobody waits for the answer any more.
	DeadlinePassed, CallerGone bool
	// MayWait: the call may wait for a peer (WaitForReady, or the relay's hold).
	MayWait bool
	// RetryLost: the user opted in to sending lost reads again.
	RetryLost bool
}

// Action is what becomes of a lost request. The zero Action is Fail.
type Action uint8

const (
	// Fail ends the request with an error that says its outcome.
	Fail Action = iota
	// Hold keeps it, to be sent under the same id once a peer can be reached.
	Hold
	// ResendSameID sends it again to the replacement, under the same id.
	ResendSameID
	// ResendNewID sends it again, under a new id; the old one leaves the pending
	// table first.
	ResendNewID
	// Resume continues its response stream (GET with Last-Event-ID).
	Resume
	// NotHere leaves it to the stream instance or the opening exchange it
	// belongs to.
	NotHere
)

func (a Action) String() string {
	return name(a, "fail", "hold, same id", "send again, same id", "send again, new id", "resume", "not here")
}

// Decision is the rules' answer to one loss.
type Decision struct {
	Action     Action
	NewerOnly  bool   // send again only to an incarnation newer than the one that lost it
	CursorLost bool   // fail with ErrCursorLost: the page it asked for is gone with the session
	Rule       int    // the rule that decided, as docs/policies.md numbers them
	Why        string // one clause for logs and errors
}

const (
	methodListen   = "subscriptions/listen"
	methodToolCall = "tools/call"
)

// listings are the methods that are answered in pages.
var listings = []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}

// readSet is the methods that the protocol itself defines as reads, so that
// sending one twice does no harm.
var readSet = append([]string{"server/discover", "prompts/get", "resources/read", "completion/complete"}, listings...)

// ReadOnlyMethod reports whether method is in the read set: exactly eight
// methods of the protocol. Those of vendors are never in it, whatever their
// names.
func ReadOnlyMethod(method string) bool { return slices.Contains(readSet, method) }
