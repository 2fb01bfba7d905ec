package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRegenerate(t *testing.T) {
	known := []block{
		{"one", func(w io.Writer) error { _, err := io.WriteString(w, "1\n"); return err }},
		{"two", func(w io.Writer) error { _, err := io.WriteString(w, "2\n"); return err }},
	}
	const one, two, end = "<!-- respawn:begin one -->\n", "<!-- respawn:begin two -->\n", "<!-- respawn:end -->\n"
	for _, tc := range []struct {
		name, doc string
		want      string
		stale     []staleBlock
	}{
		{"text without blocks stays", "# A\n\nb", "# A\n\nb", nil},
		{"an empty document stays", "", "", nil},
		{"a block that is right stays", "a\n" + one + "\n1\n\n" + end + "b", "a\n" + one + "\n1\n\n" + end + "b", nil},
		{"an empty block is filled", one + end, one + "\n1\n\n" + end, []staleBlock{{1, "one", "", "\n1\n\n"}}},
		{
			"each stale block is told with its line, and the text around stays",
			"a\n" + one + "x\n" + end + "b\n" + two + "\n2\n" + end + "c",
			"a\n" + one + "\n1\n\n" + end + "b\n" + two + "\n2\n\n" + end + "c",
			[]staleBlock{{2, "one", "x\n", "\n1\n\n"}, {6, "two", "\n2\n", "\n2\n\n"}},
		},
		{"an end without a line end is one", one + "\n1\n\n" + strings.TrimSpace(end), one + "\n1\n\n" + strings.TrimSpace(end), nil},
		{"an indented marker is text about blocks", "    " + one + "    x\n", "    " + one + "    x\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, stale, err := regenerate("doc.md", tc.doc, known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stale, stale, cmp.AllowUnexported(staleBlock{})); diff != "" {
				t.Errorf("stale blocks (-want +got):\n%s", diff)
			}
			again, stale, err := regenerate("doc.md", got, known)
			if again != got || len(stale) != 0 || err != nil {
				t.Errorf("a second time it changed: %v, %v", stale, err)
			}
		})
	}
}

