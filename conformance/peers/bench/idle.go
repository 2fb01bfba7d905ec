package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/respawn-mcp/respawn/client"
)

// idle is what clients cost that do nothing.
type idle struct {
	clients    int
	goroutines float64 // each
	heap       float64 // bytes each
	stacks     float64
}

const (
	// idleGoroutines and idleHeap are how much each may cost.
	idleGoroutines = 6
	idleHeap       = 64 << 10
	// idleStarts is how many are started at once.
	idleStarts = 16
)

func measureIdle(ctx context.Context, t target, clients int) (*idle, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	all, err := dialMany(ctx, t, clients)
	defer closeMany(ctx, all)
	if err != nil {
		return nil, err
	}
	n := float64(clients)
	for range 2 { // what pools keep survives one
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	return &idle{
		clients:    clients,
		goroutines: float64(runtime.NumGoroutine()-goroutines) / n,
		heap:       (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n,
		stacks:     (float64(after.StackInuse) - float64(before.StackInuse)) / n,
	}, nil
}

// dialMany connects clients that have made a call each.
func dialMany(ctx context.Context, t target, clients int) ([]*client.Client, error) {
	var (
		starters sync.WaitGroup
		all      = make([]*client.Client, clients)
		fails    = make([]error, clients)
		next     = make(chan int)
	)
	for range idleStarts {
		starters.Go(func() {
			for i := range next {
				if all[i], fails[i] = dialOurs(ctx, t, nil); fails[i] == nil {
					_, fails[i] = oursCall{all[i]}.call(ctx, text(sizes[0]))
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	starters.Wait()
	return all, errors.Join(fails...)
}

func closeMany(ctx context.Context, all []*client.Client) {
	var closers sync.WaitGroup
	for _, c := range all {
		if c != nil {
			closers.Go(func() { _ = c.Close(ctx) })
		}
	}
	closers.Wait()
}

func (i *idle) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d idle clients on stdio, each: %.2f goroutines, %.1f KiB of heap, %.1f KiB of stacks\n",
		i.clients, i.goroutines, i.heap/1024, i.stacks/1024)
}

func (i *idle) unmet() (failed []string) {
	if int(i.goroutines) > idleGoroutines { // some are shared by all
		failed = append(failed, fmt.Sprintf("an idle client has %.2f goroutines, expected at most %d", i.goroutines, idleGoroutines))
	}
	if i.heap > idleHeap {
		failed = append(failed, fmt.Sprintf("an idle client has %.0f bytes of heap, expected at most %d", i.heap, idleHeap))
	}
	return failed
}
