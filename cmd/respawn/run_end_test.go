//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endsWithin is what a host may count on, and what a test may take longer than that
// on a machine that does other things too.
const (
	endsWithin = 2 * time.Second
	busy       = time.Second
)

// timed runs an end of the shim and checks how long it took.
func (s *scene) timed(want int, least time.Duration, end func()) {
	s.t.Helper()
	from := time.Now()
	end()
	if got := s.code(); got != want {
		s.t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, s.stderr)
	}
	if took := time.Since(from); took > endsWithin+busy || took < least {
		s.t.Errorf("the end took %v, want %v to %v", took, least, endsWithin)
	}
	if left := waitForNone(s.mark); len(left) > 0 {
		s.t.Errorf("processes are left: %v", left)
	}
}

// signalled ends the shim by a signal.
func (s *scene) signalled(sig syscall.Signal) func() {
	return func() {
		if err := s.cmd.Process.Signal(sig); err != nil {
			s.t.Error(err)
		}
	}
}

func TestShutdown_AServerThatLeavesAtTheEndOfItsStdinIsWaitedForNoLonger(t *testing.T) {
	for name, end := range map[string]struct {
		code int
		how  func(*scene) func()
	}{
		"the host closes stdin": {exitOK, func(s *scene) func() { return s.leave }},
		"SIGTERM":               {exitSignal + 15, func(s *scene) func() { return s.signalled(syscall.SIGTERM) }},
		"SIGINT":                {exitSignal + 2, func(s *scene) func() { return s.signalled(syscall.SIGINT) }},
		"SIGHUP":                {exitSignal + 1, func(s *scene) func() { return s.signalled(syscall.SIGHUP) }},
		"stdout breaks": {exitOK, func(s *scene) func() {
			return func() {
				s.stdout.Close()
				s.say(request(`"p"`, "vendor/late", "{}"))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := opened(t, "")
			s.say(request("1", "tools/call", `{"name":"long"}`)) // it is not waited for
			a.take()
			if name == "stdout breaks" {
				go func() {
					<-a.lines
					_ = a.out.Encode(order{Say: []byte(result(`"p"`, "{}") + "\n" + toolsNews + "\n")})
				}()
			}
			s.timed(end.code, 0, end.how(s))
			select {
			case <-a.eof:
			case <-time.After(patience):
				t.Error("the server did not see the end of its stdin")
			}
		})
	}
}

func TestShutdown_AServerThatIgnoresEverythingIsGoneWithItsDescendantsInTwoSeconds(t *testing.T) {
	for name, end := range map[string]struct {
		code int
		how  func(*scene) func()
	}{
		"the host closes stdin": {exitOK, func(s *scene) func() { return s.leave }},
		"SIGTERM":               {exitSignal + 15, func(s *scene) func() { return s.signalled(syscall.SIGTERM) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := opened(t, "")
			a.does(order{Stubborn: true, Fork: true})
			// The KILL is at 1.5 s.
			s.timed(end.code, defaultStop, end.how(s))
		})
	}
}

func TestShutdown_TheStopTimeoutIsTheTimeToTheKill(t *testing.T) {
	s, a := opened(t, "-stop-timeout 300ms")
	a.does(order{Stubborn: true})
	s.timed(exitOK, 300*time.Millisecond, s.leave)
}

func TestShutdown_BeforeAnythingWasSaidAndWhileAReplacementStarts(t *testing.T) {
	s := stage(t, "")
	s.next()
	s.timed(exitOK, 0, s.leave)

	s, a := opened(t, "")
	a.dies()
	b := s.next()
	b.take() // the replay, which is not answered
	s.say(request("1", "tools/list", "{}"))
	s.timed(exitOK, 0, s.leave)
	s.hearsLost(lost{ID: "1", Code: -31003, Outcome: "not executed"})
}

// A signal that was ignored when the shim was started stays ignored (nohup).
func TestShutdown_AnIgnoredHangUpStaysIgnored(t *testing.T) {
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := stageCommand(t, []string{"run", os.Args[0]}, func(s *scene) {
		s.cmd.Path = "/bin/sh"
		s.cmd.Args = []string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", bin, "run", os.Args[0]}
	})
	s.next()
	s.signalled(syscall.SIGHUP)()
	s.say(hostInitialize) // it lives
	s.ends(exitOK)
}

func TestExitCode_WhatNeverStartedAndWhatIsNoCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, args string
		want       int
		says       string
	}{
		{"not found", "run /nowhere/server", 127, "/nowhere/server"},
		{"not in PATH", "run no-such-server-anywhere", 127, "no-such-server-anywhere"},
		{"not executable", "run " + file, 126, file},
		{"a directory", "run " + dir, 126, dir},
		{"no such directory", "run -dir /nowhere/dir sh -c true", 125, "-dir is no directory"},
		{"a bad header", "run -header A/B:x http://127.0.0.1:1/", 125, "is no header name"},
		{"its own code", "run -- sh -c false", 1, "exit code 1"},
		{"its own signal", "run -- sh -c kill${IFS}-9${IFS}$$", 137, "killed"},
		{"no command", "run", 125, "no command"},
		{"an unknown flag", "run -no-such-flag x", 125, "no-such-flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := stageCommand(t, strings.Fields(tc.args))
			s.mu.Lock()
			s.asked = append(s.asked, hostInitialize)
			s.mu.Unlock()
			fmt.Fprintln(s.stdin, hostInitialize) // it may be gone already
			if got := s.code(); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
			s.stderr.until(t, tc.says)
		})
	}
}

