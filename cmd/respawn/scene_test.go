//go:build unix

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// patience bounds each wait of a test: far beyond what is waited for, so that it
// only passes when something is wrong.
const patience = 30 * time.Second

// builtDir is where built is, removed when all tests are over.
var builtDir string

// built is the command as its users get it, built once for all tests, with the
// race detector if the tests have it.
var built = sync.OnceValues(func() (_ string, err error) {
	if builtDir, err = os.MkdirTemp("", "respawn"); err != nil {
		return "", err
	}
	bin := filepath.Join(builtDir, "respawn")
	args := []string{"build", "-o", bin}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

// scene is a host, a shim and its servers, one after the other. When its test ends
// it checks what must hold of every dialog, see curtain.
type scene struct {
	t      *testing.T
	mark   string
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *words
	exited chan struct{}

	servers chan *actor
	lines   chan string

	mu    sync.Mutex
	asked []string // by the host
	heard []string // by the host
	taken []string // by all the servers
	gens  int
}

// direction changes how a scene begins.
type direction func(*scene)

// stage starts a shim with flags in front of puppets.
func stage(t *testing.T, flags string, directions ...direction) *scene {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return stageCommand(t, append(append([]string{"run"}, strings.Fields(flags)...), "--", self), directions...)
}

func stageCommand(t *testing.T, args []string, directions ...direction) *scene {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t: t, mark: rand.Text(), stderr: newWords(), exited: make(chan struct{}),
		servers: make(chan *actor, 64), lines: make(chan string, 1<<16),
	}
	s.cmd = exec.Command(bin, args...)
	s.cmd.Env = append(os.Environ(), markVar+"="+s.mark, puppetVar+"="+s.listen(), "GORACE=atexit_sleep_ms=0")
	s.cmd.Stderr = s.stderr
	theirs := s.pipes()
	for _, d := range directions {
		d(s)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // its state is looked at
	}()
	go s.listenToShim()
	t.Cleanup(s.curtain)
	return s
}

// pipes makes our ends of the shim's stdin and stdout, and returns the others.
func (s *scene) pipes() []*os.File {
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	s.stdin, s.stdout, s.cmd.Stdin, s.cmd.Stdout = inW, outR, inR, outW
	return []*os.File{inR, outW}
}

// listen accepts the puppets of this scene and returns where.
func (s *scene) listen() string {
	dir, err := os.MkdirTemp("", "r") // a socket's path is short
	if err != nil {
		s.t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		l.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.enter(conn)
		}
	}()
	return socket
}

func (s *scene) listenToShim() {
	defer close(s.lines)
	in := bufio.NewReaderSize(s.stdout, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if len(line) > 0 {
			s.mu.Lock()
			s.heard = append(s.heard, line)
			s.mu.Unlock()
			s.lines <- strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			return
		}
	}
}

// say is the host's word to the shim, a line each.
func (s *scene) say(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		s.mu.Lock()
		s.asked = append(s.asked, line)
		s.mu.Unlock()
		if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
			s.t.Fatalf("the host can't say %.200s: %v", line, err)
		}
	}
}

// hear returns the next line that the host hears.
func (s *scene) hear() string {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatalf("the shim says nothing any more; stderr:\n%s", s.stderr)
		}
		return line
	case <-time.After(patience):
		s.t.Fatalf("the host hears nothing; stderr:\n%s", s.stderr)
	}
	return ""
}

// hears checks the next lines that the host hears.
func (s *scene) hears(want ...string) {
	s.t.Helper()
	var got []string
	for range want {
		got = append(got, s.hear())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Fatalf("the host hears (-want +got):\n%s", diff)
	}
}

// hearsInAnyOrder is hears for messages that nothing orders.
func (s *scene) hearsInAnyOrder(want ...string) {
	s.t.Helper()
	var got []string
	for range want {
		got = append(got, s.hear())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Fatalf("the host hears, in some order (-want +got):\n%s", diff)
	}
}

// next is the server that was started last.
func (s *scene) next() *actor {
	s.t.Helper()
	select {
	case a := <-s.servers:
		return a
	case <-time.After(patience):
		s.t.Fatalf("no server starts; stderr:\n%s", s.stderr)
	}
	return nil
}

// leave closes the shim's stdin, as a host does that is done.
func (s *scene) leave() { s.stdin.Close() }

// code waits for the shim's exit and returns its code.
func (s *scene) code() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("the shim does not end; stderr:\n%s", s.stderr)
	}
	if ws := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return -int(ws.Signal())
	}
	return s.cmd.ProcessState.ExitCode()
}

// ends lets the host leave and expects the exit code.
func (s *scene) ends(want int) {
	s.t.Helper()
	s.leave()
	if got := s.code(); got != want {
		s.t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, s.stderr)
	}
}

