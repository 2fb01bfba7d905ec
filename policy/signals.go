package policy

import "encoding/json"

// Exchange is what an HTTP exchange carried. The zero Exchange is a request,
// other than initialize.
type Exchange uint8

const (
	RequestPOST Exchange = iota
	InitializePOST
	NotificationPOST
	ReplyPOST
	StandaloneGET
	ResumeGET
	SessionDELETE
)

func (x Exchange) String() string {
	return name(x, "request", "initialize", "notification", "reply", "standalone GET", "resume GET", "DELETE")
}

// Refusal is what an exchange met instead of an answer, or an error body on it
// that names no request.
type Refusal struct {
	Era      Era
	Exchange Exchange
	ID       string // the request's id as JSON text
	Issued   bool   // it carried the session id that the server issued to this transport
	Opened   bool   // a standalone GET of this session had been open before
	Status   int    // HTTP status
	Body     []byte // as much as was read; above 1 MiB it is not looked into
	// Uncredentialed: this side could not get the credentials that it takes.
	Uncredentialed bool
}

// Signal is what a refusal, or a probe, says about a session or an era.
type Signal uint8

const (
	// NoSignal: nothing; the answer concerns its request alone.
	NoSignal Signal = iota
	// Suspect: a probe has to settle it.
	Suspect
	// Gone: the session, or the era, is.
	Gone
	// Alive: it still serves.
	Alive
	// SuspectAnswered: a probe has to settle it, but the body is the answer of
	// its request, or may be: that one ran, and is not sent again whatever the
	// probe says.
	SuspectAnswered
)

func (s Signal) String() string {
	return name(s, "no signal", "suspicion", "gone", "alive", "suspicion, and an answer")
}

// Judgement is a signal and one clause that says why.
type Judgement struct {
	Signal Signal
	Why    string
}

// signal is one row of a table of signals; the first that matches wins.
type signal struct {
	when []Cond[seen]
	then Signal
	why  string
}

// seen is an exchange with its body already read.
type seen struct {
	Refusal
	answer answer
}

func judge(rows []signal, r Refusal) Judgement {
	s := seen{r, readAnswer(r.Body)}
	for _, row := range rows {
		if all(row.when, s) {
			return Judgement{row.then, row.why}
		}
	}
	return Judgement{} // not reached: each table ends in a row without a condition
}

// Judge says what a refusal means for the session that it met, in the legacy
// era, or for the era itself, in the modern one. A legacy suspicion is settled
// by one ping on the same session ([JudgePing]), a modern one by one
// server/discover ([JudgeDiscover]).
func Judge(r Refusal) Judgement {
	if r.Era == Modern {
		return judge(modernSignals, r)
	}
	return judge(legacySignals, r)
}

// Probe is how a ping or a server/discover went.
type Probe struct {
	ID     string // the probe's id as JSON text
	Status int    // HTTP status; 0: no answer at all
	Body   []byte // the JSON-RPC message, or the body of a refusal
	// Uncredentialed: as in [Refusal].
	Uncredentialed bool
}

// JudgePing says what became of a suspected session: Alive, Gone, or NoSignal,
// which means not gone. The suspects' own answers stand unless it is Gone.
func JudgePing(p Probe) Judgement { return judge(pingSignals, p.refusal()) }

// JudgeDiscover says what became of a suspected modern era: Alive, Gone (probe
// the era again), or NoSignal.
func JudgeDiscover(p Probe) Judgement { return judge(discoverSignals, p.refusal()) }

func (p Probe) refusal() Refusal {
	return Refusal{ID: p.ID, Status: p.Status, Body: p.Body, Uncredentialed: p.Uncredentialed}
}

// answer is what a body holds if it is one JSON-RPC response. The zero value is
// a body that is none.
type answer struct {
	id     json.RawMessage // nil: no id
	result json.RawMessage // nil: no result
	err    bool            // an error, with
	code   int
}

// maxBody bounds the bodies that are looked into: no error that a server writes
// about a session comes near it.
const maxBody = 1 << 20

func readAnswer(body []byte) answer {
	if len(body) > maxBody {
		return answer{}
	}
	members, ok := fields(parse(body))
	if version, _ := text(members["jsonrpc"]); !ok || version != "2.0" {
		return answer{}
	}
	a := answer{id: members["id"], result: members["result"]}
	if absent(members["error"]) {
		return a
	}
	if a.result != nil {
		return answer{} // both: neither can be believed
	}
	object, ok := fields(members["error"])
	if !ok || absent(object["code"]) || json.Unmarshal(object["code"], &a.code) != nil {
		return answer{}
	}
	a.err = true
	return a
}
