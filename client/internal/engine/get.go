package engine

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// getStream is the standalone GET of one legacy session, over all its breaks: an
// instance of the lifecycle of its own (2025-11-25, transports, Listening for
// Messages from the Server).
type getStream struct {
	inc    *incarnation
	snap   fsm.Snapshot
	ref    uint64 // of the exchange under way; 0: none
	opened bool   // it worked once
	since  time.Time
	tries  int // openings in a row that brought nothing
	lastID string
	asked  string          // the event id that the exchange under way resumes from
	missed bool            // it broke, and what was announced since was not heard
	timer  timer           // the next opening, or the next look
	polls  int             // looks in a row at a resumed stream that had brought nothing
	first  []chan struct{} // told when the first opening is decided
}

// What the inbox carries about it.
type (
	evStartGet struct { // from the opening exchange
		inc  *incarnation  // nil: the one that serves
		sent chan struct{} // closed when it is under way
		told chan struct{} // closed when the first headers are there
	}
	evGet struct { // a GET was answered with an event stream
		inc *incarnation
		ref uint64
	}
	evGetDue  struct{ g *getStream }
	evGetPoll struct { // a resumed stream may have been silent for too long
		g   *getStream
		ref uint64
	}
)

// getPatience is how long the first incarnation waits for the GET's headers:
// servers that announce things at once announce them there.
const getPatience = 500 * time.Millisecond

// getLived is how long a GET must have been open to count as a success. One that
// a server closes at once is no success, however often it is accepted.
const getLived = 5 * time.Second

// openGet opens the stream for a legacy session that has none yet.
func (e *Engine) openGet(inc *incarnation) {
	if e.Factory.Shape != transports.Posts || Era(inc.speaks.Load()) != Legacy || e.get != nil && e.get.inc == inc {
		return
	}
	e.closeGet()
	e.get = &getStream{inc: inc}
	e.get.snap, _ = fsm.Lifecycle.Init()
	e.sendGet(e.get)
}

func (e *Engine) sendGet(g *getStream) {
	g.ref = e.ref()
	g.tries++
	g.polls = 0
	g.inc.untagged.Store(false)
	e.listenGet(g)
}

func (e *Engine) listenGet(g *getStream) {
	g.asked = g.lastID
	err := g.inc.tr.Send(transports.Outbound{Ref: g.ref, Op: transports.OpListen, LastID: g.lastID, Header: g.inc.headers()})
	if err != nil {
		e.getLost(g, 0)
	}
}

// step moves the stream's own machine.
func (g *getStream) step(on fsm.Event) {
	if next, _, err := fsm.Lifecycle.Step(g.snap, fsm.Input{Event: on, Gen: g.snap.Gen}); err == nil {
		g.snap = next
	}
}

// decided lets whoever waits for the first headers go on.
func (g *getStream) decided() {
	for _, told := range g.first {
		close(told)
	}
	g.first = nil
}

// startedGet opens the stream for an opening exchange, and tells it when the first
// try is decided.
func (e *Engine) startedGet(ev evStartGet) {
	if ev.inc == nil && e.machine.State() == fsm.Serving {
		ev.inc = e.cur
	}
	if e.cur == ev.inc && !e.machine.State().Terminal() && !ev.inc.retired { // serving, if its owner ran the opening
		e.openGet(ev.inc)
	}
	close(ev.sent)
	if g := e.get; g != nil && g.inc == ev.inc && g.snap.State == fsm.Starting {
		g.first = append(g.first, ev.told)
		return
	}
	close(ev.told)
}

// startGet begins the standalone GET of a new session, before anything is sent
// that may have an effect there. Only the first incarnation waits for its headers.
func (inc *incarnation) startGet(ctx context.Context) {
	if inc.e.Factory.Shape != transports.Posts {
		return
	}
	ev := evStartGet{inc, make(chan struct{}), make(chan struct{})}
	inc.e.inbox.post(ev)
	<-ev.sent // the loop runs as long as an opening does
	if inc.gen > 1 {
		return
	}
	late, stop := inc.e.alarm(getPatience)
	defer stop()
	select {
	case <-ev.told:
	case <-late:
	case <-ctx.Done():
	}
}

// getOf returns the stream that an attempt belongs to, or nil.
func (e *Engine) getOf(ref uint64) *getStream {
	if e.get == nil || e.get.ref != ref || e.get.snap.State.Terminal() {
		return nil
	}
	return e.get
}

func (e *Engine) getOpened(_ *incarnation, ref uint64) {
	if g := e.getOf(ref); g != nil {
		if g.snap.State != fsm.Serving { // else it takes the place of a silent one
			g.since = e.Clock.Now()
		}
		g.opened = true
		g.step(fsm.Up)
		g.decided()
		if g.missed && g.asked == "" && e.session.Load() != nil {
			e.missedChanges()
		}
		g.missed = false
		e.pollGetLater(g)
	}
}

