package conformance

import (
	"fmt"
	"slices"

	"github.com/respawn-mcp/respawn/fsm"
)

// Life checks one run of a lifecycle as it goes, against what the words mean and
// not against a table. It counts what happened (events) and what was asked for
// (actions), and holds after each step that
//
//   - a generation is 1 + the endings so far, and at most one incarnation lives:
//     spawns − endings is 0 or 1;
//   - the state tells the truth: starting and serving have a live incarnation,
//     before and after its announcement; dead-awaiting-respawn has a timer armed
//     and nobody else has; exhausted has neither; closed means that close came;
//   - close ends in closed, and a terminal state is left only for closed, with
//     nothing to do after it but a stop;
//   - each message is delivered once, each opening announced once;
//   - each ending, and each close that finds a live incarnation, settles or fails
//     who waits once and stops the incarnation once; an opening that ends after
//     close adds a stop; a close that finds a promise fails who waits once;
//   - there is one close report for each ending, and one for each close that
//     finds an incarnation or a promise, but none for an ending after close;
//   - settle comes with a promise, fail without one;
//   - the actions of a step are in an order that their meaning allows.
//
// It is a value: a copy goes its own way.
type Life struct {
	at     fsm.Snapshot
	closed bool // a close was stepped
	served bool // the live incarnation was announced
	armed  bool
	late   bool // the timer was disarmed, and may have fired already

	spawns, endings                                 int
	announced, delivered, decided, stopped, reports tally
}

// tally is how often something must have been done by now, and was.
type tally struct{ owed, done int }

// NewLife starts a run with a table's first snapshot and first actions.
func NewLife(first fsm.Snapshot, do []fsm.Action) (Life, error) {
	l := Life{at: first}
	if err := l.perform(do); err != nil {
		return l, err
	}
	return l, l.check(do)
}

// alive reports whether an incarnation exists that has not ended.
func (l Life) alive() bool { return l.spawns > l.endings }

// Possible reports whether anybody is there to cause an event. An event that is
// possible must be legal; one that is not is somebody's bug.
func (l Life) Possible(e fsm.Event) bool {
	switch e {
	case fsm.Up:
		return l.alive() && !l.served
	case fsm.Message, fsm.Lost, fsm.Spent:
		return l.alive()
	case fsm.Due:
		return l.armed || l.late
	default: // the owner is always there
		return true
	}
}

// Observe takes the next step of the run and returns the first thing that is
// wrong with it. A stale event is no step.
func (l *Life) Observe(tr fsm.Transition) error {
	before := *l
	if tr.From != l.at.State {
		return fmt.Errorf("a step from %s, but the peer is in %s", tr.From, l.at.State)
	}
	if !l.Possible(tr.Event) {
		return fmt.Errorf("%s, and nobody is there to cause it", tr.Event)
	}
	l.happen(tr.Event)
	l.at = fsm.Snapshot{State: tr.To, Gen: tr.Gen}
	if err := l.perform(tr.Do); err != nil {
		return err
	}
	if err := l.check(tr.Do); err != nil {
		return err
	}
	return l.final(before.at.State, tr)
}

// happen counts what an event makes owed.
func (l *Life) happen(e fsm.Event) {
	switch e {
	case fsm.Up:
		if l.closed {
			l.stopped.owed++
		} else {
			l.announced.owed++
		}
	case fsm.Message:
		if !l.closed {
			l.delivered.owed++
		}
	case fsm.Lost, fsm.Spent:
		l.endings++
		if !l.closed {
			l.decided.owed++
			l.stopped.owed++
			l.reports.owed++
		}
		l.served = false
	case fsm.Due:
		l.armed, l.late = false, false
	case fsm.Close:
		if !l.closed && (l.alive() || l.armed) {
			l.decided.owed++
			l.reports.owed++
			if l.alive() {
				l.stopped.owed++
			}
		}
		l.closed = true
	}
}

