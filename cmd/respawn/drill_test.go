//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// proof is a line of the drill's table.
type proof struct{ Part, Result, Check string }

// drillChecks are what the drill of the built-in server must prove in each era.
var drillChecks = []string{
	"it serves in its era",
	"a killed server is replaced",
	"nothing is left of the killed one",
	"its tools are the same afterwards",
	"a subscription survives",
	"a call while nobody serves is refused",
	"a call that may wait runs once",
	"a call lost in the middle is not run again",
	"a crash in the middle is told with its code",
	"a read lost in the middle is sent again",
	"a crash loop exhausts the budget",
	"after that a call fails at once",
	"no event was illegal",
	"nothing is left running",
}

// modernWebChecks and legacyWebChecks are what must be proved of the servers
// behind HTTP.
var modernWebChecks = []string{
	"it serves in its era",
	"a read whose stream is cut is sent again",
	"and once only",
	"a read-only tool whose stream is cut is called again",
	"any other tool is not",
	"a cut subscription comes back",
	"no event was illegal",
	"nothing is left running",
}

var legacyWebChecks = []string{
	"it serves in its era",
	"a stream that always ends is not opened too often",
	"20 calls refused at once make one new session",
	"all of them are answered",
	"and each ran once",
	"its tools are the same afterwards",
	"the session is deleted at the end",
	"no event was illegal",
	"nothing is left running",
}

// everything is what the whole drill proves.
func everything() []proof {
	return slices.Concat(
		allHeld("modern", drillChecks), allHeld("legacy", drillChecks),
		allHeld("modern-http", modernWebChecks), allHeld("legacy-http", legacyWebChecks))
}

// commandChecks are what that of a given command must.
var commandChecks = []string{
	"it serves",
	"a killed server is replaced",
	"nothing is left of the killed one",
	"it says the same of itself afterwards",
	"its tools are the same afterwards",
	"no event was illegal",
	"nothing is left running",
}

func allHeld(part string, checks []string) (all []proof) {
	for _, name := range checks {
		all = append(all, proof{part, "held", name})
	}
	return all
}

var (
	tableTitle = regexp.MustCompile(`^(\S+), what was proved$`)
	tableLine  = regexp.MustCompile(`^  (held|FAILED|not reached) +(.*?)(  .*)?$`)
)

// table reads the table at the end of the drill's output, or of an excerpt.
func table(text string) (proofs []proof) {
	part := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := tableTitle.FindStringSubmatch(line); m != nil {
			part = m[1]
		} else if m := tableLine.FindStringSubmatch(line); m != nil && part != "" {
			proofs = append(proofs, proof{part, m[1], m[2]})
		}
	}
	return proofs
}

// whole is the one full drill in words that several tests look at.
var whole = struct {
	sync.Once
	said
}{}

func wholeDrill(t *testing.T) said {
	t.Helper()
	whole.Do(func() { whole.said = executed(t, "drill") })
	return whole.said
}

func TestTheDrillProvesEverythingInBothEras(t *testing.T) {
	got := wholeDrill(t)
	if got.code != exitOK || got.err != "" {
		t.Fatalf("exit %d, %q on stderr:\n%s", got.code, got.err, got.out)
	}
	if diff := cmp.Diff(everything(), table(got.out)); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.out, "\n45 of 45 held, in ") {
		t.Errorf("the last line does not count:\n%s", got.out)
	}
	if strings.Contains(got.out, "\x1b") {
		t.Error("a pipe got colours")
	}
}