// pollGetLater plans the next look at a stream that continues an earlier one: as
// with the streams of calls, some servers only look for missed events when asked.
func (e *Engine) pollGetLater(g *getStream) {
	if g.lastID == "" {
		return
	}
	g.timer.stop()
	g.timer.t = e.after(min(pollAfter<<g.polls, pollMost), evGetPoll{g, g.ref})
	g.polls = min(g.polls+1, 3)
}

// pollGet asks for a resumed stream again that brought nothing since it was asked
// for. The transport knows the last event better: it goes on from there.
func (e *Engine) pollGet(ev evGetPoll) {
	g := ev.g
	if e.get != g || g.snap.State != fsm.Serving || g.ref != ev.ref || g.inc.retired {
		return
	}
	if g.inc.untagged.Swap(false) {
		g.polls = 0
		e.pollGetLater(g)
		return
	}
	e.listenGet(g)
}

// getRejected takes a refusal of the GET. One that never worked says that the
// server has no such stream, which is its right; one that worked makes its session
// suspect.
func (e *Engine) getRejected(inc *incarnation, ev transports.Rejected) bool {
	g := e.getOf(ev.Ref)
	if g == nil {
		return false
	}
	r := policy.Refusal{
		Era: policy.Legacy, Exchange: policy.StandaloneGET, Issued: ev.Session != "", Opened: g.opened,
		Status: ev.Status, Body: ev.Body,
	}
	unsupported := !g.opened && (ev.Status/100 == 4 || ev.Status/100 == 2 || ev.Status == 501)
	switch {
	case unsupported:
		level := slog.LevelWarn
		if ev.Status == http.StatusMethodNotAllowed { // the way to say so (Listening for Messages, 3)
			level = slog.LevelDebug
		}
		e.log(level, "the server has no standalone stream", "gen", inc.gen, "status", ev.Status)
		g.ref = 0
		e.closeGet()
	default:
		if g.asked != "" && refusesID(ev.Status) { // it may be the id: the next try goes without
			e.log(slog.LevelWarn, "the server does not resume its standalone stream", "gen", inc.gen, "status", ev.Status)
			g.lastID = ""
		}
		e.getLost(g, retryAfter(ev.Header, e.Clock.Now()))
		if policy.Judge(r).Signal == policy.Suspect {
			e.suspect(inc, suspect{ev: ev})
		}
	}
	return true
}

// refusesID reports whether a GET that asked for what followed an event may have been
// refused for that: not for its credentials, nor for the moment.
func refusesID(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// missedChanges takes what the server may have announced for changed.
func (e *Engine) missedChanges() {
	can := e.announces()
	for _, kind := range []struct {
		announced bool
		method    string
	}{
		{can.Tools, methodToolsChanged},
		{can.Prompts, methodPromptsChanged},
		{can.Resources, methodResourceChanged},
	} {
		if kind.announced {
			e.stale(kind.method, "")
		}
	}
	for _, uri := range e.state.subscriptions() {
		e.stale(methodUpdated, uri)
	}
}

func (e *Engine) getBroken(_ *incarnation, ev transports.Broken) bool {
	g := e.getOf(ev.Ref)
	if g == nil {
		return false
	}
	if ev.LastID != "" {
		g.lastID = ev.LastID
	}
	e.getLost(g, ev.Retry)
	return true
}

// getLost opens the stream again behind a backoff that only a stream which lived
// resets. The server's own wish is a floor.
func (e *Engine) getLost(g *getStream, floor time.Duration) {
	if g.snap.State == fsm.Serving && e.Clock.Now().Sub(g.since) >= getLived {
		g.tries = 0
	}
	g.missed = g.missed || g.snap.State == fsm.Serving
	g.step(fsm.Lost)
	g.decided()
	g.ref = 0
	g.timer.stop()
	g.timer.t = e.after(max(floor, e.StreamBackoff.Delay(max(g.tries, 1), e.rnd())), evGetDue{g})
}

func (e *Engine) getDue(g *getStream) {
	if e.get != g || g.snap.State != fsm.Dead || g.inc.retired {
		return
	}
	g.step(fsm.Due)
	e.sendGet(g)
}

// closeGet ends the stream with its session.
func (e *Engine) closeGet() {
	g := e.get
	if g == nil || g.snap.State.Terminal() {
		return
	}
	g.step(fsm.Close)
	g.timer.stop()
	g.decided()
	if g.ref != 0 {
		g.inc.tr.Cancel(g.ref)
	}
}
