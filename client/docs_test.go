package client_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/client"
)

// docs/client.md names each option once, with the default that the code has.
func TestTheDocsNameEachOptionAndItsDefault(t *testing.T) {
	page, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "## Options\n")
	table, _, closed := strings.Cut(table, "\n## ")
	if !found || !closed {
		t.Fatal("docs/client.md has no chapter Options")
	}
	rows, named := map[string]string{}, regexp.MustCompile("`([A-Za-z]+)`")
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(cells[1], -1) {
			if rows[m[1]] != "" {
				t.Errorf("%s is named twice", m[1])
			}
			rows[m[1]] = cells[2]
		}
	}
	config := reflect.TypeFor[client.Config]()
	for i := range config.NumField() {
		name := config.Field(i).Name
		if rows[name] == "" {
			t.Errorf("docs/client.md does not name %s", name)
		}
		delete(rows, name)
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf(" %d s ", d/time.Second) }
	_, table, _ = strings.Cut(string(page), "## Options\n")
	for name, want := range map[string]string{
		"StartTimeout": seconds(client.DefaultStartTimeout), "ProbeTimeout": seconds(client.DefaultProbeTimeout),
		"DrainTimeout": seconds(client.DefaultDrainTimeout), "RequestTimeout": seconds(client.DefaultRequestTimeout),
		"MaxRequestTimeout": seconds(client.DefaultMaxRequestTimeout),
		"MaxHeld":           fmt.Sprintf(" %d,%03d calls ", client.DefaultMaxHeld/1000, client.DefaultMaxHeld%1000),
		"MaxHeldBytes":      fmt.Sprintf(" %d MiB ", client.DefaultMaxHeldBytes>>20),
	} {
		if row := "| `" + name + "` |" + want + "|"; !strings.Contains(table, row) {
			t.Errorf("docs/client.md does not say %s", row)
		}
	}
	for name := range rows {
		t.Errorf("docs/client.md names %s, which is no option", name)
	}
}