func TestTheDrillShowsEachTransitionWithItsTime(t *testing.T) {
	transition := regexp.MustCompile(`^ *\d+\.\d{3}s  state    (.*) → (.*): .+$`)
	seen := map[string]int{}
	for line := range strings.Lines(wholeDrill(t).out) {
		if m := transition.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			seen[m[1]+" → "+m[2]]++
		}
	}
	want := map[string]int{ // of two eras; + behind HTTP
		"starting → serving":               14 + 3, // 1 and 5 replacements, and the one of the crash loop; 1, and 1 and a replacement
		"serving → dead-awaiting-respawn":  12 + 1, // 5, and 1; a forgotten session
		"dead-awaiting-respawn → starting": 16 + 1, // 5, and 3
		"starting → dead-awaiting-respawn": 4,
		"starting → exhausted":             2,
		"serving → closed":                 2 + 2,
		"exhausted → closed":               2,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

func TestTheDrillInJSONIsOneObjectALine(t *testing.T) {
	got := executed(t, "drill", "-json")
	if got.code != exitOK || got.err != "" {
		t.Fatalf("exit %d, %q on stderr:\n%s", got.code, got.err, got.out)
	}
	type event struct {
		Seconds  *float64
		Event    string
		Part     string
		Text     string
		From, To string
		Outcome  string
		Error    string
		Held     *bool
		Checks   []proof
	}
	var events []event
	for line := range strings.Lines(got.out) {
		var e event
		d := json.NewDecoder(strings.NewReader(line))
		if err := d.Decode(&e); err != nil || d.More() {
			t.Fatalf("%q is not one object: %v", line, err)
		}
		if e.Seconds == nil || e.Event == "" {
			t.Fatalf("%q lacks its time or its kind", line)
		}
		events = append(events, e)
	}
	last := events[len(events)-1]
	if last.Event != "summary" || last.Held == nil || !*last.Held {
		t.Errorf("the last event is %+v, want a summary that held", last)
	}
	if diff := cmp.Diff(everything(), last.Checks); diff != "" {
		t.Errorf("the summary (-want +got):\n%s", diff)
	}
	state, outcomes := "starting", map[string]int{}
	for _, e := range events {
		switch e.Event {
		case "state":
			if e.From != state {
				t.Errorf("at %gs the state was %s, and is said to have been %s", *e.Seconds, state, e.From)
			}
			if state = e.To; e.To == "closed" {
				state = "starting" // the next client's
			}
		case "lost":
			if outcomes[e.Outcome]++; e.Error == "" {
				t.Errorf("a lost call without its error: %+v", e)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"not executed": 4, "outcome unknown": 6}, outcomes); diff != "" {
		t.Errorf("outcomes of the lost calls (-want +got):\n%s", diff)
	}
}

// server is the command line of the built-in server, as if it were somebody's.
func server(t *testing.T, args ...string) []string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"env", "RESPAWN_DRILL_ROLE=server", path}, args...)
}

func TestTheDrillOfAGivenCommand(t *testing.T) {
	changed := func(name, result string) []proof {
		all := allHeld("env", commandChecks)
		for i := range all {
			if all[i].Check == name {
				all[i].Result = result
			}
		}
		return all
	}
	toolless := allHeld("env", commandChecks)
	toolless[4].Check = "it answers a ping afterwards"
	for _, tc := range []struct {
		name    string
		command []string
		code    int
		want    []proof
		says    string
	}{
		{"modern", server(t), exitOK, allHeld("env", commandChecks), "modern, version 2026-07-28, respawn drill 1"},
		{"legacy", server(t, "-era", "legacy"), exitOK, allHeld("env", commandChecks), "legacy, version 2025-11-25, respawn drill 1"},
		{
			"below a shell", append([]string{"sh", "-c", `"$@"; exit $?`, "sh"}, server(t)...),
			exitOK, allHeld("sh", commandChecks), "its group had 3 processes, and has 0",
		},
		{"without tools", server(t, "-fault", "toolless"), exitOK, toolless, "it has no tools to compare"},
		{
			"whose tools change", server(t, "-fault", "fickle"), exitFailure,
			changed("its tools are the same afterwards", "FAILED"), "1 of 4 are gone or changed, 1 are new or changed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := executed(t, append([]string{"drill", "--"}, tc.command...)...)
			if got.code != tc.code || got.err != "" {
				t.Errorf("exit %d, want %d; %q on stderr", got.code, tc.code, got.err)
			}
			if diff := cmp.Diff(tc.want, table(got.out)); diff != "" {
				t.Errorf("the table (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.out, tc.says) {
				t.Errorf("nothing says %q", tc.says)
			}
			if t.Failed() {
				t.Log(got.out)
			}
		})
	}
}

