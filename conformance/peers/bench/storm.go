package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"text/tabwriter"
	"time"
)

// storm is how long the calls of one client take while the server of another one
// is killed again and again: the 99th percentile of each round, rounds aligned.
// The same kills by another process show what is the machine's part in it.
type storm struct {
	quiet, nextDoor, inside []time.Duration
	kills                   int // inside, in all
}

// stormKills is more than any storm has time for.
const stormKills = 1 << 20

func measureStorm(ctx context.Context, t target, rounds int, slice time.Duration) (*storm, error) {
	c, err := dialOursCall(ctx, t)
	if err != nil {
		return nil, err
	}
	defer c.close()
	s := &storm{}
	for round := range rounds + 1 { // round 0 warms everything up
		quiet, err := slowCall(ctx, c, slice)
		if err != nil {
			return nil, err
		}
		nextDoor, err := s.nextDoorStorm(ctx, t, c, slice)
		if err != nil {
			return nil, err
		}
		inside, err := s.insideStorm(ctx, t, c, slice)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			s.quiet, s.nextDoor, s.inside = append(s.quiet, quiet), append(s.nextDoor, nextDoor), append(s.inside, inside)
		}
	}
	return s, nil
}

// slowCall is the 99th percentile of the calls that are made one after another.
func slowCall(ctx context.Context, c peer, slice time.Duration) (time.Duration, error) {
	var took []time.Duration
	body := text(sizes[0])
	for start := time.Now(); time.Since(start) < slice; {
		call := time.Now()
		if _, err := c.call(ctx, body); err != nil {
			return 0, err
		}
		took = append(took, time.Since(call))
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

// insideStorm measures c while another client of this process loses its server.
func (s *storm) insideStorm(ctx context.Context, t target, c peer, slice time.Duration) (time.Duration, error) {
	stop, over := make(chan struct{}), make(chan error, 1)
	began := make(chan struct{})
	go func() {
		kills, err := killAgain(ctx, t, began, stop)
		s.kills += kills
		over <- err
	}()
	select {
	case <-began:
	case err := <-over:
		return 0, err
	}
	took, err := slowCall(ctx, c, slice)
	close(stop)
	if stormed := <-over; err == nil {
		err = stormed
	}
	return took, err
}

// killAgain kills the server of a client until it is stopped, and tells when it
// has begun.
func killAgain(ctx context.Context, t target, began, stop chan struct{}) (kills int, err error) {
	v, err := dialSurvivor(ctx, t, stormKills, 0)
	if err != nil {
		return 0, err
	}
	defer v.client.Close(ctx)
	for ; ; kills++ {
		if _, err := v.recovery(ctx); err != nil {
			return kills, err
		}
		if kills == 0 {
			close(began)
		}
		select {
		case <-stop:
			return kills + 1, nil
		default:
		}
	}
}

// nextDoorStorm measures c while another process does the same.
func (s *storm) nextDoorStorm(ctx context.Context, t target, c peer, slice time.Duration) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	args := []string{"-server", t.path, "-be-a-storm"}
	if t.legacy {
		args = append(args, "-legacy")
	}
	door := exec.CommandContext(ctx, self, args...)
	door.Stderr = os.Stderr
	in, err := door.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := door.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := door.Start(); err != nil {
		return 0, err
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
		return 0, fmt.Errorf("the storm next door: %w", err)
	}
	took, err := slowCall(ctx, c, slice)
	in.Close()
	if stormed := door.Wait(); err == nil {
		err = stormed
	}
	return took, err
}

// beAStorm is the process next door: it goes on until its stdin is closed.
func beAStorm(t target) error {
	began, stop := make(chan struct{}), make(chan struct{})
	go func() {
		<-began
		fmt.Print("!")
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	_, err := killAgain(context.Background(), t, began, stop)
	return err
}

func (s *storm) print(w io.Writer) {
	fmt.Fprintf(w, "\na client's calls while the server of another is killed, %d times in all (99th percentiles of %d rounds)\n", s.kills, len(s.quiet))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "the other client\tµs, median\tleast\tmost\t")
	for _, row := range []struct {
		name string
		took []time.Duration
	}{{"is not there", s.quiet}, {"is another process", s.nextDoor}, {"is in this process", s.inside}} {
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t\n", row.name, 1e3*ms(middle(row.took)), 1e3*ms(slices.Min(row.took)), 1e3*ms(slices.Max(row.took)))
	}
	tw.Flush()
}

// unmet holds the storm in this process against the spread of the one next door:
// what is not above that is noise.
func (s *storm) unmet() (failed []string) {
	if got, noise := middle(s.inside), slices.Max(s.nextDoor); got > noise {
		failed = append(failed, fmt.Sprintf("beside a client whose server is killed, the slow calls take %s; with that client next door at most %s", got, noise))
	}
	return failed
}
