package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
)

// walker is one run.
type walker struct {
	walk
	m *mortal
	c *client.Client

	mu      sync.Mutex
	faults  []string
	open    int // calls that are not over
	calls   int
	streams walkStreams
	state   fsm.State
	ended   map[uint64]bool
	last    uint64 // generation that reconnected
	all     sync.WaitGroup
}

type walkStream struct {
	s    *client.Subscription
	mu   sync.Mutex
	seen int  // newest notification
	over bool // Wait has returned
}

// walkStreams are all that were opened, in their order.
type walkStreams struct {
	mu  sync.Mutex
	all []*walkStream
}

func (s *walkStreams) add(st *walkStream, sub *client.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.s = sub
	s.all = append(s.all, st)
}

func (s *walkStreams) close(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < len(s.all) {
		s.all[i].s.Close()
	}
}

func newWalker(w walk) *walker {
	return &walker{
		walk: w, ended: map[uint64]bool{}, state: fsm.Starting,
		m: &mortal{eras: w.Eras, births: w.Births, fates: w.Fates},
	}
}

func (w *walker) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *walker) config() *client.Config {
	o := w.Options
	cfg := &client.Config{
		RetryLost: o.RetryLost, WaitForReady: o.WaitForReady, Cache: o.Cache, MaxHeld: o.MaxHeld,
		RequestTimeout: o.Timeout, StartTimeout: 20 * time.Second, Logger: quiet(),
		OnTransition: w.transition, OnEnd: w.end, OnReconnect: w.reconnect,
	}
	if o.Liveness {
		cfg.Liveness = watched
	}
	// Never errors: the numbers make sense.
	loose, _ := policy.Tumbling(50, time.Second, policy.Constant(0))
	parked, _ := policy.Park(policy.Contract(), 10*time.Second)
	cfg.Budget = []policy.Budget{nil, policy.Patient(), policy.Unlimited(), loose, parked}[o.Budget]
	return cfg
}

// transition checks that each change of state goes on from the one before.
func (w *walker) transition(tr fsm.Transition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tr.From != w.state {
		w.faults = append(w.faults, fmt.Sprintf("from %s it went to %s, but it was %s", tr.From, tr.To, w.state))
	}
	w.state = tr.To
}

// end checks that each incarnation ends once.
func (w *walker) end(e client.Ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended[e.Gen] {
		w.faults = append(w.faults, fmt.Sprintf("generation %d was reported twice", e.Gen))
	}
	w.ended[e.Gen] = true
}

// reconnect checks that who is announced follows somebody who ended.
func (w *walker) reconnect(r client.Reconnect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Generation <= w.last || !w.ended[r.Generation-1] || w.ended[r.Generation] {
		w.faults = append(w.faults, fmt.Sprintf("generation %d was announced after %d, ended: %v", r.Generation, w.last, w.ended))
	}
	w.last = r.Generation
}

func (w *walker) run() []string {
	c, err := client.Connect(context.Background(), w.m.factory(), w.config())
	if err == nil {
		w.c = c
		for i, p := range w.Steps {
			w.step(i+1, p)
		}
		w.finish()
	}
	synctest.Wait()
	w.audit(err)
	return append(w.faults, w.m.faults...)
}

func (w *walker) step(n int, p pace) {
	switch p.Do {
	case "call":
		w.mu.Lock()
		w.open++
		w.calls++
		w.mu.Unlock()
		w.all.Go(func() { w.call(n, p) })
	case "pass":
		time.Sleep(p.For)
	case "settle":
		synctest.Wait()
	case "kill":
		w.m.kill()
	case "listen":
		w.listen(p)
	case "unlisten":
		w.streams.close(p.Which)
	case "announce":
		w.m.announce()
	case "close":
		w.all.Go(func() { _ = w.c.Close(context.Background()) })
	default:
		w.all.Go(func() { w.other(p) })
	}
}

// other does what only needs to end.
func (w *walker) other(p pace) {
	ctx := context.Background()
	switch p.Do {
	case "level":
		_ = w.c.SetLogLevel(ctx, "error")
	case "subscribe":
		_ = w.c.Call(ctx, "resources/subscribe", map[string]string{"uri": "ab"[p.Which%2 : p.Which%2+1]}, nil)
	case "notify":
		_ = w.c.Notify(ctx, "notifications/x", nil)
	case "list":
		for _, err := range w.c.Tools(ctx) {
			_ = err
		}
	}
}

