package conformance_test

import (
	"go/parser"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/respawn-mcp/respawn/"

// layers says what each package may import of ours, test files apart. A rule
// covers a folder and all below it; the longest one counts. Imports point one
// way: deciding, defining and carrying know nobody, the engine knows the three,
// the client and the relay sit side by side on the engine, and the kit and the
// command see everything.
var layers = []struct {
	folder string
	may    []string // folders with all below; "=" in front: without; "" is everything
}{
	{"fsm", nil},
	{"policy", nil},
	{"transports", []string{"=transports"}},
	{"client/internal/engine", []string{"fsm", "policy", "=transports", "client/internal/engine"}},
	{"client", []string{"fsm", "policy", "=transports", "client/internal"}},
	{"client/relay", []string{"fsm", "policy", "=transports", "client/internal", "client/relay"}},
	{"client/gosdk", []string{"fsm", "policy", "=transports", "client/relay"}},
	{"client/mcpgo", []string{"fsm", "policy", "=transports", "client/relay"}},
	{"conformance", []string{""}},
	{"cmd", []string{""}},
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	for file, imports := range ourImports(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		from := path.Dir(file)
		i := ruleOf(from)
		if i < 0 {
			t.Errorf("%s: no rule says what %s may import", file, from)
			continue
		}
		seen[layers[i].folder] = true
		for _, to := range imports {
			if !allowed(layers[i].may, to) {
				t.Errorf("%s imports %s, which %s may not", file, to, layers[i].folder)
			}
		}
	}
	for _, must := range []string{"fsm", "policy", "transports", "conformance"} {
		if !seen[must] {
			t.Errorf("no file of %s was looked at", must)
		}
	}
}

// Nobody imports the kit or the command but the command and tests, and such a
// test is an external one, so that the kit may import what it tests.
func TestOnlyExternalTestsImportTheKit(t *testing.T) {
	files := goFiles(t, parser.ImportsOnly)
	for file, imports := range ourImports(t) {
		kit := slices.ContainsFunc(imports, func(to string) bool { return under(to, "conformance") })
		external := strings.HasSuffix(file, "_test.go") && strings.HasSuffix(files[file].Name.Name, "_test")
		if kit && !external && !under(file, "conformance") && !under(file, "cmd") {
			t.Errorf("%s imports the kit and is no external test", file)
		}
	}
}

func TestTheImportRulesKnowRightFromWrong(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"fsm", "policy", false},
		{"transports", "fsm", false},
		{"transports/stdio", "transports", true},
		{"transports/stdio", "transports/memory", false},
		{"client/internal/engine", "transports", true},
		{"client/internal/engine", "transports/stdio", false},
		{"client/internal/engine", "client", false},
		{"client", "client/internal/engine", true},
		{"client", "client/relay", false},
		{"client/relay", "client", false},
		{"client/gosdk", "client/relay", true},
		{"client/gosdk", "client/internal/engine", false},
		{"cmd/respawn", "conformance", true},
		{"conformance/driver", "client", true},
	} {
		if got := allowed(layers[ruleOf(tc.from)].may, tc.to); got != tc.want {
			t.Errorf("%s may import %s: %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
}

func ruleOf(folder string) int {
	best := -1
	for i, l := range layers {
		if under(folder, l.folder) && (best < 0 || len(l.folder) > len(layers[best].folder)) {
			best = i
		}
	}
	return best
}

func allowed(may []string, to string) bool {
	return slices.ContainsFunc(may, func(folder string) bool {
		if exact, ok := strings.CutPrefix(folder, "="); ok {
			return to == exact
		}
		return folder == "" || under(to, folder)
	})
}

func under(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// ourImports maps each Go file to the packages of this module that it imports.
func ourImports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for name, file := range goFiles(t, parser.ImportsOnly) {
		found[name] = nil
		for _, i := range file.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if to, ok := strings.CutPrefix(p, module); ok {
				found[name] = append(found[name], to)
			}
		}
	}
	return found
}
