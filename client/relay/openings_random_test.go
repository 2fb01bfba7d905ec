package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// conduct is how one life of the server and its transport behave.
type conduct struct {
	stillborn bool                     // it ends before it is ready
	fates     map[string]string        // what becomes of a request, by method; else an answer
	times     map[string]time.Duration // until what comes, or around what is done
}

// deed is one thing that the host does, or that befalls the server.
type deed struct {
	after  time.Duration
	what   string
	of     int  // which request a cancel is about, among those that were made
	settle bool // let all that follows come about first
}

// plot is all that is random about openings.
type plot struct {
	shape        transports.Shape
	lives        []conduct // those after them do all at once
	deeds        []deed
	never, leave bool // the budget allows no restart; the host leaves right behind its last deed
	pauses       bool // over HTTP: what the host says behind its initialized, a cancel too, waits for that
}

// asks are the requests that a host makes, and their params.
var asks = map[string]struct{ method, params string }{
	"initialize": {"initialize", `,"protocolVersion":"2025-11-25","capabilities":{}`},
	"probe":      {"server/discover", ""}, "modern probe": {"server/discover", "," + modernMeta},
	"read": {"tools/list", ""}, "modern read": {"tools/list", "," + modernMeta},
	"ping": {"ping", ""},
}

// oneIn is true once in n times.
func oneIn(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

func drawPlot(t *rapid.T) plot {
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 5, 50, 300, 1000, 3000}).Draw(t, "ms")) * time.Millisecond
	})
	p := plot{never: oneIn(t, 6, "never"), leave: oneIn(t, 6, "leave"), deeds: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
		what := rapid.SampledFrom([]string{"initialize", "initialize", "probe", "modern probe", "read", "modern read", "ping", "initialized", "cancel", "cancel", "kill"})
		return deed{duration.Draw(t, "after"), what.Draw(t, "what"), rapid.IntRange(0, 5).Draw(t, "of"), rapid.Bool().Draw(t, "settle")}
	}), 1, 9).Draw(t, "deeds")}
	openings := []string{"answer", "answer", "answer", "refuse", "ignore", "die", "answer and die", "late", "late"}
	if oneIn(t, 4, "posts") {
		p.shape = transports.Posts
		openings = []string{"answer", "answer", "refuse", "ignore", "die", "unsent", "unsent", "reject", "break", "late"}
		p.pauses = slices.ContainsFunc(p.deeds, func(d deed) bool { return d.what == "initialized" })
	}
	fates := map[string][]string{"initialize": openings, "server/discover": openings, "tools/list": {"answer", "answer", "ignore", "die", "late"}}
	p.lives = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) conduct {
		c := conduct{stillborn: oneIn(t, 30, "stillborn"), fates: map[string]string{}, times: map[string]time.Duration{}}
		for _, method := range []string{"initialize", "server/discover", "tools/list"} {
			c.fates[method] = rapid.SampledFrom(fates[method]).Draw(t, method)
		}
		c.times["its end"] = rapid.SampledFrom([]time.Duration{0, 0, 0, 1, 2, 50, 51, 300, 1000, 1001, 5000, 30000}).Draw(t, "its end") * time.Millisecond
		for _, what := range []string{"before initialize", "after initialize", "before server/discover", "after server/discover", "ready", "linger", "late", "read"} {
			c.times[what] = duration.Draw(t, what)
			switch around := strings.Contains(what, " "); { // Send
			case around && p.pauses: // the relay holds a mutex meanwhile, which fake time does not wait for
				c.times[what] = 0
			case around && p.shape == transports.Posts: // or a try to reach the server would outlast its time
				c.times[what] = min(c.times[what], 300*time.Millisecond)
			}
		}
		return c
	}), 1, 4).Draw(t, "lives")
	return p
}

