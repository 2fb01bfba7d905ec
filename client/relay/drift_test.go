package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
)

// changing is a server that says something else of itself from its second life on.
func changing(t *testing.T, shape transports.Shape, version, capabilities string) *server {
	return &server{shape: shape, on: func(l *life, m message) error {
		switch {
		case m.Method == "initialize" && l.gen == 1:
			l.Write(m.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"a":{"b":1,"c":[]},"tools":{}}}}`, m.ID))
		case m.Method == "initialize":
			l.Write(m.ref, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":%s}}`, m.ID, version, capabilities))
		default:
			return legacy(l, m)
		}
		return nil
	}}
}

func TestRelay_Rule7_AReplacementThatIsAnotherServerEndsItWhateverTheBudget(t *testing.T) {
	parked, err := policy.Park(policy.Patient(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	const same, other = `{"a":{"b":1,"c":[]},"tools":{}}`, `{"tools":{}}`
	given := []string{"1: -31003, not executed, attempt 0"}
	served := []string{`1: {"gen":2}`}
	for name, c := range map[string]struct {
		version, capabilities string
		budget                policy.Budget
		exit                  bool
		state                 fsm.State
		heard                 []string
	}{
		"the same":                 {"2025-11-25", same, policy.Unlimited(), true, fsm.Serving, served},
		"the same in other words":  {"2025-11-25", "{\"tools\": {},\n\"a\": {\"c\": [], \"\\u0062\": 1.0}}", policy.Unlimited(), true, fsm.Serving, served},
		"a version":                {"2025-06-18", same, policy.Unlimited(), false, fsm.Exhausted, given},
		"a version, patiently":     {"2025-06-18", same, policy.Patient(), false, fsm.Exhausted, given},
		"capabilities":             {"2025-11-25", other, policy.Unlimited(), true, fsm.Exhausted, given},
		"capabilities, lived with": {"2025-11-25", other, policy.Unlimited(), false, fsm.Serving, served},
		"a version, parked":        {"2025-06-18", same, parked, false, fsm.Dead, []string{"1: -31002, not executed, attempt 0"}},
	} {
		for _, shape := range []transports.Shape{transports.Pipe, transports.Posts} {
			t.Run(fmt.Sprint(name, shape), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := changing(t, shape, c.version, c.capabilities)
					h := opened(t, s, relay.Config{Budget: c.budget, ExitOnDrift: c.exit})
					s.kill()
					synctest.Wait()
					h.say(call(1, "tools/list"))
					sleep(30 * time.Second)
					expect(t, "the host", h.brief(), c.heard)
					if got := h.State(); got != c.state {
						t.Errorf("the relay is %v, want %v", got, c.state)
					}
					if err := h.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
