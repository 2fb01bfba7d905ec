package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// delays are the configured delays before a restart under which recovery is
// measured: none, and the default of policy.Contract.
var delays = []time.Duration{0, 100 * time.Millisecond}

// recovery is how long it takes from the kill of the server to the next
// answered call, one sample a kill, kills aligned.
type recovery struct {
	bare []time.Duration
	ours map[time.Duration][]time.Duration // by delay
}

func measureRecovery(ctx context.Context, t target, kills int) (*recovery, error) {
	r := &recovery{ours: map[time.Duration][]time.Duration{}}
	bare, err := t.start()
	if err != nil {
		return nil, err
	}
	defer func() { bare.close() }()
	survivors := map[time.Duration]*survivor{}
	for _, delay := range delays {
		if survivors[delay], err = dialSurvivor(ctx, t, kills, delay); err != nil {
			return nil, err
		}
		defer survivors[delay].client.Close(ctx)
	}
	for range kills {
		took, err := t.bareRecovery(&bare)
		if err != nil {
			return nil, err
		}
		r.bare = append(r.bare, took)
		for _, delay := range delays {
			if took, err = survivors[delay].recovery(ctx); err != nil {
				return nil, err
			}
			r.ours[delay] = append(r.ours[delay], took)
		}
	}
	return r, nil
}

// bareRecovery is the least that anybody can do: kill, read to the end, reap,
// fork and exec, handshake, call.
func (t target) bareRecovery(p **process) (time.Duration, error) {
	old := *p
	start := time.Now()
	if err := old.cmd.Process.Kill(); err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, old.out); err != nil {
		return 0, err
	}
	_ = old.cmd.Wait() // always "signal: killed"
	fresh, err := t.start()
	if err != nil {
		return 0, err
	}
	*p = fresh
	if _, err := fresh.in.Write(t.callFrame(1, text(sizes[0]))); err != nil {
		return 0, err
	}
	if _, err := fresh.out.ReadSlice('\n'); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func (r *recovery) print(w io.Writer) {
	fmt.Fprintf(w, "\nfrom kill to the next answered call (medians of %d kills)\n", len(r.bare))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "side\tms\tms less the delay\tagainst bare\t")
	bare := middle(r.bare)
	fmt.Fprintf(tw, "bare sequence\t%.2f\t%.2f\t1.00\t\n", ms(bare), ms(bare))
	for _, delay := range delays {
		took := middle(r.ours[delay])
		fmt.Fprintf(tw, "respawn, delay %s\t%.2f\t%.2f\t%.2f\t\n", delay, ms(took), ms(took-delay), r.ratio(delay))
	}
	tw.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func middle(took []time.Duration) time.Duration {
	var values []float64
	for _, d := range took {
		values = append(values, float64(d))
	}
	return time.Duration(median(values))
}

// overhead is how much longer than the bare sequence a recovery may take, beside
// the configured delay.
const overhead = 1.10

// ratio is the median of our time, less the delay, against the bare sequence of
// the same turn, so that a slow moment meets both.
func (r *recovery) ratio(delay time.Duration) float64 {
	var values []float64
	for i, took := range r.ours[delay] {
		values = append(values, float64(took-delay)/float64(r.bare[i]))
	}
	return median(values)
}

// unmet are the expectations that the samples do not meet.
func (r *recovery) unmet() []string {
	var failed []string
	for _, delay := range delays {
		if got := r.ratio(delay); got > overhead {
			failed = append(failed, fmt.Sprintf(
				"recovery with a delay of %s, less that delay, takes %.2f of the bare sequence, expected at most %.2f", delay, got, overhead))
		}
	}
	return failed
}

// kill kills a process by its id; it is somebody else's child, as for a user.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release()
	return p.Kill()
}
