package transports_test

import (
	"testing"

	"github.com/respawn-mcp/respawn/transports"
)

func TestB104_IDsSpelledDifferentlyMeanTheirInteger(t *testing.T) {
	for raw, want := range map[string]string{
		`5`: "5", `"5"`: "5", `5.0`: "5", `5e0`: "5", `"5.0"`: "5", `0`: "0",
		`5.5`: "", `"five"`: "", `-5`: "", `"+5"`: "", `null`: "", ``: "", `9007199254740993`: "", `1e300`: "", `"NaN"`: "", `"Inf"`: "", `"0x5p0"`: "",
	} {
		if got := transports.LooseID([]byte(raw)); got != want {
			t.Errorf("%s means %q, want %q", raw, got, want)
		}
	}
}

func TestAnIDThatMeansAnotherRequestIsKnown(t *testing.T) {
	for _, tc := range []struct {
		got, want string
		same      bool
	}{
		{"5", "5", true},
		{`"5"`, "5", true},
		{"5", `"5"`, true},
		{"5.0", "5", true},
		{"5e0", "5", true},
		{"0", "5", true},
		{"null", "5", true},
		{"", "5", true},
		{`"a"`, `"a"`, true},
		{"6", "", true}, // it was not said
		{"6", "5", false},
		{`"a"`, "5", false},
		{`"a"`, `"b"`, false},
		{`"+5"`, "5", false},
		{"9007199254740993", "9007199254740992", false},
	} {
		if got := transports.SameID([]byte(tc.got), tc.want); got != tc.same {
			t.Errorf("an answer to %s where %s was asked is its own: %v, want %v", tc.got, tc.want, got, tc.same)
		}
	}
}
