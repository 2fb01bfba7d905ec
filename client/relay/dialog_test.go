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

// move is one thing that a host, a server or the world does in a dialog. n picks
// what it is about, among what there is.
type move struct {
	what string
	n    int
}

var moves = []string{
	"read", "read", "call", "call", "vendor", "ping", "subscribe", "same id", "cancel", "cancel", "word", "dialog answer", "initialize",
	"answer", "answer", "answer", "answer twice", "progress", "late progress", "ask", "ask", "unask", "news",
	"kill", "kill", "moment", "second", "long", "slow",
}

func drawMoves() *rapid.Generator[[]move] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
		return move{rapid.SampledFrom(moves).Draw(t, "what"), rapid.IntRange(0, 7).Draw(t, "n")}
	}), 1, 60)
}

// Whatever host, server and world do, the rules hold that no other test's dialog
// would have thought of breaking.
func TestRelay_AnyDialogKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := drawMoves().Draw(rt, "moves")
		var err error
		synctest.Test(t, func(t *testing.T) { err = perform(t, script) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// theatre is a dialog under way and all that was said in it.
type theatre struct {
	host   *host
	nextID int

	mu      sync.Mutex
	slow    bool       // the next server does not answer its opening by itself
	lives   []*actress // of the server
	asked   map[string]wireMessage
	open    []string      // ids of the host's requests that were not answered yet
	dialogs []string      // ids of the server's requests that the host has not answered
	heard   []wireMessage // by the host
	late    map[string]bool
	asker   map[string]int // which life opened a dialog
	errs    []error
}

type actress struct {
	gen     int
	conn    *memory.Conn
	die     chan error
	dead    bool
	read    []wireMessage
	pending []wireMessage
	opening []wireMessage
	asks    map[string]bool // the dialogs that it opened, by its own id
	wrote   map[string]string
}

type wireMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Code int }
	frame  string
}

func parse(frame []byte) wireMessage {
	m := wireMessage{frame: string(frame)}
	_ = json.Unmarshal(frame, &m)
	return m
}

