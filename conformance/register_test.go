package conformance_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/conformance"
)

// fieldCases are the faults of the field that come first (their numbers are not
// consecutive: the others harden what these repair).
var fieldCases = []int{
	1, 4, 5, 6, 8, 11, 14, 16, 17, 19, 21, 26, 28, 30, 31, 33, 35, 36, 37, 38, 40, 42, 45, 46, 48, 49, 52, 55, 56,
	59, 61, 65, 66, 67, 69, 70, 73, 74, 76, 79, 80, 81, 83, 84, 87, 88, 89, 95, 96, 101, 102, 104, 105,
}

// named are the requirements that other registers know by a name.
var named = []string{
	"streamable-http-client-reinit-on-404", "streamable-http-client-reissue-broken-request", "stdio-client-restart-crashed-server",
}

func TestTheRegisterHasOneRowForEachRequirement(t *testing.T) {
	var want []string
	for _, c := range []struct {
		letter string
		n      int
	}{{"S", 50}, {"H", 16}, {"M", 13}, {"T", 18}, {"R", 15}} {
		for i := range c.n {
			want = append(want, fmt.Sprintf("%s%d", c.letter, i+1))
		}
	}
	for _, n := range fieldCases {
		want = append(want, fmt.Sprintf("B%03d", n))
	}
	want = append(want, named...)
	var got []string
	for _, r := range conformance.Register() {
		got = append(got, r.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids (-want +register):\n%s", diff)
	}
}

func TestEachRowOfTheRegisterSaysWhatItsStatusNeeds(t *testing.T) {
	for _, r := range conformance.Register() {
		if !strings.HasSuffix(r.Sentence, ".") || strings.ContainsAny(r.Sentence, "\n\t") {
			t.Errorf("%s: %q is not one sentence", r.ID, r.Sentence)
		}
		switch {
		case r.Status == conformance.Met && (len(r.Evidence) == 0 || r.Why != ""):
			t.Errorf("%s is met and needs evidence, and no excuse", r.ID)
		case r.Status == conformance.Gap && (len(r.Evidence) > 0) != (r.Why != ""):
			t.Errorf("%s is a gap: with evidence of a part it says what is missing, without any it says nothing", r.ID)
		case r.Status == conformance.NotApplicable && (len(r.Evidence) > 0 || r.Why == ""):
			t.Errorf("%s is not applicable and needs a reason, and no evidence", r.ID)
		}
		if len(slices.Compact(slices.Sorted(slices.Values(r.Evidence)))) != len(r.Evidence) {
			t.Errorf("%s names a test twice: %v", r.ID, r.Evidence)
		}
	}
}

func TestTheEvidenceOfTheRegisterExists(t *testing.T) {
	tests, taken := testNames(t), map[string]bool{}
	for _, r := range conformance.Register() {
		for _, name := range r.Evidence {
			if !tests[name] {
				t.Errorf("%s names %s, and no _test.go file of this module has it", r.ID, name)
			}
			taken[r.ID+" "+name] = true
		}
	}
	// A test may prove a part before its row is written, so this is no failure.
	numbered := regexp.MustCompile(`^Test([SHMTR]\d+|B\d{3})_`)
	for name := range tests {
		if m := numbered.FindStringSubmatch(name); m != nil && !taken[m[1]+" "+name] {
			t.Logf("%s could be evidence of %s", name, m[1])
		}
	}
}

// testNames parses every _test.go file of this module. Nested modules are not
// part of it.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for path, file := range goFiles(t, parser.SkipObjectResolution) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f.Name.Name) {
				names[f.Name.Name] = true
			}
		}
	}
	if !names[t.Name()] {
		t.Fatalf("found %d tests in the module, and not even %s", len(names), t.Name())
	}
	return names
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}

// goFiles parses every Go file of this module, by its path from the module root
// with forward slashes.
func goFiles(t *testing.T, mode parser.Mode) map[string]*ast.File {
	t.Helper()
	root := moduleRoot(t)
	files := map[string]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || isModule(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		files[filepath.ToSlash(rel)] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// moduleRoot is the folder above this package.
func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if !isModule(root) {
		t.Fatalf("%s is not the root of the module", root)
	}
	return root
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
