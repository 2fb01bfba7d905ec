package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

// sailor runs a storm and writes down what must not happen.
type sailor struct {
	storm
	web  *web
	c    *client.Client
	down bool
	next int // of Weather

	mu      sync.Mutex
	faults  []string
	runs    map[int]int // by call
	posts   map[int]int // of those, what was written
	ends    map[int]end
	written map[string]bool
	lives   map[*string]*lifeOf
	closed  bool
	waiting sync.WaitGroup
	errors  bytes.Buffer // what was logged
	open    []*client.Subscription
	calls   int
}

// end is how a call ended.
type end struct {
	method, result string
	err            error
}

// lifeOf is what came by one transport.
type lifeOf struct {
	began       time.Duration
	initializes int
	accepted    bool
	opens       []time.Duration
}

func newSailor(s storm) *sailor {
	return &sailor{
		storm: s, runs: map[int]int{}, posts: map[int]int{}, ends: map[int]end{},
		written: map[string]bool{}, lives: map[*string]*lifeOf{},
	}
}

func (s *sailor) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

var bubbleBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *sailor) run() []string {
	s.web = &web{legacy: s.Legacy, bare: s.Bare, open: s.Stream, capabilities: `{"resources":{"subscribe":true}}`}
	s.web.becomes(s.log(func(*exchange) bool { return false }))
	c, err := client.Connect(context.Background(), s.web.factory(), &client.Config{
		Logger: slog.New(slog.NewTextHandler(&s.errors, &slog.HandlerOptions{Level: slog.LevelError})), RetryLost: s.Options.RetryLost, WaitForReady: s.Options.WaitForReady,
		RequestTimeout: s.Options.Timeout, MaxHeld: s.Options.MaxHeld,
	})
	if err != nil {
		return []string{"Connect: " + err.Error()}
	}
	s.c = c
	_ = c.Call(context.Background(), "tools/list", nil, nil)
	s.web.becomes(s.log(s.blow))
	for _, g := range s.Gusts {
		s.step(g)
	}
	s.calm()
	s.reckon()
	return s.faults
}

func (s *sailor) step(g gust) {
	switch g.Do {
	case "call":
		s.call(g)
	case "pass":
		pass(g.For)
	case "forget":
		s.web.forget()
	case "down", "up":
		s.web.become(func(*web) { s.down = g.Do == "down" })
	case "cut stream":
		s.web.mu.Lock()
		var last *exchange
		if n := len(s.web.gets); n > 0 {
			last = s.web.gets[n-1]
		}
		s.web.mu.Unlock()
		if last != nil {
			last.cut("g1")
		}
	case "listen":
		if l, err := s.c.Listen(context.Background(), client.Filter{Tools: true, URIs: []string{"a"}}, func(client.Notification) {}); err == nil {
			s.mu.Lock()
			s.open = append(s.open, l)
			s.mu.Unlock()
		}
	case "unlisten":
		if n := len(s.open); n > 0 {
			s.open[g.Which%n].Close()
		}
	case "list":
		s.waiting.Go(func() { _ = s.c.Call(context.Background(), "tools/list", nil, nil) })
	case "notify":
		s.waiting.Go(func() { _ = s.c.Notify(context.Background(), "notifications/roots/list_changed", nil) })
	case "change era":
		if g.Which == 0 {
			s.web.become(func(w *web) { w.legacy, w.knows = !w.legacy, nil })
		}
	case "close":
		if g.Which == 0 && g.Wait == client.WaitNever { // not too often
			s.close()
		}
	}
}

func (s *sailor) close() {
	s.closed = true
	began := time.Now()
	_ = s.c.Close(context.Background())
	if d := time.Since(began); d > client.DefaultDrainTimeout+time.Second {
		s.fault("Close took %s", d)
	}
	at := len(s.web.exchanges())
	pass(time.Hour)
	if more := s.web.took(); len(more) > 0 {
		s.fault("after Close and %d exchanges came %v", at, more)
	}
}

