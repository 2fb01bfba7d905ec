// Command bench measures clients against the same lightest server, and over HTTP
// against the official Go SDK's: a raw pipe or raw POSTs, the least client that
// does the same JSON work, and others. Each round measures every client in every
// cell once, so that a change of the machine's speed meets all of them; the tables
// show medians over the rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// options are what the parts of the bench need to know.
type options struct {
	target    target
	shim      string // path of the built respawn
	sdkServer string
	rounds    int
	slice     time.Duration
	kills     int
	clients   int
}

// finding is what a part of the bench found out.
type finding interface {
	print(io.Writer)
	unmet() []string // the expectations that it does not meet
}

// parts are the parts of the bench, in the order in which they run.
var parts = []struct {
	name    string
	measure func(context.Context, options) (finding, error)
}{
	{"speed", func(ctx context.Context, o options) (finding, error) {
		return measureSpeed(ctx, o.target, o.rounds, o.slice)
	}},
	{"recovery", func(ctx context.Context, o options) (finding, error) { return measureRecovery(ctx, o.target, o.kills) }},
	{"shim", func(ctx context.Context, o options) (finding, error) {
		return measureShim(ctx, o.target, o.shim, o.rounds, o.slice)
	}},
	{"idle", func(ctx context.Context, o options) (finding, error) { return measureIdle(ctx, o.target, o.clients) }},
	{"storm", func(ctx context.Context, o options) (finding, error) {
		return measureStorm(ctx, o.target, o.rounds, o.slice)
	}},
	{"legacy", func(ctx context.Context, o options) (finding, error) {
		return measureWeb(ctx, o.sdkServer, true, o.rounds, o.slice)
	}},
	{"modern", func(ctx context.Context, o options) (finding, error) {
		return measureWeb(ctx, o.sdkServer, false, o.rounds, o.slice)
	}},
	{"refused", func(ctx context.Context, o options) (finding, error) {
		return measureRefusal(ctx, o.sdkServer, o.rounds)
	}},
}

func main() {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	var o options
	flag.StringVar(&o.target.path, "server", "", "path of the built echoserver (required)")
	flag.StringVar(&o.shim, "shim", "", "path of the built respawn (required)")
	flag.StringVar(&o.sdkServer, "sdkserver", "", "path of the built sdkserver (required)")
	flag.BoolVar(&o.target.legacy, "legacy", false, "on stdio, measure in the 2025-11-25 era instead of 2026-07-28")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds, at least 5")
	flag.DurationVar(&o.slice, "slice", 250*time.Millisecond, "how long each client is measured in each cell of a round")
	flag.IntVar(&o.kills, "kills", 41, "how often each side is killed")
	flag.IntVar(&o.clients, "clients", 1000, "how many idle clients there are")
	storm := flag.Bool("be-a-storm", false, "only kill a server again and again, until stdin is closed")
	copier := flag.Bool("be-a-copier", false, "only start the command that follows, and copy bytes to and from it")
	only := flag.String("only", strings.Join(names, ","), "the parts to run")
	judge := flag.Bool("judge", false, "exit 1 where an expectation is not met")
	flag.Parse()
	if *storm {
		if err := beAStorm(o.target); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *copier {
		if err := beACopier(flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if o.target.path == "" || o.shim == "" || o.sdkServer == "" || o.rounds < 5 {
		flag.Usage()
		os.Exit(2)
	}
	failed, err := run(o, strings.Split(*only, ","))
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

// run prints what each part finds and returns the expectations that were not met.
func run(o options, only []string) (failed []string, err error) {
	for _, p := range parts {
		if !slices.Contains(only, p.name) {
			continue
		}
		found, err := p.measure(context.Background(), o)
		if err != nil {
			return failed, fmt.Errorf("%s: %w", p.name, err)
		}
		found.print(os.Stdout)
		failed = append(failed, found.unmet()...)
	}
	return failed, nil
}