func (w *theatre) fail(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

// serve is one life of the server.
func (w *theatre) serve(ctx context.Context, c *memory.Conn) error {
	ctx, stop := context.WithCancelCause(ctx)
	a := &actress{conn: c, die: make(chan error, 1), asks: map[string]bool{}, wrote: map[string]string{}}
	w.mu.Lock()
	w.lives = append(w.lives, a)
	a.gen = len(w.lives)
	slow := w.slow
	w.slow = false
	w.mu.Unlock()
	done := make(chan struct{})
	defer func() {
		stop(nil)
		<-done
		w.mu.Lock()
		a.dead = true
		w.mu.Unlock()
	}()
	go func() {
		defer close(done)
		select {
		case err := <-a.die:
			stop(err)
		case <-ctx.Done():
		}
	}()
	for {
		out, err := c.Read(ctx)
		if err != nil {
			return err
		}
		m := parse(out.Frame)
		w.mu.Lock()
		w.reads(a, m)
		w.mu.Unlock()
		if m.Method == "initialize" && !slow {
			a.answer(m)
		}
	}
}

// reads notes what a server reads and checks it. mu is held.
func (w *theatre) reads(a *actress, m wireMessage) {
	a.read = append(a.read, m)
	switch {
	case m.Method == "initialize":
		a.opening = append(a.opening, m)
	case m.Method == "" && !a.asks[string(m.ID)]:
		w.fail("life %d reads an answer to what it did not ask: %s", a.gen, m.frame)
	case m.Method == "":
		delete(a.asks, string(m.ID))
	case m.Method == "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p)
		if !slices.ContainsFunc(a.read, func(x wireMessage) bool {
			return x.Method != "" && x.Method != "initialize" && string(x.ID) == string(p.ID)
		}) {
			w.fail("life %d reads a cancel of what it never read: %s", a.gen, m.frame)
		}
		a.pending = slices.DeleteFunc(a.pending, func(x wireMessage) bool { return string(x.ID) == string(p.ID) })
	case m.ID != nil:
		if m.Method == "tools/call" {
			for _, b := range w.lives {
				for _, x := range b.read[:len(b.read)-min(len(b.read), one(a == b))] {
					if x.frame == m.frame {
						w.fail("a tool was run by life %d and by life %d: %s", b.gen, a.gen, m.frame)
					}
				}
			}
		}
		if asked, ok := w.asked[string(m.ID)]; ok && asked.frame != m.frame {
			w.fail("life %d reads %s, and the host said %s", a.gen, m.frame, asked.frame)
		}
		a.pending = append(a.pending, m)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *actress) answer(m wireMessage) {
	result := fmt.Sprintf(`{"by":%d}`, a.gen)
	if m.Method == "initialize" {
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false}}}`
	}
	frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	a.conn.Write(0, frame)
}

// hears notes what the host hears and checks it.
func (w *theatre) hears(frame []byte) {
	m := parse(frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, m)
	id := string(m.ID)
	switch {
	case m.Method == "" && !slices.Contains(w.open, id):
		w.fail("the host hears an answer to nothing, or a second one: %s", frame)
	case m.Method == "":
		w.open = slices.DeleteFunc(w.open, func(x string) bool { return x == id })
		if w.late[id] {
			w.fail("the host cancelled it and hears: %s", frame)
		}
	case m.ID != nil:
		if slices.ContainsFunc(w.heard[:len(w.heard)-1], func(x wireMessage) bool { return x.Method != "" && string(x.ID) == id }) {
			w.fail("a dialog's id is used twice: %s", frame)
		}
		w.dialogs = append(w.dialogs, id)
		w.asker[id] = len(w.lives)
	case m.Method == "notifications/progress":
		var p struct {
			Token json.RawMessage `json:"progressToken"`
		}
		_ = json.Unmarshal(m.Params, &p)
		if !slices.Contains(w.open, string(p.Token)) {
			w.fail("the host hears of the progress of what is over: %s", frame)
		}
	case m.Method == "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p)
		if !slices.Contains(w.dialogs, string(p.ID)) {
			w.fail("the host hears a cancel of what nobody asks it: %s", frame)
		}
		w.dialogs = slices.DeleteFunc(w.dialogs, func(x string) bool { return x == string(p.ID) })
	}
}

func pick[T any](s []T, n int) (v T, ok bool) {
	if len(s) == 0 {
		return v, false
	}
	return s[n%len(s)], true
}

// live is the server that runs, or nil. mu is held.
func (w *theatre) live() *actress {
	if n := len(w.lives); n > 0 && !w.lives[n-1].dead {
		return w.lives[n-1]
	}
	return nil
}

func perform(t *testing.T, script []move) error {
	wait, err := policy.Tumbling(1000, 1000*time.Hour, policy.Constant(300*time.Millisecond))
	if err != nil {
		return err
	}
	w := &theatre{asked: map[string]wireMessage{}, late: map[string]bool{}, asker: map[string]int{}}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	r, err := relay.New(memory.Factory(transports.Pipe, "scripted", w.serve), w.hears, &relay.Config{Budget: wait, Logger: quiet})
	if err != nil {
		return err
	}
	w.host = &host{Relay: r}
	w.request("initialize", "first")
	synctest.Wait()
	r.FromHost([]byte(initialized))
	for _, m := range script {
		w.move(m)
		synctest.Wait()
	}
	w.mu.Lock()
	w.slow = false
	w.mu.Unlock()
	for range 4 { // whoever is asked answers, and what waits for a server gets one
		w.move(move{what: "long"})
		w.answerAll()
	}
	w.mu.Lock()
	for _, id := range w.open {
		if !w.late[id] {
			w.fail("never answered: %s", w.asked[id].frame)
		}
	}
	for _, id := range w.dialogs {
		if gen := w.asker[id]; gen < len(w.lives) || w.live() == nil {
			w.fail("the host still works for life %d of %d, on %s", gen, len(w.lives), id)
		}
	}
	w.mu.Unlock()
	if err := r.Close(context.Background()); err != nil {
		return err
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(append(w.errs, w.changes())...)
}

// changes checks that each recovery is told of once.
func (w *theatre) changes() error {
	n := 0
	for _, m := range w.heard {
		if m.Method == "notifications/tools/list_changed" && !strings.Contains(m.frame, "own") {
			n++
		}
		if strings.HasSuffix(m.Method, "list_changed") && !strings.Contains(m.Method, "tools") {
			return fmt.Errorf("nobody declared %s", m.frame)
		}
	}
	if n > len(w.lives)-1 {
		return fmt.Errorf("%d changes told of %d recoveries at most", n, len(w.lives)-1)
	}
	return nil
}

func (w *theatre) answerAll() {
	w.mu.Lock()
	a := w.live()
	if a == nil {
		w.mu.Unlock()
		return
	}
	all := append(a.opening, a.pending...)
	a.opening, a.pending = nil, nil
	w.mu.Unlock()
	for _, m := range all {
		a.answer(m)
	}
	synctest.Wait()
}

// request lets the host make a new request.
func (w *theatre) request(method, param string) {
	w.nextID++
	id := fmt.Sprint(w.nextID)
	if w.nextID%3 == 0 {
		id = fmt.Sprintf("%q", id)
	}
	frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{"progressToken":%s},"uri":%q}}`, id, method, id, param)
	w.mu.Lock()
	w.asked[id] = parse([]byte(frame))
	w.open = append(w.open, id)
	w.mu.Unlock()
	w.host.FromHost([]byte(frame))
}

