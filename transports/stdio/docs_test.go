package stdio

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
	want := map[string]string{
		"(MaxQueued)":                size(transports.MaxQueued),
		"(batch)":                    size(batch),
		"(readBuffer)":               size(readBuffer),
		"(keepBuffer)":               size(keepBuffer),
		"(maxLate)":                  size(maxLate),
		"(sampleMax)":                size(sampleMax),
		"(tailShown)":                size(tailShown),
		"(sinkChunks × stderrChunk)": size(sinkChunks * stderrChunk),
		"(sinkPatience)":             sinkPatience.String(),
		"(sinkFlush)":                sinkFlush.String(),
	}
	conf, err := Config{Path: "x"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for f, v := range reflect.ValueOf(conf).Fields() {
		switch value := v.Interface().(type) {
		case time.Duration:
			want["`"+f.Name+"`"] = value.String()
			if value == 0 {
				want["`"+f.Name+"`"] = "never"
			}
		case int:
			want["`"+f.Name+"`"] = size(value)
		}
	}
	_, section, _ := bytes.Cut(page, []byte("\n## stdio\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z]\\w+`|\\([\\w× ]+\\)) \\| ([^|]+) \\|").FindAllStringSubmatch(string(section), -1) {
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
