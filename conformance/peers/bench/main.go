// Command bench measures clients against the same lightest server: a raw pipe,
// the least client that does the same JSON work, and others. Each round measures
// every client in every cell once, so that a change of the machine's speed
// meets all of them; the table shows medians over the rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	var (
		server = flag.String("server", "", "path of the built echoserver (required)")
		shim   = flag.String("shim", "", "path of the built respawn, to measure it as a shim too")
		only   = flag.Bool("only-shim", false, "measure nothing but that")
		legacy = flag.Bool("legacy", false, "measure in the 2025-11-25 era instead of 2026-07-28")
		rounds = flag.Int("rounds", 7, "rounds, at least 5")
		slice  = flag.Duration("slice", 250*time.Millisecond, "how long each client is measured in each cell of a round")
		kills  = flag.Int("kills", 41, "how often each side is killed")
		judge  = flag.Bool("judge", false, "exit 1 where an expectation is not met")
	)
	flag.Parse()
	if *server == "" || *rounds < 5 {
		flag.Usage()
		os.Exit(2)
	}
	target := target{path: *server, legacy: *legacy}
	var failed []string
	var err error
	if !*only {
		failed, err = run(target, *rounds, *slice, *kills)
	}
	if err == nil && *shim != "" {
		target.shim = *shim
		var cost *shimCost
		if cost, err = measureShim(context.Background(), target, *rounds, *slice); err == nil {
			cost.print(os.Stdout)
			failed = append(failed, cost.unmet()...)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	for _, f := range failed {
		fmt.Println("not met:", f)
	}
	if *judge && len(failed) > 0 {
		os.Exit(1)
	}
}

// run prints both tables and returns the expectations that were not met.
func run(t target, rounds int, slice time.Duration, kills int) ([]string, error) {
	ctx := context.Background()
	speed, err := measureSpeed(ctx, t, rounds, slice)
	if err != nil {
		return nil, err
	}
	speed.print(os.Stdout)
	recovery, err := measureRecovery(ctx, t, kills)
	if err != nil {
		return nil, err
	}
	recovery.print(os.Stdout)
	return append(speed.unmet(), recovery.unmet()...), nil
}