func TestExitCode_WhatCanNotBeStartedIsToldToAHostThatIsGone(t *testing.T) {
	for range 20 {
		s := stageCommand(t, []string{"run", "no-such-server-anywhere"})
		s.stdin.Close()
		if got := s.code(); got != 127 {
			t.Fatalf("exit code %d, want 127", got)
		}
	}
}

func TestGiveUp_EveryPendingRequestIsAnsweredAndThePostMortemSaysWhy(t *testing.T) {
	s, a := opened(t, "-max-restarts 2")
	words := strings.Repeat("the last words of a server\n", 1000) // more than is kept
	read := request("1", "resources/read", `{"uri":"a"}`)
	a.exits(3)
	b := s.replayed()
	s.hears(toolsNews)
	b.exits(0)
	c := s.replayed()
	s.hears(toolsNews)
	s.say(request("2", "tools/call", `{"name":"x"}`), read)
	c.takes(request("2", "tools/call", `{"name":"x"}`), read)
	c.does(order{Words: []byte(words)})
	c.dies()
	for _, id := range []string{"2", "1"} {
		s.hearsLost(lost{ID: id, Code: -31003, Outcome: "unknown", Generation: 3, Attempt: 1})
	}
	if got := s.code(); got != exitGaveUp {
		t.Errorf("exit code %d, want %d", got, exitGaveUp)
	}
	var post []string
	for _, line := range strings.Split(s.stderr.String(), "\n") {
		if strings.Contains(line, `msg="gave up`) {
			post = append(post, line)
		}
	}
	if len(post) != 1 {
		t.Fatalf("%d post-mortems in\n%s", len(post), s.stderr)
	}
	for _, want := range []string{
		"exit code 3 ", "exit code 0 ", "signal: killed", "exit=75",
		strings.ReplaceAll(words[len(words)-8<<10:], "\n", `\n`),
	} {
		if !strings.Contains(post[0], want) {
			t.Errorf("the post-mortem does not say %.100q:\n%s", want, post[0])
		}
	}
}

func TestRelay_Rule7_AReplacementThatIsAnotherServerIsGivenUp(t *testing.T) {
	for _, tc := range []struct {
		name, flags string
		answer      func(id string) string
		says        string
	}{
		{"another version", "", func(id string) string { return result(id, strings.Replace(ofServer, "2025-06-18", "2024-11-05", 1)) }, "2024-11-05"},
		{"an error", "", func(id string) string { return refusal(id, -32603, "license expired") }, "license expired"},
		{"other capabilities", "-on-drift exit", func(id string) string { return result(id, strings.Replace(ofServer, `,"prompts":{}`, "", 1)) }, "capabilities"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, a := opened(t, tc.flags)
			a.dies()
			b := s.next()
			s.say(request("1", "tools/list", "{}"), request("2", "ping", "{}"))
			s.hears(result("2", "{}")) // so both were read
			b.says(tc.answer(idOf(t, b.take())))
			s.hearsLost(lost{ID: "1", Code: -31003, Outcome: "not executed"})
			if got := s.code(); got != exitGaveUp {
				t.Errorf("exit code %d, want %d", got, exitGaveUp)
			}
			s.stderr.until(t, tc.says)
			if n := strings.Count(s.stderr.String(), "is started again"); n != 1 {
				t.Errorf("%d restarts; a permanent cause is given up at once:\n%s", n, s.stderr)
			}
		})
	}
}

