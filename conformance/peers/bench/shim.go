package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	nameDirect = "straight to the server"
	nameCopier = "through a copier of bytes" // what any process in between costs
	nameShim   = "through respawn run"

	// shimAdds is how much longer a short call may take, and shimKeeps how much of
	// the throughput must be left.
	shimAdds  = 60 * time.Microsecond
	shimKeeps = 0.75
	// shimCalls is how many calls its memory has to stay flat over, and shimGrows
	// what counts as flat: the heap of a Go program breathes.
	shimCalls = 1_000_000
	shimGrows = 1.10
)

var shimCells = []cell{{100, 1}, {100, 64}, {64 << 10, 1}}

// shimCost is what the command costs its host: the least client against the
// server, against the command in front of it, and against a process in front of it
// that does nothing but copy.
type shimCost struct {
	*speed
	rss []int64 // of the command in bytes, after each tenth of shimCalls
}

func measureShim(ctx context.Context, t target, shim string, rounds int, slice time.Duration) (*shimCost, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &shimCost{speed: &speed{names: []string{nameDirect, nameCopier, nameShim}}}
	front := map[string][]string{nameCopier: {self, "-be-a-copier"}, nameShim: {shim, "run", "--"}}
	sides := map[string]measurer{}
	for _, name := range c.names {
		to := t
		to.front = front[name]
		side, err := dialLeast(ctx, to)
		if err != nil {
			return nil, err
		}
		defer side.close()
		sides[name] = func(at cell, slice time.Duration) (sample, error) { return measureClient(ctx, side, at, slice) }
	}
	if err := c.measure(shimCells, rounds, slice, sides); err != nil {
		return nil, err
	}
	t.front = front[nameShim]
	c.rss, err = memoryOver(t, shimCalls)
	return c, err
}

// beACopier starts a command and copies bytes between its pipes and ours.
func beACopier(argv []string) error {
	if len(argv) == 0 {
		return errors.New("no command to copy for")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer in.Close()
		copyBytes(in, os.Stdin)
	}()
	copyBytes(os.Stdout, out)
	return cmd.Wait()
}

// copyBytes is a read and a write after each other: io.Copy would splice, which is
// quicker for large messages and slower for small ones.
func copyBytes(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// memoryOver makes calls through the command, 64 at once, and reads after each
// tenth of them how much memory it holds.
func memoryOver(t target, calls int) (rss []int64, err error) {
	p, err := t.start()
	if err != nil {
		return nil, err
	}
	defer p.close()
	const inFlight, parts = 64, 10
	body := text(sizes[0])
	for range parts {
		for range calls / parts / inFlight {
			for i := range inFlight {
				if _, err := p.in.Write(t.callFrame(i, body)); err != nil {
					return nil, err
				}
			}
			for range inFlight {
				if _, err := p.out.ReadSlice('\n'); err != nil {
					return nil, err
				}
			}
		}
		n, err := residentSet(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		rss = append(rss, n)
	}
	return rss, nil
}

// residentSet reads VmRSS of a process (proc_pid_status(5)).
func residentSet(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of %d", pid)
}

// adds is how much longer a call takes through something: the median over the
// rounds, each held against the direct one of the same round.
func (c *shimCost) adds(at cell, name string) time.Duration {
	var values []float64
	for i, got := range c.samples[at][name] {
		values = append(values, float64(got.perCall()-c.samples[at][nameDirect][i].perCall()))
	}
	return time.Duration(median(values))
}

func (c *shimCost) print(w io.Writer) {
	fmt.Fprintln(w, "\nthe command in front of the server")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "calls\t\tµs a call\tµs more\tthroughput kept\t")
	for _, at := range shimCells {
		for _, name := range c.names {
			if name == nameCopier && at.size > sizes[0] { // a message that no pipe takes whole goes in pieces
				continue
			}
			per := c.median(at, name, func(got sample) float64 { return float64(got.perCall()) })
			fmt.Fprintf(tw, "%s\t%s\t%.1f\t%.1f\t%.2f\t\n", at, name, per/1e3,
				float64(c.adds(at, name))/1e3, c.ratio(at, name, nameDirect))
		}
	}
	tw.Flush()
	fmt.Fprintf(w, "its memory over %d calls, in MiB:", shimCalls)
	for _, n := range c.rss {
		fmt.Fprintf(w, " %.1f", float64(n)/(1<<20))
	}
	fmt.Fprintln(w)
}

func (c *shimCost) unmet() (failed []string) {
	if got := c.adds(cell{100, 1}, nameShim); got > shimAdds {
		failed = append(failed, fmt.Sprintf("a call through the command takes %s longer, expected at most %s (a copier of bytes: %s)",
			got, shimAdds, c.adds(cell{100, 1}, nameCopier)))
	}
	if got := c.ratio(cell{100, 64}, nameShim, nameDirect); got < shimKeeps {
		failed = append(failed, fmt.Sprintf("the command keeps %.2f of the throughput, expected at least %.2f (a copier of bytes: %.2f)",
			got, shimKeeps, c.ratio(cell{100, 64}, nameCopier, nameDirect)))
	}
	if first, last := c.rss[0], c.rss[len(c.rss)-1]; float64(last) > shimGrows*float64(first) {
		failed = append(failed, fmt.Sprintf("the command's memory grows from %d to %d bytes over %d calls", first, last, shimCalls))
	}
	return failed
}
