package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
)

// The entries in docs/hosts.md are what people copy.
func TestTheEntriesInTheDocsAreOnesThatRunUnderstands(t *testing.T) {
	page, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	type server struct {
		Type    string
		Command string
		Args    []string
		Env     map[string]string
	}
	var seen []string
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1) {
		var hosts map[string]map[string]server
		if err := json.Unmarshal(block[1], &hosts); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		for key, servers := range hosts {
			seen = append(seen, key)
			for name, s := range servers {
				if s.Command != "respawn" || len(s.Args) == 0 || s.Args[0] != "run" {
					t.Errorf("%s.%s does not start respawn run: %+v", key, name, s)
					continue
				}
				opt, said, err := parsed(t, s.Env, s.Args[1:]...)
				if err != nil {
					t.Errorf("%s.%s: %v %s", key, name, err, said)
					continue
				}
				if opt.server.Path != "npx" || len(opt.server.Args) != 3 {
					t.Errorf("%s.%s runs %s %v", key, name, opt.server.Path, opt.server.Args)
				}
				if got := view(opt).budget; got == view(mustParse(t)).budget {
					t.Errorf("%s.%s: what it sets does not arrive: %s", key, name, got)
				}
			}
		}
	}
	slices.Sort(seen)
	if want := []string{"mcpServers", "servers"}; !slices.Equal(seen, want) {
		t.Errorf("the page has entries for %v, want %v", seen, want)
	}
}

func mustParse(t *testing.T) *runOptions {
	t.Helper()
	opt, said, err := parsed(t, nil, "server")
	if err != nil {
		t.Fatal(err, said)
	}
	return opt
}
