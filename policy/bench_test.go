package policy_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/respawn-mcp/respawn/policy"
)

func BenchmarkEvidence(b *testing.B) {
	tools := make([]string, 100)
	for i := range tools {
		schema := strings.Repeat(`"p":{"type":"string","description":"a parameter of some use"},`, 8)
		tools[i] = fmt.Sprintf(`{"name":"tool%d","inputSchema":{"type":"object","properties":{%s"q":{}}},"annotations":%s}`, i, schema, reads)
	}
	params, listing := raw(noParams), page("", tools...)
	b.SetBytes(int64(len(listing)))
	b.ReportAllocs()
	for b.Loop() {
		Evidence{}.Add(params, listing)
	}
}

func BenchmarkDecide(b *testing.B) {
	l := Loss{Kind: Broken, Method: "vendor/x", Era: Modern}
	b.ReportAllocs()
	for b.Loop() {
		Rules(nil).Decide(l)
	}
}
