package drill

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/respawn-mcp/respawn/transports/streamable"
)

// The test binary is the built-in server, too.
func TestMain(m *testing.M) {
	if code, played := Play(os.Args[1:]); played {
		os.Exit(code)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each server sleeps for a second when it exits
	goleak.VerifyTestMain(m)
}

// results runs a drill in JSON and returns how each of its checks ended.
func results(t *testing.T, o Options) (held bool, got map[string]string) {
	t.Helper()
	return resultsIn(t, new(bytes.Buffer), o)
}

func resultsIn(t *testing.T, out *bytes.Buffer, o Options) (held bool, got map[string]string) {
	t.Helper()
	o.Out, o.JSON = out, true
	held, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var summary struct {
		Held   bool
		Checks []check
	}
	if err := json.Unmarshal(lines[len(lines)-1], &summary); err != nil {
		t.Fatalf("the summary %s: %v", lines[len(lines)-1], err)
	}
	if summary.Held != held {
		t.Errorf("the summary says %v and the drill %v", summary.Held, held)
	}
	got = map[string]string{}
	for _, c := range summary.Checks {
		got[c.Name] = c.Result
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", out)
		}
	})
	return held, got
}

// A check that can't fail proves nothing: each fault of the server must be seen,
// and by the right ones.
func TestEachFaultOfAServerIsSeen(t *testing.T) {
	// What a fault withholds is waited for in vain, and briefly; everything else comes.
	const vain = 5 * time.Second
	for _, tc := range []struct {
		fault, era string
		timeout    time.Duration // 0: the default
		failed     []string
		unreached  []string
	}{
		{fault: faultTwice, era: "modern", failed: []string{checkOpens, checkReplaced, checkWaited, checkLost, checkCrash}},
		{fault: faultFickle, era: "legacy", failed: []string{checkSameTools}},
		{fault: faultMute, era: "legacy", timeout: vain, unreached: []string{
			checkSubscribed, checkRefused, checkWaited, checkLost, checkCrash, checkRead,
		}},
		{fault: faultObstinate, era: "modern", timeout: vain, unreached: []string{checkLoop, checkAfter}},
		{fault: faultTwice, era: "modern-http", failed: []string{checkOpens, checkAnnotated, checkUnannotated}},
		{fault: faultSteady, era: "modern-http", failed: []string{checkReadCut, checkReadOnce, checkAnnotated, checkUnannotated}},
		{fault: faultBoastful, era: "modern-http", failed: []string{checkUnannotated}},
		{fault: faultModest, era: "modern-http", failed: []string{checkAnnotated}},
		{fault: faultMute, era: "modern-http", timeout: vain, unreached: []string{checkListenCut}},
		{fault: faultTwice, era: "legacy-http", failed: []string{checkOpens, checkRanOnce}},
		{fault: faultSteady, era: "legacy-http", failed: []string{checkOneOpen}},
		{fault: faultStreamless, era: "legacy-http", failed: []string{checkCalm}},
		{fault: faultForgetful, era: "legacy-http", timeout: vain, failed: []string{checkOneOpen, checkAnswered, checkRanOnce, checkDeleted}, unreached: []string{checkSameTools}},
	} {
		t.Run(tc.fault+" "+tc.era, func(t *testing.T) {
			want := map[string]string{}
			for _, name := range map[string][]string{
				"modern": builtinChecks, "legacy": builtinChecks,
				"modern-http": modernWebChecks, "legacy-http": legacyWebChecks,
			}[tc.era] {
				want[name] = resultHeld
			}
			for _, name := range tc.failed {
				want[name] = resultFailed
			}
			for _, name := range tc.unreached {
				want[name] = resultMissing
			}
			held, got := results(t, Options{Timeout: tc.timeout, fault: tc.fault, only: tc.era})
			if held {
				t.Error("the drill says that everything held")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What a client can't do to a server from outside is said, and proves nothing.
func TestTheDrillOfAnEndpointProvesWhatItCan(t *testing.T) {
	always := []string{checkServes, checkPing, checkListed, checkLegal, checkLeft}
	session := []string{checkForgotten, checkSameSelf, checkSameTools}
	for _, tc := range []struct {
		name, fault       string
		modern            bool
		more              []string
		failed, unreached []string
		untried           string
	}{
		{name: "modern", modern: true, untried: "a modern server has none"},
		{name: "legacy", more: session},
		{name: "legacy without sessions", fault: faultOpen, untried: "the server issues none"},
		{name: "legacy without DELETE", fault: faultLocked, untried: "answers DELETE with 405"},
		{name: "that does not delete", fault: faultUndying, untried: "still knows it"},
		{name: "whose tools change", fault: faultFickle, more: session, failed: []string{checkListed, checkSameTools}},
		{name: "that forgets the next session too", fault: faultForgetful, more: session, unreached: session},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, err := openWebServer(tc.modern, tc.fault)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.close(); err != nil {
					t.Error(err)
				}
			}()
			want := map[string]string{}
			for _, name := range slices.Concat(always, tc.more) {
				want[name] = resultHeld
			}
			for _, name := range tc.failed {
				want[name] = resultFailed
			}
			for _, name := range tc.unreached {
				want[name] = resultMissing
			}
			var out bytes.Buffer
			held, got := resultsIn(t, &out, Options{Endpoint: &streamable.Config{URL: server.url}})
			if all := len(tc.failed)+len(tc.unreached) == 0; held != all {
				t.Errorf("held: %v, want %v", held, all)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !strings.Contains(out.String(), tc.untried) {
				t.Errorf("it does not say that it did not try something: %q", tc.untried)
			}
		})
	}
}

func TestAServersRoleIsNotInherited(t *testing.T) {
	t.Setenv(roleVar, roleServer)
	if got := takeRole(); got != roleServer {
		t.Errorf("the role is %q, want %q", got, roleServer)
	}
	if value, set := os.LookupEnv(roleVar); set {
		t.Errorf("what it starts would play %q", value)
	}
	if code, played := Play(nil); played {
		t.Errorf("without a role it played one, and exited with %d", code)
	}
}

// A client tells of its end in its own time.
func TestNothingFollowsTheSummaryOfAReport(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		r := &report{out: &out, began: time.Now(), json: asJSON}
		r.begin("x")
		r.expect("a")
		r.prove("a", true, "")
		r.finish(nil)
		before := out.String()
		r.say("state", "serving -> closed")
		r.prove("a", false, "")
		if got := out.String(); got != before {
			t.Errorf("the report goes on: %s", got[len(before):])
		}
	}
}

func TestAReportCountsWhatWasNotReached(t *testing.T) {
	for _, tc := range []struct {
		name  string
		prove func(*report)
		held  bool
		want  string
	}{
		{"all held", func(r *report) {
			r.prove("a", true, "%d", 1)
			r.prove("b", true, "")
		}, true, "\nx, what was proved\n  held  a  1\n  held  b\n"},
		{"one failed", func(r *report) {
			r.prove("a", true, "")
			r.prove("b", false, "2 and not 1")
		}, false, "\nx, what was proved\n  held    a\n  FAILED  b  2 and not 1\n"},
		{"one was not reached", func(r *report) { r.prove("b", true, "") }, false, "\nx, what was proved\n  not reached  a\n  held         b\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &report{out: &out, began: time.Now()}
			r.begin("x")
			r.expect("a", "b")
			tc.prove(r)
			out.Reset()
			if got := r.finish(nil); got != tc.held {
				t.Errorf("held: %v, want %v", got, tc.held)
			}
			table, _, _ := bytes.Cut(out.Bytes(), []byte("\n\n"))
			if diff := cmp.Diff(tc.want, string(table)+"\n"); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestToolsAreComparedByTheirWholeDescription(t *testing.T) {
	for _, tc := range []struct {
		before, after []string
		same          bool
		how           string
	}{
		{[]string{"a", "b"}, []string{"a", "b"}, true, "2 tools, names and schemas"},
		{[]string{"a", "b"}, []string{"b", "a"}, true, "2 tools, names and schemas, in another order"},
		{[]string{"a", "b"}, []string{"a"}, false, "1 of 2 are gone or changed, 0 are new or changed"},
		{[]string{"a", "b"}, []string{"a", "B"}, false, "1 of 2 are gone or changed, 1 are new or changed"},
		{[]string{"a"}, []string{"a", "a"}, false, "0 of 1 are gone or changed, 1 are new or changed"},
		{nil, []string{"a"}, false, "0 of 0 are gone or changed, 1 are new or changed"},
	} {
		same, how := sameTools(tc.before, tc.after)
		if same != tc.same || how != tc.how {
			t.Errorf("%v and %v: %v, %q; want %v, %q", tc.before, tc.after, same, how, tc.same, tc.how)
		}
	}
}