func TestRegenerateNamesFileAndLineOfAMistake(t *testing.T) {
	known := []block{
		{"one", func(io.Writer) error { return nil }},
		{"bad", func(io.Writer) error { return errors.New("no ink") }},
	}
	for _, tc := range []struct{ name, doc, want string }{
		{"an unknown block", "a\n<!-- respawn:begin tow -->\n", `doc.md:2: unknown block "tow" (known: one, bad)`},
		{"a block without an end", "a\n<!-- respawn:begin one -->\nb\n", "doc.md:2: block one has no <!-- respawn:end -->"},
		{
			"a block inside a block", "<!-- respawn:begin one -->\n\n<!-- respawn:begin one -->\n<!-- respawn:end -->\n",
			"doc.md:3: a marker inside block one, which began on line 1 and has no <!-- respawn:end -->",
		},
		{"an end without a begin", "<!-- respawn:end -->\n", "doc.md:1: <!-- respawn:end --> without a begin"},
		{"a misspelt marker", "<!-- respawn:start one -->\n", `doc.md:1: malformed marker "<!-- respawn:start one -->"`},
		{"a marker with a narrow space", "<!--respawn:begin one-->\n", `doc.md:1: malformed marker "<!--respawn:begin one-->"`},
		{"a block that cannot be written", "<!-- respawn:begin bad -->\n<!-- respawn:end -->\n", "doc.md:2: block bad: no ink"},
	} {
		_, _, err := regenerate("doc.md", tc.doc, known)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestDiffShowsTheChangedLinesWithSomeAround(t *testing.T) {
	const have = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"
	for _, tc := range []struct{ name, want, diff string }{
		{"nothing changed", have, "…\n"},
		{"one line", strings.Replace(have, "e\n", "E\n", 1), "…\n c\n d\n-e\n+E\n f\n g\n…\n"},
		{"a line less at the end", strings.Replace(have, "j\n", "", 1), "…\n h\n i\n-j\n"},
		{"a line more at the start", "0\n" + have, "+0\n a\n b\n…\n"},
		{"two places", strings.NewReplacer("a\n", "A\n", "j\n", "J\n").Replace(have), "-a\n+A\n b\n c\n…\n h\n i\n-j\n+J\n"},
		{"everything", "", "-a\n-b\n-c\n-d\n-e\n-f\n-g\n-h\n-i\n-j\n"},
	} {
		if got := diff(have, tc.want); got != tc.diff {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, got, tc.diff)
		}
	}
}

func TestACheckThatFindsNoBlockFails(t *testing.T) {
	dir := t.TempDir()
	plain, marked := filepath.Join(dir, "plain.md"), filepath.Join(dir, "marked.md")
	for name, text := range map[string]string{plain: "# A\n", marked: "<!-- respawn:begin lifecycle-mermaid -->\n<!-- respawn:end -->\n"} {
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	respawn("diagram", "-write", marked)
	for _, mode := range []string{"-check", "-write"} {
		if got, want := respawn("diagram", mode, plain), (said{exitFailure, "", "respawn diagram: no generated block in any of the files\n"}); got != want {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
		if got, want := respawn("diagram", mode, plain, marked), (said{exitOK, "", ""}); got != want {
			t.Errorf("%s of a file with a block too: %+v, want %+v", mode, got, want)
		}
	}
}

func TestWriteRepairsWhatCheckRefuses(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	const text = "# Lifecycle\n<!-- respawn:begin lifecycle-table -->\nold\n<!-- respawn:end -->\n"
	if err := os.WriteFile(doc, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	check := respawn("diagram", "-check", doc)
	if check.code != exitFailure || check.err != "" ||
		!strings.HasPrefix(check.out, doc+":2: lifecycle-table is not what the code says (- file, + code):\n-old\n") ||
		!strings.Contains(check.out, "+| **closed** | stop |") {
		t.Fatalf("check of a stale block: %+v", check)
	}
	if got, want := respawn("diagram", "-write", doc), (said{exitOK, doc + ":2: wrote lifecycle-table\n", ""}); got != want {
		t.Fatalf("write: %+v, want %+v", got, want)
	}
	for _, mode := range []string{"-check", "-write"} {
		if got, want := respawn("diagram", mode, doc), (said{}); got != want {
			t.Errorf("%s of a fresh block: %+v, want silence", mode, got)
		}
	}
	info, err := os.Stat(doc)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v, %v; want 0640", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(doc), "*")); len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
}

func TestOneBadFileDoesNotHideTheOthers(t *testing.T) {
	dir := t.TempDir()
	bad, stale := filepath.Join(dir, "bad.md"), filepath.Join(dir, "stale.md")
	for name, text := range map[string]string{
		bad:   "<!-- respawn:begin nothing -->\n",
		stale: "<!-- respawn:begin lifecycle-dot -->\n<!-- respawn:end -->\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := respawn("diagram", "-check", filepath.Join(dir, "none.md"), bad, stale)
	if got.code != exitFailure || !strings.Contains(got.err, "none.md: no such file") ||
		!strings.Contains(got.err, bad+":1: unknown block \"nothing\"") || !strings.HasPrefix(got.out, stale+":1: lifecycle-dot") {
		t.Errorf("%+v", got)
	}
}

// The documents are part of the program: what is generated in them must be what
// this code generates, byte for byte.
func TestTheGeneratedBlocksOfTheDocsAreFresh(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no docs found: %v", err)
	}
	if _, err := os.Stat("../../README.md"); err == nil {
		docs = append(docs, "../../README.md")
	}
	if got, want := respawn(append([]string{"diagram", "-check"}, docs...)...), (said{}); got != want {
		t.Errorf("%s%s\nrun: make docs", got.err, got.out)
	}
}

// Whatever a document looks like, what was written once is fresh, and text
// outside of blocks is never touched.
func FuzzRegenerate(f *testing.F) {
	known := []block{{"one", func(w io.Writer) error { _, err := io.WriteString(w, "1\n"); return err }}}
	f.Add("a\n<!-- respawn:begin one -->\nx\n<!-- respawn:end -->\nb")
	f.Add("<!-- respawn:begin one -->\r\n<!-- respawn:end -->")
	f.Add("<!-- respawn:begin two -->\n")
	f.Fuzz(func(t *testing.T, doc string) {
		fresh, stale, err := regenerate("doc.md", doc, known)
		if err != nil {
			if fresh != "" || stale != nil || !strings.HasPrefix(err.Error(), "doc.md:") {
				t.Fatalf("error %v with %q and %v", err, fresh, stale)
			}
			return
		}
		if !strings.Contains(doc, "<!-- respawn:begin") && fresh != doc {
			t.Fatalf("no block, and %q became %q", doc, fresh)
		}
		again, stale, err := regenerate("doc.md", fresh, known)
		if again != fresh || stale != nil || err != nil {
			t.Fatalf("%q became %q with %v, %v", fresh, again, stale, err)
		}
	})
}