// Whatever openings a host makes, takes back and makes again, of servers that die at any
// moment behind transports that take their time, the rules hold.
func TestRandomOpenings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &stage{plot: drawPlot(rt), asked: map[string]wireMessage{}, heard: map[string]int{}, cancelled: map[string]time.Time{}}
		var err error
		synctest.Test(t, func(t *testing.T) { err = s.perform(t) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// stage is a plot under way and all that came of it.
type stage struct {
	plot
	began time.Time

	mu        sync.Mutex
	kill      func() // the life that began last
	sends     []sending
	reads     []*reading
	told      []*reading // cancels of what their life had not read
	ids       []string   // of the host's requests, as they were made
	asked     map[string]wireMessage
	heard     map[string]int // how many answers a request had
	cancelled map[string]time.Time
	errs      []error
	log       []string

	answered, agreed    bool                                       // a server has answered what opens; the host has heard it
	word, drifts        bool                                       // the host has made a modern request and is taken at its word; a server has refused a replay
	deaths, early, late int                                        // all, those before such an answer, and those after the host heard it
	last                struct{ answered, agreed, stillborn bool } // how the last death found it
}

// sending is one call of Send. What happens to a request while it runs may come before
// the request or behind it.
type sending struct {
	life     int
	original string
	from, to time.Time
}

// reading is one message that a life of the server has read.
type reading struct {
	life int
	message
	original string // the host's request that it is, or a replay of, or a cancel of
	probe    bool   // it is a probe, and nothing can have been agreed on yet
	held     bool   // the life goes on and has not said anything of it
}

// original is the id of the host's request that a message with such params is, or is a
// replay of, or a cancel of.
func original(params []byte) string {
	var p struct{ Original, RequestID json.RawMessage }
	_ = json.Unmarshal(params, &p)
	return string(p.Original) + string(p.RequestID)
}

// opens reports whether a result in answer to a request says that a server serves.
func opens(method string, params []byte) bool {
	return method != "ping" && (method != "server/discover" || strings.Contains(string(params), "_meta"))
}

// note writes down what happens. mu is held.
func (s *stage) note(format string, args ...any) {
	s.log = append(s.log, time.Since(s.began).String()+" "+fmt.Sprintf(format, args...))
}

// fail notes that a rule is broken. mu is held.
func (s *stage) fail(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
	s.note("BROKEN: "+format, args...)
}

// cast gives a transport its life and its slowness, and notes when it is to send what.
func (s *stage) cast(gen int, t *slow) {
	var c conduct
	if gen <= len(s.lives) {
		c = s.lives[gen-1]
	}
	t.Transport, t.ready, t.linger = memory.New(s.shape, s.life(gen, c)), c.times["ready"], c.times["linger"]
	if c.stillborn {
		t.Transport = stillborn{t.Transport, func() error { return s.ends(gen, true, errors.New("stillborn")) }}
	}
	t.after = func(out transports.Outbound) time.Duration { return c.times["after "+out.Method] }
	t.before = func(out transports.Outbound) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		now, before := time.Now(), c.times["before "+out.Method]
		s.sends = append(s.sends, sending{gen, original(parse(out.Frame).Params), now, now.Add(before + t.after(out))})
		return before
	}
}

// stillborn is a transport that ends before it is ready.
type stillborn struct {
	transports.Transport
	end func() error
}

func (b stillborn) Serve(context.Context, func(transports.Event)) error { return b.end() }

// ends notes the end of a life, and returns its cause.
func (s *stage) ends(gen int, stillborn bool, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("life %d ends: %v", gen, cause)
	s.deaths, s.early, s.late = s.deaths+1, s.early+one(!s.answered), s.late+one(s.agreed)
	s.last.answered, s.last.agreed, s.last.stillborn = s.answered, s.agreed, stillborn
	for _, x := range s.reads {
		x.held = x.held && x.life != gen
	}
	return cause
}

// life is one life of the server.
func (s *stage) life(gen int, c conduct) memory.Peer {
	return func(ctx context.Context, conn *memory.Conn) error {
		ctx, stop := context.WithCancelCause(ctx)
		s.mu.Lock()
		s.note("life %d begins", gen)
		s.kill = func() { stop(errors.New("killed")) }
		s.mu.Unlock()
		if d := c.times["its end"]; d > 0 {
			defer time.AfterFunc(d, func() { stop(errors.New("it was its time")) }).Stop()
		}
		var pending sync.WaitGroup
		v := &server{shape: s.shape, on: func(l *life, m message) error {
			r, fate := s.takes(gen, m), c.fates[m.Method]
			switch {
			case m.ID == nil, fate == "ignore", fate == "die":
			case fate == "late":
				pending.Go(func() {
					select {
					case <-time.After(c.times["late"]):
						s.treat(l, r, "answer")
					case <-ctx.Done():
					}
				})
			default:
				s.treat(l, r, fate)
			}
			if strings.HasSuffix(fate, "die") {
				return errors.New("it read " + m.Method)
			}
			time.Sleep(c.times["read"])
			return nil
		}}
		err := v.serve(ctx, conn)
		stop(nil)
		pending.Wait()
		return s.ends(gen, false, err)
	}
}

// treat lets a server say of a request what its fate is.
func (s *stage) treat(l *life, r *reading, fate string) {
	s.mu.Lock()
	s.note("life %d: to %s, %s", r.life, r.ID, fate)
	events := map[string]transports.Event{
		"unsent": transports.Unsent{Ref: r.ref, Cause: errors.New("connection refused")},
		"reject": transports.Rejected{Ref: r.ref, Status: 500}, "break": transports.Broken{Ref: r.ref, Cause: errors.New("reset")},
	}
	ev, fails := events[fate]
	r.held = false
	s.answered = s.answered || !fails && (s.word || fate != "refuse" && opens(r.Method, r.Params))
	s.drifts = s.drifts || fate == "refuse" && string(r.ID) != r.original
	s.mu.Unlock()
	switch {
	case fails:
		l.Emit(ev)
	case fate == "refuse":
		l.Write(r.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, r.ID))
	default:
		l.Write(r.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, r.ID))
	}
}

