package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// recovery is how long it takes from the kill of the server to the next
// answered call.
type recovery struct {
	bare []time.Duration
}

func measureRecovery(ctx context.Context, t target, kills int) (*recovery, error) {
	r := &recovery{}
	b, err := t.start()
	if err != nil {
		return nil, err
	}
	defer func() { b.close() }()
	for range kills {
		took, err := t.bareRecovery(&b)
		if err != nil {
			return nil, err
		}
		r.bare = append(r.bare, took)
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
	fmt.Fprintf(w, "  bare sequence  %.2f ms\n", ms(r.bare))
}

func ms(took []time.Duration) float64 {
	var values []float64
	for _, d := range took {
		values = append(values, float64(d)/1e6)
	}
	return median(values)
}

// unmet are the expectations that the samples do not meet.
func (r *recovery) unmet() []string { return nil }