// call makes one call and checks how it ends. The server knows it by its number.
func (s *sailor) call(g gust) {
	s.calls++
	n, method, name := s.calls, g.Method, g.Method
	if g.Method == "pay" || g.Method == "look" {
		method = "tools/call"
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if g.Patient > 0 {
		ctx, cancel = context.WithTimeout(ctx, g.Patient)
	}
	s.waiting.Go(func() {
		defer cancel()
		r, err := s.c.Do(ctx, client.Request{
			Method: method, Params: json.RawMessage(fmt.Sprintf(`{"name":%q,"uri":"x","arguments":{"n":%d}}`, name, n)),
			Wait: g.Wait, RequestTimeout: g.Timeout,
		})
		s.ended(n, g, string(r.Result), err)
	})
	if g.Which > 2 {
		synctest.Wait()
	}
}

func (s *sailor) ended(n int, g gust, result string, err error) {
	if outcome := client.OutcomeOf(err); outcome == client.Answered && err != nil && !is[client.PeerError](err) {
		s.fault("call %d was answered: %v", n, err)
	}
	s.mu.Lock()
	s.ends[n] = end{g.Method, result, err}
	s.mu.Unlock()
	if lost := new(client.LostError); err != nil && !errors.As(err, &lost) && !is[client.PeerError](err) {
		s.fault("call %d ended in no documented way: %v", n, err)
	}
}

// reckon checks, when all is over, what became of each call.
func (s *sailor) reckon() {
	for n := range s.calls {
		n++
		got, runs, posts := s.ends[n], s.runs[n], s.posts[n]
		switch outcome := client.OutcomeOf(got.err); {
		case got.err == nil && (got.result != fmt.Sprintf(`{"n":%d}`, n) || runs == 0):
			s.fault("call %d was answered %s after %d runs", n, got.result, runs)
		case outcome == client.NotExecuted && runs > 0:
			s.fault("call %d ran %d times and was not executed: %v", n, runs, got.err)
		}
		switch {
		case got.method != "look" && got.method != "resources/read" && runs > 1:
			s.fault("call %d of %s ran %d times", n, got.method, runs)
		case got.method == "resources/read" && s.Options.RetryLost: // each session that goes may take a run along
		case runs > 2 || posts > 3:
			s.fault("call %d ran %d times and was written %d times", n, runs, posts)
		}
	}
}

// number is which call an exchange is of; 0: none.
func number(x *exchange) int {
	var p struct {
		Arguments struct {
			N int `json:"n"`
		} `json:"arguments"`
	}
	_ = json.Unmarshal([]byte(x.params()), &p)
	return p.Arguments.N
}

// log looks at each exchange before the weather does.
func (s *sailor) log(then func(x *exchange) bool) func(x *exchange) bool {
	return func(x *exchange) bool {
		s.mu.Lock()
		now := time.Since(bubbleBegan)
		l := s.lives[x.issued]
		if l == nil {
			l = &lifeOf{began: now}
			s.lives[x.issued] = l
		}
		var wrong []string
		for _, other := range s.lives {
			if other.began > l.began && now > other.began && x.Op == transports.OpMessage {
				wrong = append(wrong, fmt.Sprintf("%s went to a session that was replaced %s ago", x, now-other.began))
			}
		}
		switch {
		case x.Method == "initialize":
			if l.initializes++; l.initializes > 1 {
				wrong = append(wrong, "a second initialize on one session")
			}
		case x.Method == "notifications/initialized":
			l.accepted = true
		case x.Method == "server/discover":
		case x.Header.Get("Mcp-Protocol-Version") != "2026-07-28" && !l.accepted:
			wrong = append(wrong, fmt.Sprintf("%s before initialized", x))
		}
		if x.Op == transports.OpListen || x.Method == listenMethod && len(s.open) < 2 {
			l.opens = append(l.opens, now)
			if n := len(l.opens); n > 6 && l.opens[n-1]-l.opens[n-7] < 2*time.Second {
				wrong = append(wrong, fmt.Sprintf("%s was opened at %v", x, l.opens[n-7:]))
			}
		}
		s.faults = append(s.faults, wrong...)
		s.mu.Unlock()
		return then(x)
	}
}

// arrives notes a message of which something was written.
func (s *sailor) arrives(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.Op != transports.OpMessage || x.ID == "" {
		return
	}
	if s.written[x.ID] {
		s.faults = append(s.faults, fmt.Sprintf("id %s of %s was used before", x.ID, x))
	}
	s.written[x.ID] = true
	s.posts[number(x)]++
}

// executes runs a call.
func (s *sailor) executes(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.Op == transports.OpMessage {
		s.runs[number(x)]++
	}
}

// mine answers a call with its number.
func (s *sailor) mine(x *exchange) {
	if n := number(x); n > 0 {
		x.result(fmt.Sprintf(`{"n":%d}`, n))
		return
	}
	x.answer()
}

// blow decides what becomes of an exchange.
func (s *sailor) blow(x *exchange) bool {
	w := s.web
	knows := w.knowsIt(x.session)
	w.mu.Lock()
	what := s.Weather[s.next%len(s.Weather)]
	s.next++
	down, legacy := s.down, w.legacy
	w.mu.Unlock()
	if down {
		what = noConnection
	}
	if what == noConnection && x.Op == transports.OpMessage && x.ID == "" {
		what = fair // the memory transport has said already that it was sent
	}
	if what == noConnection {
		x.unsent()
		return true
	}
	s.arrives(x)
	if x.Op == transports.OpResume {
		return s.blowResume(x, what)
	}
	if n := number(x); n == 0 {
		return s.blowOther(x, what)
	}
	if x.refused(legacy, knows) { // by the era that it had when the weather was made: it may change meanwhile
		return true
	}
	after := func(do func()) { time.AfterFunc(3*time.Second, do) }
	switch what {
	case fair:
		s.executes(x)
		s.mine(x)
	case late:
		s.executes(x)
		after(func() { s.mine(x) })
	case refused, lateRefused:
		if x.session == "" {
			x.reject(503, "")
			return true
		}
		w.forget()
		if what == refused {
			x.reject(404, "")
			return true
		}
		after(func() { x.reject(404, "") })
	case suspected:
		x.reject(400, orphan)
	case busy:
		x.reject(503, "")
	case cutBefore:
		x.cut("")
	case cutAfter, cutResumable, lateCut:
		s.executes(x)
		id := map[bool]string{true: fmt.Sprintf("e%d", number(x))}[what == cutResumable]
		if what == lateCut {
			after(func() { x.cut(id) })
			return true
		}
		x.cut(id)
	case mute:
		s.executes(x)
	case wrongID:
		s.executes(x)
		x.Write(x.Ref, `{"jsonrpc":"2.0","id":"whose?","result":{"n":-1}}`)
		x.cut("")
	case anError:
		s.executes(x)
		x.fail(-32603, "it failed", "")
	case failed400:
		s.executes(x)
		x.reject(400, x.error(-32603, "it failed", ""))
	}
	return true
}

// blowResume answers a GET with a Last-Event-ID: the rest of a stream is the answer.
func (s *sailor) blowResume(x *exchange, what weather) bool {
	switch what {
	case fair, late:
		x.result(fmt.Sprintf(`{"n":%s}`, strings.TrimPrefix(x.LastID, "e")))
	case refused, lateRefused, suspected:
		x.reject(404, "")
	case busy:
		x.reject(503, "")
	case mute:
	default:
		x.cut(x.LastID)
	}
	return true
}

// blowOther is the weather of everything that is no call.
func (s *sailor) blowOther(x *exchange, what weather) bool {
	if x.ID == "" && x.Op == transports.OpMessage {
		return false
	}
	switch what {
	case busy:
		x.reject(503, "")
	case cutBefore, cutAfter, wrongID:
		x.cut("")
	case cutResumable, lateCut:
		x.cut("s1")
	case suspected:
		if x.Method == "server/discover" || x.Method == "initialize" || x.Op == transports.OpListen {
			return false
		}
		x.reject(400, orphan)
	case mute:
		return !slices.Contains([]string{"initialize", "server/discover"}, x.Method) // or it takes two minutes
	default:
		return false
	}
	return true
}

// calm ends the storm: everybody gets an answer, and the next call finds a server.
func (s *sailor) calm() {
	s.web.become(func(*web) { s.down = false })
	s.web.becomes(s.log(func(x *exchange) bool {
		s.arrives(x)
		if n := number(x); n > 0 && x.Op == transports.OpMessage {
			knows := s.web.knowsIt(x.session)
			s.web.mu.Lock()
			legacy := s.web.legacy
			s.web.mu.Unlock()
			if !x.refused(legacy, knows) {
				s.executes(x)
				s.mine(x)
			}
			return true
		}
		return x.Op == transports.OpResume && s.blowResume(x, fair)
	}))
	all := make(chan struct{})
	go func() {
		s.waiting.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(30 * time.Minute):
		s.fault("calls were left without an answer")
	}
	if !s.closed {
		if _, err := s.c.Do(context.Background(), client.Request{Method: "ping", Wait: client.WaitReady, RequestTimeout: time.Minute}); err != nil && !is[client.PeerError](err) {
			s.fault("after the storm: %v", err)
		}
		s.close()
	}
	<-all
	for _, l := range s.open {
		if err := l.Wait(context.Background()); err != nil && !errors.Is(err, client.ErrClosed) && !is[client.PeerError](err) && !is[client.HTTPError](err) {
			s.fault("a subscription ended so: %v", err)
		}
	}
	if stats := s.c.Stats(); stats.IllegalEvents != 0 || stats.CallbackPanics != 0 {
		s.fault("%+v: %s", stats, &s.errors)
	}
}
