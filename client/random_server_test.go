package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

// fate is what becomes of one request at a server of the random walk.
type fate uint8

const (
	answers      fate = iota
	answersLate       // after a second
	naps              // reads nothing for two seconds, then answers
	answersTwice      // and to somebody unknown in between
	reports           // progress, then the answer
	refuses           // by an error, without running it
	swallows          // runs it and says nothing
	ignores           // says nothing and runs nothing
	diesUnrun         // having read it
	diesRun           // having run it
	diesAnswered      // having answered it
	fates
)

// birth is how an incarnation starts.
type birth uint8

const (
	isBorn      birth = iota
	stillborn         // it ends before it reads anything
	diesOpening       // it ends on the first request
	slowOpening       // the first answer takes a second
	refusesOpening
	births
)

// mortal is the server of the random walk, over all its lives. It keeps the books
// that its client is checked against.
type mortal struct {
	eras   []bool  // legacy or not, one life after the other; the last one stays
	births []birth // likewise, and then all are born well
	fates  []fate  // one request after the other, round and round

	mu       sync.Mutex
	lives    []*mortalLife
	alive    int
	most     int         // alive at once
	requests int         // for the fates
	runs     map[int]int // of each call, by the number in its params
	sends    map[int]int // how often each call was received
	seq      int         // of notifications
	sentBy   map[int]int // which generation sent which of them
	faults   []string    // of the client
}

type mortalLife struct {
	*memory.Conn
	m      *mortal
	gen    int
	legacy bool
	ctx    context.Context
	die    chan error
	first  bool
	had    map[string]bool // requests that it read
	mine   map[string]bool // and of them those that are not over
	asked  map[string]bool // for what: listen requests by id, or legacy resources
	open   []message       // listen requests that it granted
	subs   map[string]bool // legacy subscriptions
}

var errRandom = errors.New("died by chance")

func (m *mortal) factory() transports.Factory {
	m.runs, m.sends, m.sentBy = map[int]int{}, map[int]int{}, map[int]int{}
	return memory.Factory(transports.Pipe, "mortal", m.serve)
}

func at[T any](list []T, i int, after T) T {
	if i < len(list) {
		return list[i]
	}
	return after
}

func (m *mortal) serve(ctx context.Context, c *memory.Conn) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	m.mu.Lock()
	l := &mortalLife{
		Conn: c, m: m, gen: len(m.lives) + 1, ctx: ctx, die: make(chan error, 1), first: true,
		had: map[string]bool{}, asked: map[string]bool{}, mine: map[string]bool{}, subs: map[string]bool{},
	}
	l.legacy = at(m.eras, l.gen-1, m.eras[len(m.eras)-1])
	m.lives = append(m.lives, l)
	m.alive++
	m.most = max(m.most, m.alive)
	m.mu.Unlock()
	defer func() { m.mu.Lock(); m.alive--; m.mu.Unlock() }()
	killed := make(chan struct{})
	defer func() { stop(nil); <-killed }()
	go func() {
		defer close(killed)
		select {
		case err := <-l.die:
			stop(err)
		case <-ctx.Done():
		}
	}()
	if at(m.births, l.gen-1, isBorn) == stillborn {
		return errRandom
	}
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		var msg message
		if err := json.Unmarshal(out.Frame, &msg); err != nil {
			m.fault("it sent %q: %v", out.Frame, err)
			continue
		}
		if err := l.take(msg); err != nil {
			return err
		}
	}
}

func (m *mortal) fault(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lives) == 0 {
		return
	}
	select {
	case m.lives[len(m.lives)-1].die <- errRandom:
	default:
	}
}

func (l *mortalLife) send(format string, args ...any) { l.Write(0, fmt.Sprintf(format, args...)) }

func (l *mortalLife) result(msg message, result string) {
	l.m.mu.Lock()
	delete(l.mine, string(msg.ID))
	l.m.mu.Unlock()
	l.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, msg.ID, result)
}

func (l *mortalLife) fail(msg message, code int) {
	l.m.mu.Lock()
	delete(l.mine, string(msg.ID))
	l.m.mu.Unlock()
	l.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, msg.ID, code)
}

func (l *mortalLife) later(d time.Duration, f func()) {
	t := time.AfterFunc(d, f)
	context.AfterFunc(l.ctx, func() { t.Stop() })
}

