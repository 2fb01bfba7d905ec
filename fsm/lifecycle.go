// Package fsm defines the one lifecycle that everything in respawn follows: a
// child process, a legacy HTTP session, a listen stream.
//
//	State(S) × Event(E) → Actions(A), State(S′)
//
// The table in this file is the whole definition. [Table.Step] looks a pair up
// and returns the next state and an ordered list of actions; it is pure, so a
// test, a diagram and the engine all read the same thing. Nothing outside this
// package changes a state, and nothing in it performs an action.
package fsm

import "fmt"

// State is where a peer is in its lives.
type State uint8

const (
	Starting  State = iota // an incarnation exists and its opening exchange is not over
	Serving                // calls go through
	Dead                   // the last incarnation ended and a replacement is promised
	Exhausted              // the last incarnation ended and none will follow
	Closed                 // the owner ended it
	numStates
)

var stateNames = [numStates]string{"starting", "serving", "dead-awaiting-respawn", "exhausted", "closed"}

// String returns the state's name as it stands in the docs and in logs.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// States returns every state, in the order in which a life goes through them.
func States() []State { return all(numStates) }

// Terminal reports whether no incarnation will ever follow.
func (s State) Terminal() bool { return s == Exhausted || s == Closed }

// Event is one thing that happened to a peer.
type Event uint8

const (
	Up      Event = iota // the opening exchange succeeded
	Message              // the incarnation sent something
	Lost                 // it ended, and policy promised a replacement
	Spent                // it ended, and policy promised none
	Due                  // the promised replacement's time has come
	Close                // the owner wants the end
	numEvents
)

var eventNames = [numEvents]string{"up", "message", "lost", "spent", "due", "close"}

// String returns the event's name as it stands in the docs and in logs.
func (e Event) String() string {
	if e < numEvents {
		return eventNames[e]
	}
	return fmt.Sprintf("Event(%d)", uint8(e))
}

// Events returns every event, in the order of the docs' columns.
func Events() []Event { return all(numEvents) }

// ending reports whether the event says that an incarnation is over.
func (e Event) ending() bool { return e == Lost || e == Spent }

// Action is one thing the engine must do. Actions of one step are performed in
// the order in which they are listed.
type Action uint8

const (
	Spawn    Action = iota // build and run the next incarnation
	Announce               // tell everybody that it serves, and open the gate
	Deliver                // hand the message to its receiver
	Settle                 // decide about each request in flight: keep, fail, or leave
	Stop                   // stop the incarnation
	Report                 // tell the owner of one close
	Arm                    // start the respawn timer
	Disarm                 // cancel it
	Fail                   // fail whatever is pending with the terminal error
	numActions
)

var actionNames = [numActions]string{"spawn", "announce", "deliver", "settle", "stop", "report", "arm", "disarm", "fail"}

// String returns the action's name as it stands in the docs and in logs.
func (a Action) String() string {
	if a < numActions {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Actions returns every action.
func Actions() []Action { return all(numActions) }

func all[T ~uint8](n T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = T(i)
	}
	return list
}

// Lifecycle is the one table. Its first action, before any event, is [Spawn].
var Lifecycle = MustCompile(Starting, []Action{Spawn}, []Row{
	{Starting, Up, Serving, []Action{Announce}, "the opening exchange succeeded"},
	{Starting, Message, Starting, []Action{Deliver}, "the opening exchange needs its answers"},
	{Starting, Lost, Dead, []Action{Settle, Stop, Report, Arm}, "it died before it served; the budget grants another"},
	{Starting, Spent, Exhausted, []Action{Stop, Fail, Report}, "it died before it served; nothing grants another"},
	{Starting, Close, Closed, []Action{Stop, Fail, Report}, "the owner closed while it started"},

	{Serving, Message, Serving, []Action{Deliver}, "an answer never refills the budget, so nothing else happens"},
	{Serving, Lost, Dead, []Action{Settle, Stop, Report, Arm}, "it died; the budget grants another"},
	{Serving, Spent, Exhausted, []Action{Stop, Fail, Report}, "it died; nothing grants another"},
	{Serving, Close, Closed, []Action{Stop, Fail, Report}, "the owner closed"},

	{Dead, Due, Starting, []Action{Spawn}, "the delay is over"},
	{Dead, Close, Closed, []Action{Disarm, Fail, Report}, "the owner withdrew the promised replacement"},

	{Exhausted, Close, Closed, nil, "nothing is left to stop; only the name of the end changes"},

	{Closed, Up, Closed, []Action{Stop}, "a start that finishes after close is stopped, not leaked"},
	{Closed, Message, Closed, nil, "a race that lost to close"},
	{Closed, Lost, Closed, nil, "a race that lost to close"},
	{Closed, Spent, Closed, nil, "the closed incarnation's own end, reported already"},
	{Closed, Due, Closed, nil, "a timer that lost to close"},
	{Closed, Close, Closed, nil, "closing twice is closing once"},
})