// call makes a call and checks its end against the server's books.
func (w *walker) call(n int, p pace) {
	ctx := context.Background()
	if p.Patient > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Patient)
		defer cancel()
	}
	resp, err := w.c.Do(ctx, client.Request{
		Method: p.Method, Params: map[string]int{"n": n}, Wait: p.Wait, RequestTimeout: p.Idle,
		Progress: func(pr client.Progress) {
			if pr.Message != fmt.Sprint(n) {
				w.fault("call %d was told the progress of %s", n, pr.Message)
			}
		},
	})
	w.mu.Lock()
	w.open--
	w.mu.Unlock()
	w.m.mu.Lock()
	runs, sends := w.m.runs[n], w.m.sends[n]
	w.m.mu.Unlock()
	var got struct{ N int }
	lost, peer := new(client.LostError), new(client.PeerError)
	switch {
	case err == nil:
		if json.Unmarshal(resp.Result, &got) != nil || got.N != n {
			w.fault("call %d got the answer %s", n, resp.Result)
		}
		if runs == 0 {
			w.fault("call %d was answered and never ran", n)
		}
	case errors.As(err, &lost):
		if lost.Outcome == client.NotExecuted && sends > 0 {
			w.fault("call %d is said not to have run, and the server had it %d times: %v", n, sends, err)
		}
		if lost.Outcome == client.Answered || lost.Cause == nil {
			w.fault("call %d was lost: %v", n, err)
		}
	case errors.As(err, &peer):
		if peer.Code != -32602 {
			w.fault("call %d was refused: %v", n, err)
		}
	default:
		w.fault("call %d ended with %v", n, err)
	}
}

func (w *walker) listen(p pace) {
	st := &walkStream{}
	s, err := w.c.Listen(context.Background(), client.Filter{URIs: []string{"a"}}, func(n client.Notification) {
		var params struct{ Seq int }
		_ = json.Unmarshal(n.Params, &params)
		w.m.mu.Lock()
		by := w.m.sentBy[params.Seq]
		w.m.mu.Unlock()
		if params.Seq%5 == 0 { // callbacks may do anything
			_ = w.c.Ping(context.Background())
			w.streams.close(params.Seq / 5)
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if params.Seq <= st.seen || uint64(by) != n.Generation || st.over {
			w.fault("notification %d of generation %d (sent by %d) came after %d, over: %t", params.Seq, n.Generation, by, st.seen, st.over)
		}
		st.seen = params.Seq
	})
	if err != nil {
		if client.OutcomeOf(err) != client.NotExecuted {
			w.fault("Listen: %v", err)
		}
		return
	}
	w.streams.add(st, s)
	w.all.Go(func() {
		_ = s.Wait(context.Background())
		st.mu.Lock()
		defer st.mu.Unlock()
		st.over = true
	})
}

// finish ends the walk: first by patience, in which each call must end by itself,
// then by Close, after which nothing may be left.
func (w *walker) finish() {
	time.Sleep(11 * time.Minute)
	synctest.Wait()
	w.mu.Lock()
	if w.open > 0 {
		w.faults = append(w.faults, fmt.Sprintf("%d of %d calls are not over after 11 minutes", w.open, w.calls))
	}
	w.mu.Unlock()
	w.restored()
	before := len(w.m.lives)
	if err := w.c.Close(context.Background()); err != nil {
		w.fault("Close: %v", err)
	}
	select {
	case <-w.c.Done():
	default:
		w.fault("Close returned before the end")
	}
	w.all.Wait()
	time.Sleep(time.Hour)
	if len(w.m.lives) != before {
		w.fault("%d servers were started after Close", len(w.m.lives)-before)
	}
}

// restored checks that the server of the moment was asked for each subscription
// that is not over.
func (w *walker) restored() {
	if w.c.State() != fsm.Serving {
		return
	}
	w.m.mu.Lock()
	l := w.m.lives[len(w.m.lives)-1]
	w.m.mu.Unlock()
	for _, st := range w.streams.all {
		st.mu.Lock()
		over := st.over
		st.mu.Unlock()
		if !over && !l.asked[st.s.ID()] && !(l.legacy && l.asked["a"]) {
			w.fault("subscription %s goes on, and life %d was not asked for it", st.s.ID(), l.gen)
		}
	}
}

// audit looks at the books when all is over.
func (w *walker) audit(connect error) {
	if w.m.alive != 0 || w.m.most > 1 {
		w.fault("%d servers are left, and %d were alive at once", w.m.alive, w.m.most)
	}
	for n, p := range w.Steps {
		n++
		runs, sends := w.m.runs[n], w.m.sends[n]
		if p.Do != "call" && sends > 0 {
			w.fault("step %d is no call, and was received", n)
		}
		again := w.Options.RetryLost && policy.ReadOnlyMethod(p.Method)
		if (runs > 1 || sends > 1) && !again {
			w.fault("%s %d was received %d times and ran %d times", p.Method, n, sends, runs)
		}
	}
	if connect != nil {
		if len(w.ended) > 1 {
			w.fault("Connect failed, and %v were reported", w.ended)
		}
		return
	}
	if got := w.c.State(); got != fsm.Closed {
		w.fault("it is %s", got)
	}
	if s := w.c.Stats(); s.IllegalEvents > 0 || s.CallbackPanics > 0 || s.Malformed > 0 {
		w.fault("counted: %+v", s)
	}
	for gen := range w.m.lives {
		if !w.ended[uint64(gen+1)] {
			w.fault("the end of generation %d was not reported", gen+1)
		}
	}
}
