package main

import (
	"fmt"
	"time"
)

// raw is the floor that the pipe and the server set: one goroutine writes a
// prebuilt line and reads the reply line. With more calls in flight, another
// goroutine writes ahead by that many lines.
type raw struct {
	proc   *process
	frames map[int][]byte // by size of the text
}

func dialRaw(t target) (*raw, error) {
	proc, err := t.start()
	if err != nil {
		return nil, err
	}
	frames := map[int][]byte{}
	for _, size := range sizes {
		frames[size] = t.callFrame(1, text(size))
	}
	return &raw{proc: proc, frames: frames}, nil
}

func (r *raw) measure(c cell, slice time.Duration) (sample, error) {
	if c.inFlight == 1 {
		return r.sequential(r.frames[c.size], slice)
	}
	return r.ahead(r.frames[c.size], c.inFlight, slice)
}

func (r *raw) sequential(frame []byte, slice time.Duration) (sample, error) {
	start, calls := time.Now(), 0
	for time.Since(start) < slice {
		if _, err := r.proc.in.Write(frame); err != nil {
			return sample{}, err
		}
		if _, err := r.proc.out.ReadSlice('\n'); err != nil {
			return sample{}, err
		}
		calls++
	}
	return sample{calls: calls, elapsed: time.Since(start)}, nil
}

func (r *raw) ahead(frame []byte, inFlight int, slice time.Duration) (sample, error) {
	slots := make(chan struct{}, inFlight) // one taken for each unanswered line
	wrote := make(chan error, 1)
	start, calls := time.Now(), 0
	go func() {
		defer close(slots)
		for time.Since(start) < slice {
			slots <- struct{}{}
			if _, err := r.proc.in.Write(frame); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for range slots {
		if _, err := r.proc.out.ReadSlice('\n'); err != nil {
			return sample{}, fmt.Errorf("reading ahead: %w", err)
		}
		calls++
	}
	return sample{calls: calls, elapsed: time.Since(start)}, <-wrote
}
