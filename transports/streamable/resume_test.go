package streamable_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
)

func TestB031_APrimingEventMakesAStreamResumable(t *testing.T) {
	for _, tc := range []struct{ name, priming, lastID string }{
		{"an id and empty data before the cut", "id: e1\ndata:\n\n", "e1"},
		{"an id alone", "id: e1\n\n", "e1"},
		{"an event that was cut says nothing", "id: e1\ndata: x\n", ""},
		{"no id", "data:\n\n", ""},
		{"an id that no header can carry", "id: e\x01\n\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					stream(w)(tc.priming)
					return
				}
				stream(w)("id: e2\ndata: " + progress + "\n\nid: e3\ndata: " + answer(1) + "\n\n")
			}, func(w *wire, l *life) {
				l.send(request(1, legacy, "tools/call"))
				synctest.Wait()
				l.want(transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: tc.lastID})
				if tc.lastID == "" {
					return
				}
				l.send(resume(1, tc.lastID))
				synctest.Wait()
				l.want(
					transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: tc.lastID},
					transports.Opened{Ref: 1}, message(1, progress), message(1, answer(1)),
				)
				got := w.requests()
				want := []seen{
					{Method: "POST", Path: "/mcp", Version: legacy, Body: got[0].Body},
					{Method: "GET", Path: "/mcp", Version: legacy, LastID: "e1"},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("on the wire (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A resumed stream that breaks again goes on from the id it was resumed with, if
// it gave no other.
func TestB031_AResumedStreamThatBreaksKeepsItsID(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) { stream(w)(":\n") }, func(_ *wire, l *life) {
		l.send(resume(1, "e1"))
		synctest.Wait()
		l.want(transports.Opened{Ref: 1}, transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: "e1"})
	})
}

// A resumed stream that stays silent is asked for again. The new exchange takes
// the place of the old one and goes on after what that brought.
func TestM12_AResumeTakesThePlaceOfTheOneBeforeAndBringsNothingTwice(t *testing.T) {
	left := make(chan string, 1)
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		write := stream(w)
		if id := r.Header.Get("Last-Event-ID"); id == "e1" {
			write("id: e2\ndata: " + progress + "\n\n")
			<-r.Context().Done()
			left <- id
			return
		}
		write("id: e3\ndata: " + answer(1) + "\n\n")
	}, func(w *wire, l *life) {
		l.send(resume(1, "e1"))
		synctest.Wait()
		l.send(resume(1, "e1"))
		synctest.Wait()
		l.want(transports.Opened{Ref: 1}, message(1, progress), transports.Opened{Ref: 1}, message(1, answer(1)))
		if got := w.requests()[1].LastID; got != "e2" {
			t.Errorf("the second resume asked for what follows %q, want e2", got)
		}
		if id := <-left; id != "e1" {
			t.Errorf("the exchange of %s was closed, want that of e1", id)
		}
	})
}

func TestB033_RetryIsReportedAsItIsAndTheCursorGoesOutOnGETsAlone(t *testing.T) {
	for _, tc := range []struct {
		field string
		want  time.Duration
	}{
		{"700", 700 * time.Millisecond},
		{" 700", 700 * time.Millisecond},
		{"0", 0},
		{"abc", 0},
		{"7s", 0},
		{"-1", 0},
		{"", 0},
		{"86400000", 24 * time.Hour},
		{"99999999999999999999999999", 365 * 24 * time.Hour},
		{"700\nretry: x", 700 * time.Millisecond},
	} {
		t.Run(tc.field, func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
				stream(w)("id: e1\nretry:" + tc.field + "\n\n")
			}, func(w *wire, l *life) {
				l.send(request(1, legacy, "tools/call"))
				synctest.Wait()
				l.want(transports.Alive{Ref: 1}, transports.Broken{Ref: 1, LastID: "e1", Retry: tc.want})
				again := request(2, legacy, "tools/call")
				again.LastID = "e1" // of no meaning for a POST
				l.send(again)
				synctest.Wait()
				for _, r := range w.requests() {
					if r.Method == http.MethodPost && r.LastID != "" {
						t.Errorf("a POST carried Last-Event-ID %q", r.LastID)
					}
				}
			})
		})
	}
}
