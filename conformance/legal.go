package conformance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/respawn-mcp/respawn/fsm"
)

// lives is how many incarnations a world has at most. Nothing looks further back
// than to the one before, so three show all there is.
const lives = 3

// world is everything that transports, timer, policy and owner may still do, by
// the rules of the engine's loop. It says nothing about what a table should do.
type world struct {
	at      fsm.Snapshot
	peers   [lives]incarnation // in the order of their spawns
	spawned int
	timer   uint64 // the generation that an armed timer speaks of, also while it is disarmed; 0: none
}

type incarnation struct {
	gen     uint64
	opening bool // its opening exchange runs and may yet post up
	serving bool // its Serve has not returned
	stopped bool
	asked   int // how often policy was asked about its ending
}

// move is one thing that may happen next, and what is over with it.
type move struct {
	what string
	in   fsm.Input
	then func(*world)
}

// LegalWalk explores everything that transports and loop may legally do with a
// table, in every order, and returns the first run in which an event is illegal,
// a fact about an earlier incarnation has an effect, policy would be asked twice
// about one incarnation, or one is forgotten rather than stopped. Where
// [Invariants] tries every event that can happen in a state, this walk knows
// only what an opening exchange, a Serve, a timer and an owner do: a Serve
// returns once, and after a verdict that its session is gone it still speaks and
// then returns. It works on any table.
func LegalWalk(table *fsm.Table) error {
	first, do := table.Init()
	return (&explorer{step: table.Step}).explore(first, do)
}

type explorer struct {
	step  func(fsm.Snapshot, fsm.Input) (fsm.Snapshot, []fsm.Action, error)
	steps map[string]int // how often which event was stepped in which state, and how many were stale
}

// explore goes breadth first, so that the run it returns is a shortest one. A
// world has one future, however it came to be, so each is looked at once.
func (e *explorer) explore(first fsm.Snapshot, do []fsm.Action) error {
	type place struct {
		world
		run []string
	}
	start := world{at: first}
	if err := start.perform(do); err != nil {
		return fmt.Errorf("before any event: %w", err)
	}
	seen := map[world]bool{start: true}
	e.steps = map[string]int{}
	for queue := []place{{start, nil}}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		for _, m := range here.moves() {
			run := append(here.run[:len(here.run):len(here.run)], m.what)
			after, err := e.make(here.world, m)
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(run, "; "), err)
			}
			if !seen[after] {
				seen[after] = true
				queue = append(queue, place{after, run})
			}
		}
	}
	return nil
}

// make steps one move and judges it by the generation it spoke of.
func (e *explorer) make(w world, m move) (world, error) {
	next, do, err := e.step(w.at, m.in)
	if err != nil {
		return w, err
	}
	if m.in.Event == fsm.Close || m.in.Gen == w.at.Gen {
		e.steps[w.at.State.String()+" "+m.in.Event.String()]++
	} else {
		e.steps["stale "+m.in.Event.String()]++
		if next != w.at || len(do) > 0 {
			return w, errors.New("a fact about an earlier incarnation had an effect")
		}
	}
	m.then(&w)
	w.at = next
	return w, w.perform(do)
}

// moves lists what may happen next.
func (w world) moves() []move {
	moves := []move{{"the owner closes", fsm.Input{Event: fsm.Close}, func(*world) {}}}
	if w.timer != 0 && w.spawned < lives {
		moves = append(moves, move{"the timer fires", fsm.Input{Event: fsm.Due, Gen: w.timer}, func(w *world) { w.timer = 0 }})
	}
	for i, p := range w.peers[:w.spawned] {
		add := func(what string, e fsm.Event, then func(*incarnation)) {
			what = fmt.Sprintf("%s %d", what, p.gen)
			moves = append(moves, move{what, fsm.Input{Event: e, Gen: p.gen}, func(w *world) { then(&w.peers[i]) }})
		}
		if p.opening {
			add("the opening exchange succeeds on", fsm.Up, func(p *incarnation) { p.opening = false })
		}
		if !p.serving {
			continue
		}
		add("a message from", fsm.Message, func(*incarnation) {})
		returns := func(p *incarnation) { p.serving = false }
		if p.gen != w.at.Gen || w.at.State == fsm.Closed { // nobody asks policy
			add("a late return of Serve on", fsm.Spent, returns)
			continue
		}
		for _, verdict := range []fsm.Event{fsm.Lost, fsm.Spent} {
			add("Serve returns, "+verdict.String()+", on", verdict, func(p *incarnation) { p.serving = false; p.asked++ })
			add("policy calls the session gone, "+verdict.String()+", on", verdict, func(p *incarnation) { p.asked++ })
		}
		add("Serve returns while draining on", fsm.Close, returns)
	}
	return moves
}

// perform does to the world what actions ask for.
func (w *world) perform(do []fsm.Action) error {
	for _, a := range do {
		switch a {
		case fsm.Spawn:
			if w.spawned == lives {
				return errors.New("a spawn that no timer asked for")
			}
			w.peers[w.spawned] = incarnation{gen: w.at.Gen, opening: true, serving: true}
			w.spawned++
		case fsm.Stop:
			if w.spawned == 0 {
				return errors.New("a stop before any spawn")
			}
			w.peers[w.spawned-1].stopped = true
		case fsm.Arm:
			w.timer = w.at.Gen
		}
	}
	for i, p := range w.peers[:w.spawned] {
		current := i == w.spawned-1 && (w.at.State == fsm.Starting || w.at.State == fsm.Serving)
		if !current && !p.stopped {
			return fmt.Errorf("incarnation %d was forgotten", p.gen)
		}
		if p.asked > 1 {
			return fmt.Errorf("policy was asked %d times about incarnation %d", p.asked, p.gen)
		}
	}
	return nil
}
