package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// sizes of the text in bytes: a short call, and one that fills a pipe buffer.
var sizes = []int{100, 64 << 10}

// cell is one condition under which every client is measured.
type cell struct{ size, inFlight int }

var cells = []cell{{100, 1}, {100, 64}, {64 << 10, 1}, {64 << 10, 64}}

func (c cell) String() string {
	size := fmt.Sprintf("%d B", c.size)
	if c.size >= 1<<10 {
		size = fmt.Sprintf("%d KiB", c.size>>10)
	}
	if c.inFlight == 1 {
		return size + " sequential"
	}
	return fmt.Sprintf("%s, %d at once", size, c.inFlight)
}

// text is a text of that many bytes that JSON does not escape.
func text(size int) string { return strings.Repeat("x", size) }

// sample is one measurement of one client in one cell.
type sample struct {
	calls   int
	elapsed time.Duration
	cpu     time.Duration // of this process
	allocs  float64       // in this process, a call
	bytes   float64
	dials   int // connections that the server has accepted
}

func (s sample) perCall() time.Duration { return s.elapsed / time.Duration(s.calls) }

// Names in the table.
const (
	nameRaw   = "raw pipe"
	nameLeast = "least client"
	nameSDK   = "official SDK v1.8.0"
	nameMark  = "mcp-go v1.2.1"
)

var contenders = []contender{
	{nameLeast, dialLeast},
	{nameOurs, dialOursCall},
	{nameRetry, dialOursRetry},
	{nameTyped, dialOursTyped},
	{nameSDK, dialSDK},
	{nameMark, dialMarkLabs},
}

// speed is the outcome: samples by cell and name, one a round, rounds aligned.
type speed struct {
	over    string // what the calls went over
	base    string // whom the others are held against
	names   []string
	samples map[cell]map[string][]sample
	expects []expectation
	// accepted is how many connections the server has accepted so far; nil where
	// there are none.
	accepted func() (int, error)
}

// expectation is how fast a side has to be against another in a cell.
type expectation struct {
	at            cell
	name, against string
	ratio         float64
}

// measurer measures one connected client for a while.
type measurer func(cell, time.Duration) (sample, error)