// perform counts what was done.
func (l *Life) perform(do []fsm.Action) error {
	for _, a := range do {
		switch a {
		case fsm.Spawn:
			l.spawns++
		case fsm.Announce:
			l.served = true
			l.announced.done++
		case fsm.Deliver:
			l.delivered.done++
		case fsm.Settle, fsm.Fail:
			l.decided.done++
		case fsm.Stop:
			l.stopped.done++
		case fsm.Report:
			l.reports.done++
		case fsm.Arm:
			if l.armed {
				return fmt.Errorf("armed twice")
			}
			l.armed = true
		case fsm.Disarm:
			if !l.armed {
				return fmt.Errorf("disarmed, and nothing was armed")
			}
			l.armed, l.late = false, true
		}
	}
	return nil
}

// check holds what must be true after every step, whatever came before.
func (l Life) check(do []fsm.Action) error {
	if want := uint64(1 + l.endings); l.at.Gen != want {
		return fmt.Errorf("generation %d after %d endings, want %d", l.at.Gen, l.endings, want)
	}
	if n := l.spawns - l.endings; n < 0 || n > 1 {
		return fmt.Errorf("%d spawns and %d endings", l.spawns, l.endings)
	}
	if want := l.truth(); l.at.State != want {
		return fmt.Errorf("the state is %s, the truth is %s", l.at.State, want)
	}
	if l.armed != (l.at.State == fsm.Dead) {
		return fmt.Errorf("in %s the timer is armed: %v", l.at.State, l.armed)
	}
	for _, c := range []struct {
		what string
		tally
	}{
		{"announcements", l.announced},
		{"deliveries", l.delivered},
		{"times settle or fail", l.decided},
		{"stops", l.stopped},
		{"close reports", l.reports},
	} {
		if c.done != c.owed {
			return fmt.Errorf("%d %s, want %d", c.done, c.what, c.owed)
		}
	}
	if promised := l.at.State == fsm.Dead; slices.Contains(do, fsm.Settle) && !promised || slices.Contains(do, fsm.Fail) && promised {
		return fmt.Errorf("%v in %s: settle comes with a promise, fail without one", do, l.at.State)
	}
	return ordered(do)
}

// truth is the state that events and actions add up to.
func (l Life) truth() fsm.State {
	switch {
	case l.closed:
		return fsm.Closed
	case l.alive() && l.served:
		return fsm.Serving
	case l.alive():
		return fsm.Starting
	case l.armed:
		return fsm.Dead
	default:
		return fsm.Exhausted
	}
}

// final holds that an end is an end.
func (l Life) final(from fsm.State, tr fsm.Transition) error {
	if tr.Event == fsm.Close && tr.To != fsm.Closed {
		return fmt.Errorf("close ended in %s", tr.To)
	}
	if !from.Terminal() {
		return nil
	}
	if tr.To != from && tr.To != fsm.Closed {
		return fmt.Errorf("%s was left for %s", from, tr.To)
	}
	for _, a := range tr.Do {
		if a != fsm.Stop {
			return fmt.Errorf("%s after %s", a, from)
		}
	}
	return nil
}

// ranks is the order of actions within one step. What shares a step with nothing
// has no rank.
var ranks = map[fsm.Action]int{
	// Stop retires an incarnation until the last exchange that somebody waits for
	// is over, so settle says first who still waits.
	fsm.Settle: 1,
	// Nobody who is told of an end may find the incarnation taking messages, or
	// the timer still running.
	fsm.Stop:   2,
	fsm.Disarm: 2,
	// The owner who hears of a close finds nothing pending any more.
	fsm.Fail:   3,
	fsm.Report: 4,
	// A delay of zero is over at once, and the replacement must not overtake the
	// report of its predecessor.
	fsm.Arm: 5,
}

func ordered(do []fsm.Action) error {
	for i, a := range do {
		if ranks[a] == 0 && len(do) > 1 {
			return fmt.Errorf("%s is not alone in %v", a, do)
		}
		if i > 0 && ranks[a] < ranks[do[i-1]] {
			return fmt.Errorf("%s after %s", a, do[i-1])
		}
	}
	return nil
}