func TestRelay_Rule7_DriftIsLoggedAndLivedWith(t *testing.T) {
	s, a := opened(t, "")
	a.dies()
	b := s.next()
	less := strings.Replace(ofServer, `"prompts":{}`, `"completions":{}`, 1)
	b.replay(less)
	b.takes(initialized)
	s.hears(toolsNews)
	s.stderr.until(t, "completions")
	b.dies()
	c := s.next()
	c.replay(strings.ReplaceAll(ofServer, `,"`, `, "`)) // white space is no drift
	c.takes(initialized)
	s.hears(toolsNews)
	s.ends(exitOK)
	if n := strings.Count(s.stderr.String(), "other capabilities"); n != 1 {
		t.Errorf("%d times drift, want 1:\n%s", n, s.stderr)
	}
}

func TestOutput_TheServersStderrPassesByteForByteAndWeAreSilentWhenAllIsWell(t *testing.T) {
	s, a := opened(t, "")
	var odd bytes.Buffer
	for i := range 256 {
		odd.WriteByte(byte(i))
	}
	odd.WriteString("no newline\x1b[31m")
	odd.Write(bytes.Repeat([]byte("x"), 100<<10))
	a.does(order{Words: odd.Bytes()})
	s.say(request("1", "tools/list", "{}"))
	a.answers(request("1", "tools/list", "{}"), "{}")
	s.hears(result("1", "{}"))
	s.ends(exitOK)
	if got := s.stderr.String(); got != odd.String() {
		t.Errorf("stderr is %d bytes, want the server's %d; it begins %.300q", len(got), odd.Len(), got)
	}
}

func TestOutput_OurLinesAreOneEachInTheFormatThatWasAskedFor(t *testing.T) {
	for flags, begin := range map[string]string{
		"":                 "time=",
		"-log-format json": `{"time":`,
	} {
		s, a := opened(t, flags)
		a.dies()
		s.replayed()
		s.hears(toolsNews)
		s.stderr.until(t, "serves again")
		s.ends(exitOK)
		lines := strings.SplitAfter(s.stderr.String(), "\n")
		if last := lines[len(lines)-1]; len(lines) != 3 || last != "" || strings.ContainsRune(s.stderr.String(), '\x1b') {
			t.Errorf("%q: want one line for the death and one for the recovery, got\n%s", flags, s.stderr)
		}
		for _, line := range lines[:len(lines)-1] {
			if !strings.HasPrefix(line, begin) {
				t.Errorf("%q: a line of ours is %s", flags, line)
			}
		}
	}
	s, a := opened(t, "", func(s *scene) { s.cmd.Env = append(s.cmd.Env, "RESPAWN_LOG_LEVEL=error") })
	a.dies()
	s.replayed()
	s.hears(toolsNews)
	s.ends(exitOK)
	if s.stderr.String() != "" {
		t.Errorf("nothing of that was an error, and we said\n%s", s.stderr)
	}
}

// T14: our stderr may be a pipe that the host never reads.
func TestT14_AHostThatNeverReadsStderrStopsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, a := opened(t, "-log-level debug", func(s *scene) { s.cmd.Stderr = w })
	w.Close()
	a.does(order{Words: bytes.Repeat([]byte("a line of the server\n"), 100<<10)})
	for i := range 50 {
		s.say(request(fmt.Sprint(i), "tools/list", "{}"))
		a.answers(request(fmt.Sprint(i), "tools/list", "{}"), "{}")
		s.hears(result(fmt.Sprint(i), "{}"))
	}
	a.dies()
	s.replayed()
	s.hears(toolsNews)
	s.timed(exitOK, 0, s.leave)
}