// A process that leaves its group can't be ended, but it does not go unseen.
func TestTheDrillSeesWhatAServerLeavesBehind(t *testing.T) {
	escape := `setsid sleep 60 </dev/null >/dev/null 2>&1 & exec "$@"`
	r := prepare(t, append([]string{"drill", "--", "sh", "-c", escape, "sh"}, server(t)...)...)
	r.start()
	got := r.finish()
	left := marked(r.mark)
	for _, pid := range left {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(left) != 2 { // one of each life
		t.Errorf("%d processes are left, and the test means 2", len(left))
	}
	want := allHeld("sh", commandChecks)
	want[len(want)-1].Result = "FAILED"
	if diff := cmp.Diff(want, table(got.out)); diff != "" || got.code != exitFailure {
		t.Errorf("exit %d, the table (-want +got):\n%s\n%s", got.code, diff, got.out)
	}
}

func TestAServerThatCannotBeDrilledIsAnErrorOfOneLine(t *testing.T) {
	dir := t.TempDir()
	plain := dir + "/plain"
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		command []string
		says    []string
	}{
		{"no such command", []string{"no-such-command"}, []string{`"no-such-command"`, "not found"}},
		{"no such file", []string{dir + "/absent"}, []string{dir + "/absent", "no such file"}},
		{"a directory", []string{dir}, []string{dir, "permission denied"}},
		{"not executable", []string{plain}, []string{plain, "permission denied"}},
		{"an empty name", []string{""}, []string{"Config.Path"}},
		{"exits at once", []string{"sh", "-c", "echo no licence >&2; exit 3"}, []string{"exit code 3", "no licence"}},
		{
			"never answers",
			[]string{"sh", "-c", "echo looking for the network >&2; cat >/dev/null"},
			[]string{"start-up", "500ms", "looking for the network"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := executed(t, append([]string{"drill", "-timeout", "500ms", "--"}, tc.command...)...)
			if got.code != exitFailure || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "respawn drill: ") {
				t.Errorf("exit %d and on stderr %q, want %d and one line", got.code, got.err, exitFailure)
			}
			for _, s := range tc.says {
				if !strings.Contains(got.err, s) {
					t.Errorf("%q does not say %q", got.err, s)
				}
			}
			if len(table(got.out)) > 0 {
				t.Errorf("there was nothing to prove:\n%s", got.out)
			}
		})
	}
}

func TestAMissingCommandIsToldInJSONToo(t *testing.T) {
	got := executed(t, "drill", "-json", "--", "no-such-command")
	var summary struct {
		Event  string
		Held   bool
		Checks []proof
		Error  string
	}
	if err := json.Unmarshal([]byte(got.out), &summary); err != nil {
		t.Fatalf("%v: %q", err, got.out)
	}
	if got.code != exitFailure || summary.Event != "summary" || summary.Held || summary.Checks == nil || !strings.Contains(summary.Error, "not found") {
		t.Errorf("exit %d, %+v", got.code, summary)
	}
}

func TestADrillThatIsInterruptedLeavesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(r *running, out *os.File) error
		says string
	}{
		{"by its user", func(r *running, _ *os.File) error { return r.Process.Signal(os.Interrupt) }, "interrupt"},
		{"by a reader who leaves", func(_ *running, out *os.File) error { return out.Close() }, "broken pipe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := prepare(t, "drill")
			out, theirs, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			r.Stdout = theirs
			r.start()
			theirs.Close()
			lines := bufio.NewReader(out)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("no server was killed: %v", err)
				}
				if strings.Contains(line, " kill ") {
					break
				}
			}
			if err := tc.end(r, out); err != nil {
				t.Fatal(err)
			}
			got := r.finish()
			if got.code != exitFailure || !strings.Contains(got.err, tc.says) || strings.Count(got.err, "\n") != 1 {
				t.Errorf("exit %d and on stderr %q, want %d and one line about %q", got.code, got.err, exitFailure, tc.says)
			}
		})
	}
}

// The README shows a real drill, shortened: its lines are those of one but for the
// numbers, and the tables are whole but for one, which says the same as the first.
func TestTheREADMEShowsARealDrill(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```\n$ go run ./cmd/respawn drill\n")
	excerpt, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("the README has no block that begins with the drill's command")
	}
	whole := wholeDrill(t).out
	want := slices.Concat(allHeld("modern", drillChecks), allHeld("modern-http", modernWebChecks), allHeld("legacy-http", legacyWebChecks))
	if diff := cmp.Diff(want, table(excerpt)); diff != "" {
		t.Errorf("the table in the README (-want +README):\n%s", diff)
	}
	number, blanks := regexp.MustCompile(`[+-]?\d+(\.\d+)?`), regexp.MustCompile(` +`)
	plain := func(line string) string {
		return blanks.ReplaceAllString(number.ReplaceAllString(strings.TrimSpace(line), "#"), " ")
	}
	have := map[string]bool{}
	for line := range strings.Lines(whole) {
		have[plain(line)] = true
	}
	events := 0
	for line := range strings.Lines(excerpt) {
		if line = plain(line); line == "" || line == "…" {
			continue
		}
		if events++; !have[line] {
			t.Errorf("no drill says %q", line)
		}
	}
	if events < len(want)+10 {
		t.Errorf("the README shows %d lines of a drill", events)
	}
}
