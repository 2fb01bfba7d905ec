package streamable

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

// The table of bounds in the docs has every bound with its true default.
func TestTheDocsTellTheBounds(t *testing.T) {
	page, err := os.ReadFile("../../docs/transports.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := bytes.Cut(page, []byte("\n## streamable\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	want := map[string]string{
		"(MaxQueued)":   size(transports.MaxQueued),
		"(maxDead)":     fmt.Sprint(maxDead),
		"(maxHops)":     fmt.Sprint(maxHops),
		"(aliveEvery)":  aliveEvery.String(),
		"(maxRetry)":    maxRetry.String(),
		"(eventBuffer)": size(eventBuffer),
		"(trusted)":     size(trusted),
		"(askAgain)":    askAgain.String(),
		"(earlyMax)":    earlyMax.String(),
		"(sampleMax)":   size(sampleMax),
		"(dialWait)":    dialWait.String(),
		"(tlsWait)":     tlsWait.String(),
		"(idleWait)":    idleWait.String(),
		"(pingAfter)":   pingAfter.String(),
		"(pingWait)":    pingWait.String(),
		"(maxHeader)":   size(maxHeader),
	}
	for f, v := range reflect.ValueOf(Config{}.withDefaults()).Fields() {
		switch value := v.Interface().(type) {
		case time.Duration:
			want["`"+f.Name+"`"] = value.String()
		case int:
			want["`"+f.Name+"`"] = size(value)
			if f.Name == "IdleConns" {
				want["`"+f.Name+"`"] = fmt.Sprint(value)
			}
		}
	}
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z]\\w+`|\\(\\w+\\)) \\| ([^|]+) \\|").FindAllStringSubmatch(string(section), -1) {
		got[row[1]] = row[2]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bounds (-code +docs):\n%s", diff)
	}
}

func size(n int) string {
	for _, unit := range []struct {
		name  string
		bytes int
	}{{"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