// takes notes what a server reads, and checks it against all who have read it and against
// what the host wants of it.
func (s *stage) takes(gen int, m message) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("life %d reads %s", gen, m.frame)
	r := &reading{gen, m, original(m.Params), m.Method == "server/discover" && !s.answered && !s.word, true}
	at, gone := s.cancelled[r.original]
	same := func(x *reading) bool { return x.life == gen && string(x.ID) == r.original && x.Method != "initialize" }
	switch {
	case m.Method == "notifications/cancelled" && !slices.ContainsFunc(s.reads, same):
		s.told = append(s.told, r)
	case string(m.ID) == r.original && gone && m.Method != "initialize" && time.Now().After(at) && !s.pauses && !s.sending(r):
		s.fail("life %d reads %s, which was cancelled", gen, r.original)
	}
	for _, x := range s.reads {
		switch {
		case string(x.ID) != r.original || string(m.ID) != r.original: // it is a replay, or was renamed over HTTP
		case x.life == gen && s.shape == transports.Pipe:
			s.fail("life %d reads %s twice", gen, m.ID)
		case x.life != gen && x.held:
			s.fail("life %d reads %s, which life %d has", gen, m.ID, x.life)
		case x.life != gen && x.probe && s.shape == transports.Pipe:
			s.fail("life %d reads the probe %s, which life %d had", gen, m.ID, x.life)
		}
	}
	if m.ID != nil {
		s.reads = append(s.reads, r)
	}
	return r
}

// sending reports whether a request was being sent to a life when the host cancelled it.
// mu is held.
func (s *stage) sending(r *reading) bool {
	at := s.cancelled[r.original]
	return slices.ContainsFunc(s.sends, func(x sending) bool {
		return x.life == r.life && x.original == r.original && !at.Before(x.from) && !at.After(x.to)
	})
}