// curtain ends a scene and checks what must hold of every dialog: nothing but
// JSON-RPC messages on stdout, no answer to what was not asked, none twice, no
// dialog id twice, no tool run twice, and nobody left.
func (s *scene) curtain() {
	s.leave()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Errorf("the shim does not end; stderr:\n%s", s.stderr)
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	for range s.lines { // to its end
	}
	s.stdout.Close()
	if left := waitForNone(s.mark); len(left) > 0 {
		s.t.Errorf("processes are left: %v", left)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := map[string]int{}
	for _, line := range s.asked {
		for _, m := range messages(line) {
			if m.Method != "" && m.ID != nil {
				asked[string(m.ID)]++
			}
		}
	}
	dialogs := map[string]bool{}
	for _, line := range s.heard {
		var m wire
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &m) != nil || m.Version != "2.0" {
			s.t.Errorf("stdout is no protocol: %.300q", line)
			continue
		}
		id := string(m.ID)
		switch {
		case m.Method == "" && asked[id] == 0:
			s.t.Errorf("an answer to nothing, or a second one: %.300s", line)
		case m.Method == "":
			asked[id]--
		case m.ID != nil && dialogs[id]:
			s.t.Errorf("a dialog's id is used twice: %.300s", line)
		case m.ID != nil:
			dialogs[id] = true
		}
	}
	runs := map[string]bool{}
	for _, line := range s.taken {
		if m := messages(line); len(m) == 1 && m[0].Method == "tools/call" {
			if runs[string(m[0].ID)] {
				s.t.Errorf("a tool was run twice: %.300s", line)
			}
			runs[string(m[0].ID)] = true
		}
	}
}

// wire is a message as these tests read it.
type wire struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// messages reads a line that may be a batch; what is no message is left out.
func messages(line string) []wire {
	var one wire
	var many []wire
	switch {
	case json.Unmarshal([]byte(line), &many) == nil:
		return many
	case json.Unmarshal([]byte(line), &one) == nil:
		return []wire{one}
	}
	return nil
}

// actor is one life of the server.
type actor struct {
	s     *scene
	gen   int
	pid   int
	conn  net.Conn
	out   *gob.Encoder
	lines chan string
	eof   chan struct{}
	half  chan struct{}
	done  chan struct{} // holds a token for each order that it obeyed
	gone  chan struct{}
}

// enter takes a new puppet.
func (s *scene) enter(conn net.Conn) {
	in := gob.NewDecoder(bufio.NewReaderSize(conn, 1<<16))
	var hello report
	if in.Decode(&hello) != nil {
		return
	}
	s.mu.Lock()
	s.gens++
	a := &actor{
		s: s, gen: s.gens, pid: hello.PID, conn: conn, out: gob.NewEncoder(conn),
		lines: make(chan string, 1<<16), eof: make(chan struct{}), half: make(chan struct{}), done: make(chan struct{}, 64), gone: make(chan struct{}),
	}
	s.mu.Unlock()
	s.servers <- a
	go func() {
		defer close(a.lines)
		defer close(a.gone)
		for {
			var r report
			if in.Decode(&r) != nil {
				return
			}
			switch {
			case r.EOF:
				close(a.eof)
			case r.Half:
				close(a.half)
			case r.Done:
				a.done <- struct{}{}
			default:
				s.mu.Lock()
				s.taken = append(s.taken, string(r.Took))
				s.mu.Unlock()
				a.lines <- string(r.Took)
			}
		}
	}()
}

// take returns the next line that the server reads.
func (a *actor) take() string {
	a.s.t.Helper()
	select {
	case line, ok := <-a.lines:
		if !ok {
			a.s.t.Fatalf("server %d is gone; stderr:\n%s", a.gen, a.s.stderr)
		}
		return line
	case <-time.After(patience):
		a.s.t.Fatalf("server %d reads nothing; stderr:\n%s", a.gen, a.s.stderr)
	}
	return ""
}

// takes checks the next lines that the server reads.
func (a *actor) takes(want ...string) {
	a.s.t.Helper()
	var got []string
	for range want {
		got = append(got, a.take())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		a.s.t.Fatalf("server %d reads (-want +got):\n%s", a.gen, diff)
	}
}

// does makes the server obey, and waits until it has, or is gone because of it.
func (a *actor) does(o order) {
	a.s.t.Helper()
	if err := a.out.Encode(o); err != nil {
		a.s.t.Fatalf("server %d takes no order: %v", a.gen, err)
	}
	select {
	case <-a.done:
	case <-a.gone:
	case <-time.After(patience):
		a.s.t.Fatalf("server %d does not obey; stderr:\n%s", a.gen, a.s.stderr)
	}
}

// begins waits until a deaf server has the beginning of a line.
func (a *actor) begins() {
	a.s.t.Helper()
	select {
	case <-a.half:
	case <-time.After(patience):
		a.s.t.Fatalf("server %d is sent nothing; stderr:\n%s", a.gen, a.s.stderr)
	}
}

// says is the server's word, a line each.
func (a *actor) says(lines ...string) {
	a.s.t.Helper()
	a.does(order{Say: []byte(strings.Join(lines, "\n") + "\n")})
}

// exits ends the server by itself.
func (a *actor) exits(code int) {
	a.s.t.Helper()
	a.does(order{Exit: true, Code: code})
}

// dies kills the server, as the system or a user does.
func (a *actor) dies() {
	a.s.t.Helper()
	if err := syscall.Kill(a.pid, syscall.SIGKILL); err != nil {
		a.s.t.Fatal(err)
	}
}

// words collects what a process says on stderr.
type words struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newWords() *words { return &words{more: make(chan struct{}, 1)} }

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(b)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// until waits for words.
func (w *words) until(t *testing.T, want string) {
	t.Helper()
	late := time.After(patience)
	for !strings.Contains(w.String(), want) {
		select {
		case <-w.more:
		case <-late:
			t.Fatalf("stderr never says %q, but:\n%s", want, w)
		}
	}
}
