package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestOutput_OurLinesAreNeverGluedToTheServers(t *testing.T) {
	for name, c := range map[string]struct {
		says []string // ours begin with "#"
		want string
	}{
		"at first":               {[]string{"#a"}, "#a\n"},
		"after a line":           {[]string{"x\n", "#a"}, "x\n#a\n"},
		"in the middle of one":   {[]string{"x", "#a", "#b", "y\n", "#c"}, "x\n#a\n#b\ny\n#c\n"},
		"nothing is said at all": {[]string{"x", "", "#a"}, "x\n#a\n"},
	} {
		var got strings.Builder
		err := &stderr{to: &got}
		for _, s := range c.says {
			if strings.HasPrefix(s, "#") {
				fmt.Fprintln(ourLines{err}, s)
			} else {
				fmt.Fprint(err, s)
			}
		}
		if got.String() != c.want {
			t.Errorf("%s: %q, want %q", name, got.String(), c.want)
		}
	}
}