// hears notes what the host hears and checks it.
func (s *stage) hears(frame []byte) {
	m := parse(frame)
	id := string(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("the host hears %s", frame)
	if m.Method != "" {
		return
	}
	asked, ok := s.asked[id]
	at, gone := s.cancelled[id]
	s.heard[id]++
	s.agreed = s.agreed || m.Result != nil && opens(asked.Method, asked.Params)
	unread := strings.Contains(m.frame, `"outcome":"not executed"`) && s.shape == transports.Pipe
	switch {
	case !ok:
		s.fail("nobody asked %s", id)
	case s.heard[id] > 1:
		s.fail("%s is answered twice", id)
	case gone && asked.Method != "initialize" && time.Now().After(at) && !s.pauses:
		s.fail("%s was cancelled and is answered", id)
	case strings.Contains(m.frame, "too many requests wait"):
		s.fail("nothing like that is so of %s", id)
	case unread && slices.ContainsFunc(s.reads, func(x *reading) bool { return string(x.ID) == id }):
		s.fail("%s was read and is said not to be", id)
	}
}

// perform plays the plot and returns which rules were broken.
func (s *stage) perform(t *testing.T) error {
	s.began = time.Now()
	cfg := relay.Config{Budget: after(t, 300*time.Millisecond), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if s.never {
		cfg.Budget = policy.Never()
	}
	r, err := relay.New(slowed(memory.Factory(s.shape, "scripted", nil), s.cast), s.hears, &cfg)
	if err != nil {
		return err
	}
	for _, d := range s.deeds {
		time.Sleep(d.after)
		if frame := s.does(d); frame != "" {
			r.FromHost([]byte(frame))
		}
		if d.settle {
			sleep(1)
		}
	}
	if !s.leave {
		sleep(20 * time.Minute)
		s.owes(true)
		s.endsByTheRules(r)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	err = r.Close(ctx)
	synctest.Wait()
	s.owes(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.told { // over HTTP nobody knows what was read: each message is an exchange of its own
		if s.shape == transports.Pipe && !s.sending(c) {
			s.fail("life %d reads a cancel of %s, which it has not read", c.life, c.original)
		}
	}
	if err = errors.Join(append(s.errs, err)...); err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s, never restarted: %v\n%s", err, s.shape, s.never, strings.Join(s.log, "\n"))
}

// does has the plot go on, and returns what the host says.
func (s *stage) does(d deed) (frame string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprint(len(s.ids))
	switch ask, request := asks[d.what]; {
	case request:
		frame = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"original":%s%s}}`, id, ask.method, id, ask.params)
		s.ids, s.asked[id] = append(s.ids, id), parse([]byte(frame))
		s.word = s.word || d.what == "modern read"
	case d.what == "initialized":
		frame = initialized
	case d.what == "kill" && s.kill != nil:
		s.kill()
	case d.what == "cancel":
		c, ok := pick(s.ids, d.of)
		if _, gone := s.cancelled[c]; ok && !gone && s.heard[c] == 0 {
			frame, s.cancelled[c] = cancelOf(c), time.Now()
		}
	}
	s.note("the host (%s) says %s", d.what, frame)
	return frame
}

// owes checks that each request has its answer, unless the host cancelled it or, while
// the relay runs, a live server has it.
func (s *stage) owes(running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.ids {
		_, gone := s.cancelled[id]
		held := running && slices.ContainsFunc(s.reads, func(x *reading) bool { return x.original == id && x.held })
		if s.heard[id] == 0 && !held && (!gone || s.asked[id].Method == "initialize") {
			s.fail("%s has no answer", id)
		}
	}
}

// endsByTheRules checks that the relay has ended if, and only if, a rule says so.
func (s *stage) endsByTheRules(r *relay.Relay) {
	over, pipe := r.State().Terminal(), s.shape == transports.Pipe
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case over && s.drifts && errors.As(r.Err(), new(*relay.DriftError)):
	case over && s.never && (s.last.answered || s.word && !pipe):
	case over && !s.last.agreed && (s.deaths > 1 || s.last.stillborn):
	case over:
		s.fail("it ended after %d deaths: %v", s.deaths, r.Err())
	case pipe && (s.early > 1 || s.never && s.late > 0):
		s.fail("it goes on after %d deaths", s.deaths)
	}
}