// take reads one message of the client.
func (l *mortalLife) take(msg message) error {
	if len(msg.ID) == 0 || msg.Method == "" {
		return l.notified(msg)
	}
	l.m.mu.Lock()
	if l.mine[string(msg.ID)] {
		l.m.faults = append(l.m.faults, fmt.Sprintf("%s came under the id %s, which is not answered yet", msg.Method, msg.ID))
	}
	l.had[string(msg.ID)], l.mine[string(msg.ID)] = true, true
	first := l.first
	l.first = false
	l.m.mu.Unlock()
	if first {
		switch at(l.m.births, l.gen-1, isBorn) {
		case diesOpening:
			return errRandom
		case refusesOpening:
			l.fail(msg, -32021)
			return nil
		case slowOpening:
			time.Sleep(time.Second)
		}
	}
	switch msg.Method {
	case "server/discover", "initialize", "ping":
		l.opening(msg)
		return nil
	}
	l.m.mu.Lock()
	f := l.m.fates[l.m.requests%len(l.m.fates)]
	l.m.requests++
	l.m.mu.Unlock()
	switch msg.Method {
	case "subscriptions/listen", "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		return l.state(msg, f)
	}
	return l.call(msg, f)
}

// notified takes what wants no answer. A cancellation must name a request that
// this life has and has not answered.
func (l *mortalLife) notified(msg message) error {
	if msg.Method != "notifications/cancelled" {
		return nil
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(msg.Params, &p)
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if !l.had[string(p.ID)] {
		l.m.faults = append(l.m.faults, fmt.Sprintf("it cancelled %s, which life %d never had", p.ID, l.gen))
	}
	delete(l.mine, string(p.ID))
	for i, open := range l.open {
		if string(open.ID) == string(p.ID) {
			l.open = append(l.open[:i:i], l.open[i+1:]...)
			break
		}
	}
	return nil
}

func (l *mortalLife) opening(msg message) {
	switch {
	case msg.Method == "server/discover" && !l.legacy:
		l.result(msg, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	case msg.Method == "initialize" && l.legacy:
		l.result(msg, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}`)
	case msg.Method == "ping" && l.legacy:
		l.result(msg, `{}`)
	default:
		l.fail(msg, -32601)
	}
}

// state takes a request that the server is to remember.
func (l *mortalLife) state(msg message, f fate) error {
	var p struct{ URI string }
	_ = json.Unmarshal(msg.Params, &p)
	l.m.mu.Lock()
	l.asked[string(msg.ID)], l.asked[p.URI] = true, true
	l.m.mu.Unlock()
	switch f {
	case refuses:
		l.fail(msg, -32602)
		return nil
	case swallows, ignores:
		return nil
	case diesUnrun, diesRun:
		return errRandom
	}
	if msg.Method == "subscriptions/listen" {
		l.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%q:%s},"notifications":{"resourceSubscriptions":["a"]}}}`, subscriptionID, msg.ID)
		l.m.mu.Lock()
		l.open = append(l.open, msg)
		l.m.mu.Unlock()
		switch f { // the two graceful ends
		case reports:
			l.result(msg, `{}`)
		case answersTwice:
			l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, msg.ID)
		}
	} else {
		l.m.mu.Lock()
		l.subs[p.URI] = msg.Method == "resources/subscribe"
		l.m.mu.Unlock()
		l.result(msg, `{}`)
	}
	if f == diesAnswered {
		return errRandom
	}
	return nil
}

// call takes a call of the walk, which has a number.
func (l *mortalLife) call(msg message, f fate) error {
	var p struct{ N int }
	_ = json.Unmarshal(msg.Params, &p)
	l.m.mu.Lock()
	l.m.sends[p.N]++
	if f != refuses && f != ignores && f != diesUnrun {
		l.m.runs[p.N]++
	}
	l.m.mu.Unlock()
	answer := func() { l.result(msg, fmt.Sprintf(`{"n":%d}`, p.N)) }
	switch f {
	case answers:
		answer()
	case answersLate:
		l.later(time.Second, answer)
	case naps: // what comes meanwhile is queued, and never begun if it dies asleep
		select {
		case <-time.After(2 * time.Second):
			answer()
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	case answersTwice:
		answer()
		l.send(`{"jsonrpc":"2.0","id":"nobody's","result":{"n":-1}}`)
		l.send(`{"jsonrpc":"2.0","id":%s,"result":{"n":-1}}`, msg.ID)
	case reports:
		for i := range 3 {
			l.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%d"}}`, msg.ID, i, p.N)
		}
		answer()
	case refuses:
		l.fail(msg, -32602)
	case diesUnrun, diesRun:
		return errRandom
	case diesAnswered:
		answer()
		return errRandom
	}
	return nil
}

// announce sends one numbered notification to each subscriber.
func (m *mortal) announce() {
	m.mu.Lock()
	if len(m.lives) == 0 {
		m.mu.Unlock()
		return
	}
	l := m.lives[len(m.lives)-1]
	m.seq++
	seq, open := m.seq, append([]message(nil), l.open...)
	m.sentBy[seq] = l.gen
	m.mu.Unlock()
	if l.legacy {
		l.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a","seq":%d}}`, seq)
		return
	}
	for _, msg := range open {
		l.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a","seq":%d,"_meta":{%q:%s}}}`, seq, subscriptionID, msg.ID)
	}
}
