package engine

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestPostingNeverBlocksAndKeepsOrder(t *testing.T) {
	b := newInbox()
	want := make([]any, 10_000)
	for i := range want {
		want[i] = i
		b.post(i)
	}
	if diff := cmp.Diff(want, b.take()); diff != "" {
		t.Error(diff)
	}
}

func TestEachEventIsTakenOnceAndInTheOrderOfItsPoster(t *testing.T) {
	type event struct{ poster, n int }
	const posters, each = 8, 500
	b := newInbox()
	for p := range posters {
		go func() {
			for n := range each {
				b.post(event{p, n})
			}
		}()
	}
	var next [posters]int
	for range posters * each {
		for _, ev := range b.take() {
			ev := ev.(event)
			if ev.n != next[ev.poster] {
				t.Fatalf("poster %d: event %d was taken where %d was due", ev.poster, ev.n, next[ev.poster])
			}
			next[ev.poster]++
		}
		if next == [posters]int{each, each, each, each, each, each, each, each} {
			return
		}
	}
	t.Errorf("taken: %v", next)
}

// The bubble fails if the goroutine of an idle dispatcher is left.
func TestCallbacksRunOneAfterTheOtherAndPanicsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran []string
		running := 0
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, fmt.Sprintf(format, args...))
		}
		d := &dispatcher{panicky: func(p any) { note("panic %v", p) }}
		for round := range 2 { // the second one finds it idle
			all := make(chan struct{})
			for i := range 3 {
				d.do(func() {
					<-all // were handed over
					if running++; running > 1 {
						t.Error("two callbacks run at once")
					}
					note("%d.%d", round, i)
					running--
					if i == 1 {
						d.do(func() { note("%d.%d, from inside", round, i) })
						panic(i)
					}
				})
			}
			close(all)
			synctest.Wait()
		}
		want := []string{
			"0.0", "0.1", "panic 1", "0.2", "0.1, from inside",
			"1.0", "1.1", "panic 1", "1.2", "1.1, from inside",
		}
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Error(diff)
		}
	})
}
