package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/respawn-mcp/respawn/policy"
)

// A budget of one's own: at most 10 restarts in any hour, the first at once,
// then from 1 s up to 1 min, and once they are used up one try every 5 minutes.
func ExampleSliding() {
	wait := policy.Backoff{AtOnce: true, Base: time.Second, Factor: 2, Cap: time.Minute, Jitter: 0.2}
	hourly, err := policy.Sliding(10, time.Hour, wait)
	if err != nil {
		fmt.Println(err)
		return
	}
	budget, err := policy.Park(hourly, 5*time.Minute)
	fmt.Println(budget, err)
	// Output:
	// 10 restarts in any 1h (sliding), delay at once, then 1s ×2 up to 1m, jitter 0 to +20 %, then one try per 5m on use <nil>
}

// Values that make no sense are refused when a budget is built.
func ExampleTumbling() {
	_, err := policy.Tumbling(0, time.Minute, policy.Constant(100*time.Millisecond))
	fmt.Println(err, errors.Is(err, policy.ErrInvalid))
	// Output:
	// policy: invalid value: 0 restarts is not positive (Never forgives none) true
}

// The rules say what becomes of a request that lost its answer, and why.
func ExampleRules_Decide() {
	d := policy.Rules(nil).Decide(policy.Loss{Kind: policy.Died, Method: "tools/call", Era: policy.Legacy, Shape: policy.Pipe})
	fmt.Printf("rule %d: %v, %s\n", d.Rule, d.Action, d.Why)
	// Output:
	// rule 8: fail, the tool may have run, and annotations say nothing about half a run
}
