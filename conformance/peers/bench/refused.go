package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/respawn-mcp/respawn/client"
)

// refusal is what it costs that a server forgets the session of many callers at
// once, against rounds in which it does not.
type refusal struct {
	plain, refused []time.Duration
	initializes    []int // in each refused round
	requests       []int // that were refused in it
}

const (
	// refusedCallers is how many call at once.
	refusedCallers = 1000
	// refusedTakes is how many plain rounds a refused one may take: one to be
	// refused, one to be answered, and one for the handshake.
	refusedTakes = 3.0
)

func measureRefusal(ctx context.Context, path string, rounds int) (*refusal, error) {
	w, err := startWeb(path, true)
	if err != nil {
		return nil, err
	}
	defer w.close()
	r := &refusal{}
	for round := range rounds + 1 { // round 0 warms everything up
		if err := r.round(ctx, w, round == 0); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// round takes a client of its own, since one whose server forgets it again and
// again waits longer each time.
func (r *refusal) round(ctx context.Context, w *web, warm bool) error {
	c, err := dialOursWeb(ctx, w, &client.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var plain time.Duration
	for range 2 { // the first one makes the connections
		if plain, err = together(ctx, c); err != nil {
			return err
		}
	}
	before, err := w.count()
	if err != nil {
		return err
	}
	if err := w.forget(refusedCallers); err != nil {
		return err
	}
	refused, err := together(ctx, c)
	if err != nil {
		return err
	}
	after, err := w.count()
	if err != nil || warm {
		return err
	}
	r.plain, r.refused = append(r.plain, plain), append(r.refused, refused)
	r.initializes = append(r.initializes, after.Initializes-before.Initializes)
	r.requests = append(r.requests, after.Refused-before.Refused)
	return nil
}

// together lets all callers call once, and takes the time until all are answered.
func together(ctx context.Context, c *client.Client) (time.Duration, error) {
	var (
		all   sync.WaitGroup
		body  = text(sizes[0])
		fails = make([]error, refusedCallers)
	)
	start := time.Now()
	for i := range refusedCallers {
		all.Go(func() { _, fails[i] = oursCall{c}.call(ctx, body) })
	}
	all.Wait()
	return time.Since(start), errors.Join(fails...)
}

func (r *refusal) ratio() float64 {
	var values []float64
	for i, took := range r.refused {
		values = append(values, float64(took)/float64(r.plain[i]))
	}
	return median(values)
}

func (r *refusal) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d callers whose session is forgotten (medians of %d rounds)\n", refusedCallers, len(r.plain))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "round\tms\tagainst plain\t")
	fmt.Fprintf(tw, "plain\t%.1f\t1.00\t\n", ms(middle(r.plain)))
	fmt.Fprintf(tw, "refused\t%.1f\t%.2f\t\n", ms(middle(r.refused)), r.ratio())
	tw.Flush()
	fmt.Fprintln(w, "refused in each round:", r.requests, " initializes:", r.initializes)
}

func (r *refusal) unmet() (failed []string) {
	if got := r.ratio(); got > refusedTakes {
		failed = append(failed, fmt.Sprintf("a round of refused callers takes %.2f plain ones, expected at most %.0f", got, refusedTakes))
	}
	for i, n := range r.initializes {
		if n != 1 || r.requests[i] != refusedCallers {
			failed = append(failed, fmt.Sprintf("%d requests were refused and %d initializes made, expected %d and 1", r.requests[i], n, refusedCallers))
		}
	}
	return failed
}
