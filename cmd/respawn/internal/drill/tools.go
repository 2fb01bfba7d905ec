package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// listTools lists the tools, each as one line of JSON.
func listTools(ctx context.Context, s *subject) ([]string, error) {
	var tools, names []string
	for tool, err := range s.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(tool)
		if err != nil {
			return nil, err
		}
		tools, names = append(tools, string(raw)), append(names, tool.Name)
	}
	s.d.say("tools", fmt.Sprintf("%d: %s", len(names), abridged(names)), field{"tools", names})
	return tools, nil
}

// shownTools is how many names fit a line.
const shownTools = 8

func abridged(names []string) string {
	if len(names) <= shownTools {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shownTools], ", ") + ", …"
}

// sameTools compares two listings and says what differs.
func sameTools(before, after []string) (bool, string) {
	if slices.Equal(before, after) {
		return true, fmt.Sprintf("%d tools, names and schemas", len(after))
	}
	rest := map[string]int{}
	for _, t := range before {
		rest[t]++
	}
	fresh := 0
	for _, t := range after {
		if rest[t]--; rest[t] < 0 {
			fresh++
		}
	}
	gone := len(before) + fresh - len(after)
	if gone+fresh == 0 {
		return true, fmt.Sprintf("%d tools, names and schemas, in another order", len(after))
	}
	return false, fmt.Sprintf("%d of %d are gone or changed, %d are new or changed", gone, len(before), fresh)
}