func measureSpeed(ctx context.Context, t target, rounds int, slice time.Duration) (*speed, error) {
	pipe, err := dialRaw(t)
	if err != nil {
		return nil, err
	}
	defer pipe.proc.close()
	sides := map[string]measurer{nameRaw: pipe.measure}
	names := []string{nameRaw}
	for _, c := range contenders {
		side, err := c.dial(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer side.close()
		names = append(names, c.name)
		sides[c.name] = func(at cell, slice time.Duration) (sample, error) { return measureClient(ctx, side, at, slice) }
	}
	s := &speed{over: "stdio", base: nameLeast, names: names, expects: stdioExpects()}
	return s, s.measure(cells, rounds, slice, sides)
}

// measure measures all sides in all cells. Round 0 warms everything up and is
// thrown away.
func (s *speed) measure(cells []cell, rounds int, slice time.Duration, sides map[string]measurer) error {
	for round := range rounds + 1 {
		for _, at := range cells {
			if err := s.round(round, at, slice, sides); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures every side once, each round beginning with another one.
func (s *speed) round(round int, at cell, slice time.Duration, sides map[string]measurer) error {
	for i := range s.names {
		name := s.names[(i+round)%len(s.names)]
		runtime.GC() // nobody pays for the garbage of the one before
		got, err := s.one(sides[name], at, slice)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", name, at, err)
		}
		if round == 0 {
			continue
		}
		if s.samples == nil {
			s.samples = map[cell]map[string][]sample{}
		}
		if s.samples[at] == nil {
			s.samples[at] = map[string][]sample{}
		}
		s.samples[at][name] = append(s.samples[at][name], got)
	}
	return nil
}

// one measures one side once, and counts the connections that it makes.
func (s *speed) one(side measurer, at cell, slice time.Duration) (got sample, err error) {
	before := 0
	if s.accepted != nil {
		if before, err = s.accepted(); err != nil {
			return sample{}, err
		}
	}
	if got, err = side(at, slice); err != nil || s.accepted == nil {
		return got, err
	}
	after, err := s.accepted()
	got.dials = after - before
	return got, err
}

// measureClient lets as many goroutines as the cell has calls in flight call
// one after another, and checks each answer.
func measureClient(ctx context.Context, side peer, at cell, slice time.Duration) (sample, error) {
	var (
		wg     sync.WaitGroup
		calls  atomic.Int64
		failed = make(chan error, at.inFlight)
		body   = text(at.size)
		before runtime.MemStats
		after  runtime.MemStats
	)
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	start := time.Now()
	for range at.inFlight {
		wg.Go(func() {
			for time.Since(start) < slice {
				got, err := side.call(ctx, body)
				if err == nil && got != body {
					err = fmt.Errorf("the echo of %d bytes has %d", len(body), len(got))
				}
				if err != nil {
					failed <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	select {
	case err := <-failed:
		return sample{}, err
	default:
	}
	n := float64(calls.Load())
	return sample{
		calls:   int(calls.Load()),
		elapsed: elapsed,
		cpu:     cpu,
		allocs:  float64(after.Mallocs-before.Mallocs) / n,
		bytes:   float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}

// median of the values that f takes from the samples of one side.
func (s *speed) median(at cell, name string, f func(sample) float64) float64 {
	var values []float64
	for _, got := range s.samples[at][name] {
		values = append(values, f(got))
	}
	return median(values)
}

// ratio is how fast a side is against another: the median over the rounds of
// their speeds in the same round, so that a slow moment meets both.
func (s *speed) ratio(at cell, name, against string) float64 {
	var values []float64
	for i, got := range s.samples[at][name] {
		values = append(values, float64(s.samples[at][against][i].perCall())/float64(got.perCall()))
	}
	return median(values)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

func (s *speed) print(w io.Writer) {
	for _, at := range cells {
		fmt.Fprintf(w, "\n%s, %s (medians of %d rounds)\n", s.over, at, len(s.samples[at][s.base]))
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tw, "client\tµs a call\tcalls/s\tspeed against %s\tµs CPU\tallocs\tKiB\t", s.base)
		if s.accepted != nil {
			fmt.Fprint(tw, "dials\t")
		}
		fmt.Fprintln(tw)
		for _, name := range s.names {
			per := s.median(at, name, func(got sample) float64 { return float64(got.perCall()) })
			fmt.Fprintf(tw, "%s\t%.1f\t%.0f\t%.2f\t", name, per/1e3, 1e9/per, s.ratio(at, name, s.base))
			cpu := s.median(at, name, func(got sample) float64 { return float64(got.cpu) / float64(got.calls) })
			if cpu == 0 { // not measured
				fmt.Fprint(tw, "\t\t\t\n")
				continue
			}
			fmt.Fprintf(tw, "%.1f\t%.1f\t%.1f\t", cpu/1e3,
				s.median(at, name, func(got sample) float64 { return got.allocs }),
				s.median(at, name, func(got sample) float64 { return got.bytes / 1024 }))
			if s.accepted != nil {
				fmt.Fprintf(tw, "%d\t", s.dials(at, name))
			}
			fmt.Fprintln(tw)
		}
		tw.Flush()
	}
}

// dials are the connections that were made while a side was measured in a cell,
// whose warm-up has made what it needs.
func (s *speed) dials(at cell, name string) (n int) {
	for _, got := range s.samples[at][name] {
		n += got.dials
	}
	return n
}

// stdioExpects are how fast a call has to be against the least client, and that it
// is ahead of the other clients in every cell, type for type with the SDK.
func stdioExpects() []expectation {
	return append([]expectation{
		{cell{100, 1}, nameOurs, nameLeast, 0.85},
		{cell{100, 64}, nameOurs, nameLeast, 0.75},
		{cell{100, 64}, nameRetry, nameOurs, 0.95},
	}, aheadOfOthers()...)
}

func aheadOfOthers() (all []expectation) {
	for _, at := range cells {
		for _, name := range []string{nameOurs, nameTyped} {
			all = append(all, expectation{at, name, nameSDK, 1}, expectation{at, name, nameMark, 1})
		}
	}
	return all
}

// unmet are the expectations that the samples do not meet.
func (s *speed) unmet() (failed []string) {
	for _, x := range s.expects {
		if got := s.ratio(x.at, x.name, x.against); got < x.ratio {
			failed = append(failed, fmt.Sprintf("%s, %s: %s is at %.2f of the %s, expected at least %.2f",
				s.over, x.at, x.name, got, x.against, x.ratio))
		}
	}
	for _, at := range cells {
		for _, name := range []string{nameOurs, nameTyped} {
			if n := s.dials(at, name); n > 0 {
				failed = append(failed, fmt.Sprintf("%s, %s: %s made %d connections more than it had", s.over, at, name, n))
			}
		}
	}
	return failed
}
