package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the README shows is what compiles here.
func TestTheReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(source), "func ExampleConnect() {\n")
	body, closed := strings.CutSuffix(body, "}\n")
	if !found || !closed {
		t.Fatal("example_test.go does not end in func ExampleConnect")
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "```go\n")
	shown, _, closed = strings.Cut(shown, "```\n")
	if !found || !closed {
		t.Fatal("the README has no Go block")
	}
	if diff := cmp.Diff(strings.ReplaceAll("\n"+body, "\n\t", "\n"), "\n"+shown); diff != "" {
		t.Errorf("the README's example (-example_test.go +README.md):\n%s", diff)
	}
}