func TestEnvironment_IsPassedOnWithTheFilesAdditionsAndNeverLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("FROM_FILE=fileSecret\nPASSED=overridden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := stageCommand(t, []string{"run", "-log-level=debug", "-env-file", file, "-dir", "/", "--", "sh", "-c", `echo "$PASSED $FROM_FILE $PWD" >&2; exit 4`},
		func(s *scene) { s.cmd.Env = append(s.cmd.Env, "PASSED=envSecret", "ALSO=alsoSecret") })
	if got := s.code(); got != 4 {
		t.Errorf("exit code %d", got)
	}
	words := "overridden fileSecret /\n"
	said := s.stderr.String()
	if strings.Count(said, words) < 2 {
		t.Errorf("the server's environment or directory is not as asked:\n%s", said)
	}
	if ours := strings.ReplaceAll(said, strings.TrimSpace(words), ""); strings.Contains(ours, "Secret") {
		t.Errorf("a value was logged:\n%s", ours)
	}
}

func TestGuard_KillsTheServersGroupWhenTheShimIsKilled(t *testing.T) {
	for name, all := range map[string]bool{"the shim alone": false, "its whole group": true} {
		t.Run(name, func(t *testing.T) {
			s, a := opened(t, "", func(s *scene) { s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} })
			a.dies() // the guard must know the second one
			b := s.replayed()
			s.hears(toolsNews)
			b.does(order{Stubborn: true, Fork: true})
			if got := len(marked(s.mark)); got != 4 && marked("") != nil {
				t.Errorf("%d processes, want the shim, its guard, the server and what it left", got)
			}
			target := s.cmd.Process.Pid
			if all {
				target = -target
			}
			if err := syscall.Kill(target, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got := s.code(); got != -int(syscall.SIGKILL) {
				t.Errorf("exit %d", got)
			}
			// The curtain finds whoever is left, the guard included.
		})
	}
}

func TestGuard_IgnoresTheSignalsOfATerminalAndActsOnTheEndOfItsPipe(t *testing.T) {
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("sh", "-c", "read line")
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	// A group that has its number from somebody else now is left alone.
	group := stranger.Process.Pid
	for _, tc := range []struct {
		name, told string
		dies       bool
	}{
		{"told of nothing", "", false},
		{"born at another time", fmt.Sprintf("%d 1\n", group), false},
		{"forgotten", fmt.Sprintf("%d %s\n\n", group, birth(group)), false},
		{"half a line", fmt.Sprintf("%d %s", group, birth(group)), false},
		{"watched", fmt.Sprintf("%d %s\n", group, birth(group)), true},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		g := exec.Command(bin, guardArg)
		g.ExtraFiles = []*os.File{r}
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		fmt.Fprint(w, tc.told)
		w.Close()
		if err := g.Wait(); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		alive := syscall.Kill(-group, 0) == nil
		if tc.dies {
			_ = stranger.Wait()
			alive = !stranger.ProcessState.Sys().(syscall.WaitStatus).Signaled()
		}
		if alive == tc.dies {
			t.Errorf("%s: alive %v", tc.name, alive)
		}
	}
	in.Close()
}

func TestGiveUp_AParkedServerHasItsPostMortemOnce(t *testing.T) {
	s, a := opened(t, "-max-restarts 1 -on-give-up park")
	a.exits(3)
	b := s.replayed()
	s.hears(toolsNews)
	read := request("1", "tools/call", `{"name":"x"}`)
	s.say(read)
	b.takes(read)
	b.does(order{Words: []byte("the last words\n")})
	b.exits(4)
	s.hearsLost(lost{ID: "1", Code: -31001, Outcome: "unknown", Generation: 2, ExitCode: 4, HasExitCode: true, Attempt: 1})
	s.stderr.until(t, `level=ERROR msg="gave up: the server is parked`)
	s.ends(exitOK)
	var post []string
	for _, line := range strings.Split(s.stderr.String(), "\n") {
		if strings.Contains(line, `msg="gave up`) {
			post = append(post, line)
		}
	}
	if len(post) != 1 {
		t.Fatalf("%d post-mortems in\n%s", len(post), s.stderr)
	}
	for _, want := range []string{"exit code 3 ", "exit code 4", `stderr="the last words\n"`, "every=1m0s"} {
		if !strings.Contains(post[0], want) {
			t.Errorf("the post-mortem does not say %.100q:\n%s", want, post[0])
		}
	}
	if !strings.Contains(s.stderr.String(), "is tried again when it is needed") {
		t.Errorf("the last death is told otherwise:\n%s", s.stderr)
	}
}