func (w *theatre) move(m move) {
	switch m.what {
	case "read":
		w.request([]string{"tools/list", "resources/read", "prompts/get"}[m.n%3], "x")
	case "call":
		w.request("tools/call", "x")
	case "vendor":
		w.request("vendor/x", "x")
	case "ping":
		w.request("ping", "x")
	case "subscribe":
		w.request("resources/subscribe", fmt.Sprint(m.n%2))
	case "initialize":
		w.request("initialize", "again")
	case "moment":
		time.Sleep(100 * time.Millisecond)
	case "second":
		time.Sleep(time.Second)
	case "long":
		time.Sleep(25 * time.Second)
	case "same id", "cancel", "word", "dialog answer":
		w.hostMove(m)
	default:
		w.serverMove(m)
	}
}

func (w *theatre) hostMove(m move) {
	w.mu.Lock()
	id, open := pick(w.open, m.n)
	asked, d := w.asked[id], ""
	cancels := m.what == "cancel" && open && asked.Method != "initialize"
	if cancels {
		w.late[id] = true
	}
	if m.what == "dialog answer" {
		if d, _ = pick(w.dialogs, m.n); d != "" {
			w.dialogs = slices.DeleteFunc(w.dialogs, func(x string) bool { return x == d })
		}
	}
	w.mu.Unlock()
	switch {
	case m.what == "word":
		w.host.FromHost([]byte(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`))
	case m.what == "cancel" && open:
		w.host.FromHost([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`))
	case m.what == "cancel":
		w.host.FromHost([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody's"}}`))
	case m.what == "same id" && open && !w.late[id]:
		w.host.FromHost([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call"}`))
	case d != "":
		w.host.FromHost([]byte(`{"jsonrpc":"2.0","id":` + d + `,"result":{}}`))
	}
}

func (w *theatre) serverMove(m move) {
	w.mu.Lock()
	if m.what == "slow" {
		w.slow = true
		w.mu.Unlock()
		return
	}
	a := w.live()
	if a == nil {
		w.mu.Unlock()
		return
	}
	p, pending := pick(a.pending, m.n)
	if o, ok := pick(a.opening, 0); ok && m.what == "answer" {
		p, pending = o, true
		a.opening = a.opening[1:]
	}
	if strings.HasPrefix(m.what, "answer") {
		a.pending = slices.DeleteFunc(a.pending, func(x wireMessage) bool { return string(x.ID) == string(p.ID) })
	}
	own := fmt.Sprint(m.n % 3)
	asks := m.what == "ask" && !a.asks[own]
	if asks {
		a.asks[own] = true
	}
	unasks := m.what == "unask" && a.asks[own]
	if unasks {
		delete(a.asks, own)
	}
	w.mu.Unlock()
	switch {
	case m.what == "kill":
		a.die <- errors.New("killed")
	case m.what == "answer" && pending:
		a.answer(p)
	case m.what == "answer twice" && pending:
		a.answer(p)
		a.answer(p)
	case m.what == "progress" && pending:
		a.conn.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, p.ID))
	case m.what == "late progress":
		a.conn.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}`, m.n))
	case asks:
		a.conn.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"roots/list"}`, own))
	case unasks:
		a.conn.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, own))
	case m.what == "news":
		a.conn.Write(0, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"own":true}}`)
	}
}
