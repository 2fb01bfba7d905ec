package stdio

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/respawn-mcp/respawn/transports"
)

// outbound is a frame whose first byte is its number.
func outbound(ref byte, size int) *transports.Outbound {
	frame := append([]byte{ref}, strings.Repeat("x", size)...)
	return &transports.Outbound{Ref: uint64(ref), ID: fmt.Sprint(ref), Frame: frame}
}

// Whatever the pipe takes of each write and whoever cancels when: the server sees
// whole frames in the order of the Sends, of which only the last may be cut, and
// each attempt is either in what it saw, or taken back by Cancel, or Unsent.
func TestOutboxPropertyEachAttemptIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbox(nil)
		o.advance(open)
		var (
			stream    []byte
			frames    = map[uint64]string{}
			order     []uint64
			takenBack = map[uint64]bool{}
			silenced  = map[uint64]bool{}
			sent      []uint64
			next      byte
		)
		cancel := func(t *rapid.T) {
			if len(order) == 0 {
				return
			}
			ref := rapid.SampledFrom(order).Draw(t, "ref")
			silenced[ref] = true
			if o.cancel(ref) {
				if takenBack[ref] {
					t.Fatalf("%d was taken back twice", ref)
				}
				takenBack[ref] = true
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				next++
				out := outbound(next, rapid.SampledFrom([]int{0, 10, 5000, batch - 10, batch, 3 * batch}).Draw(t, "size"))
				if rapid.Bool().Draw(t, "notification") {
					out.ID = ""
				}
				direct, err := o.put(out, false)
				if err != nil || direct {
					t.Fatalf("put: %v %v", direct, err)
				}
				frames[out.Ref], order = string(out.Frame)+"\n", append(order, out.Ref)
			},
			"cancel": cancel,
			"write": func(t *rapid.T) {
				if !o.acquire() {
					return
				}
				chunk := o.compose()
				if rapid.Bool().Draw(t, "cancel meanwhile") {
					cancel(t)
				}
				if n := rapid.IntRange(0, len(chunk)).Draw(t, "taken"); n > 0 {
					stream = append(stream, chunk[:n]...)
					o.wrote(n)
				} else {
					o.park()
				}
				o.release()
			},
			"emit": func(t *rapid.T) {
				if ref, ok := o.takeSent(); ok {
					if silenced[ref] {
						t.Fatalf("Sent of %d follows its Cancel", ref)
					}
					sent = append(sent, ref)
				}
			},
		})
		o.advance(shut)
		<-o.settled
		unsent := map[uint64]bool{}
		for ref, ok := o.takeUnsent(); ok; ref, ok = o.takeUnsent() {
			if silenced[ref] || unsent[ref] {
				t.Fatalf("Unsent of %d, which was cancelled or told before", ref)
			}
			unsent[ref] = true
		}
		for ref, ok := o.takeSent(); ok; ref, ok = o.takeSent() {
			sent = append(sent, ref)
		}
		var whole []uint64
		for _, ref := range order {
			seen := bytes.HasPrefix(stream, []byte(frames[ref])) || len(stream) > 0 && strings.HasPrefix(frames[ref], string(stream))
			switch {
			case takenBack[ref], unsent[ref]:
				if seen {
					t.Fatalf("the server saw bytes of %d", ref)
				}
			case seen:
				if n := min(len(stream), len(frames[ref])); n == len(frames[ref]) {
					whole = append(whole, ref)
				}
				stream = stream[min(len(stream), len(frames[ref])):]
			case silenced[ref]: // cancelled while a write might have carried it
			default:
				t.Fatalf("nobody knows what became of %d", ref)
			}
		}
		if len(stream) > 0 {
			t.Fatalf("the server saw %.50q, which nobody sent", stream)
		}
		for _, ref := range sent {
			if !slices.Contains(whole, ref) {
				t.Fatalf("Sent of %d, which was not written whole", ref)
			}
		}
		if o.bytes != 0 {
			t.Fatalf("%d bytes are counted in an empty queue", o.bytes)
		}
	})
}

func TestOutboxIsFullAtMaxQueued(t *testing.T) {
	o := newOutbox(nil)
	o.advance(open)
	frame := make([]byte, transports.MaxQueued+1)
	put := func(size int) error {
		_, err := o.put(&transports.Outbound{Ref: 1, ID: "1", Frame: frame[:size]}, false)
		return err
	}
	got := []error{
		put(transports.MaxQueued + 1), // an empty queue takes any message
		put(0),
	}
	o.cancel(1)
	got = append(got, put(transports.MaxQueued-10), put(8), put(0))
	want := []error{nil, transports.ErrFull, nil, nil, transports.ErrFull}
	if !slices.Equal(got, want) {
		t.Errorf("Sends returned %v, want %v", got, want)
	}
}

func TestOutboxJoinsWhatWaits(t *testing.T) {
	o := newOutbox(nil)
	o.advance(open)
	big := outbound(3, 2*batch)
	for _, out := range []*transports.Outbound{outbound(1, 5), outbound(2, 5), big} {
		if _, err := o.put(out, false); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for chunk := o.compose(); chunk != nil; chunk = o.compose() {
		got = append(got, string(chunk))
		o.wrote(len(chunk))
	}
	// A long frame is not copied, but for its end, which goes with its newline.
	cut := len(big.Frame) - 1<<10
	want := []string{"\x01xxxxx\n\x02xxxxx\n", string(big.Frame[:cut]), string(big.Frame[cut:]) + "\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%.500s", diff)
	}
}

func TestStallWatchKnowsAStuckServerFromABusyOne(t *testing.T) {
	const limit = time.Minute
	start := time.Unix(0, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	began := func(s *stallWatch, ref uint64, method string) {
		s.began(&item{ref: ref, id: fmt.Sprint(ref), method: method})
	}
	for _, tt := range []struct {
		name string
		do   func(*stallWatch)
		want map[int]bool // stalled at this second
	}{
		{"nothing waits", func(s *stallWatch) { s.moved(false, at(0)) }, map[int]bool{1000: false}},
		{"a frame waits", func(s *stallWatch) { s.moved(true, at(0)) }, map[int]bool{59: false, 60: true}},
		{"bytes moved meanwhile", func(s *stallWatch) {
			s.moved(true, at(0))
			s.moved(true, at(30))
		}, map[int]bool{60: false, 89: false, 90: true}},
		{"the frame was taken", func(s *stallWatch) {
			s.moved(true, at(0))
			s.moved(false, at(30))
		}, map[int]bool{1000: false}},
		{"an older request is in flight", func(s *stallWatch) {
			began(s, 1, "tools/call")
			s.moved(true, at(0))
		}, map[int]bool{1000: false}},
		{"it is answered", func(s *stallWatch) {
			began(s, 1, "tools/call")
			s.moved(true, at(0))
			s.answered("1", at(100))
		}, map[int]bool{159: false, 160: true}},
		{"its caller gave it up", func(s *stallWatch) {
			began(s, 1, "tools/call")
			s.moved(true, at(0))
			s.forget(1, at(100))
		}, map[int]bool{159: false, 160: true}},
		{"another is answered", func(s *stallWatch) {
			began(s, 1, "tools/call")
			s.moved(true, at(0))
			s.answered("2", at(100))
		}, map[int]bool{1000: false}},
		{"a listen request is never answered", func(s *stallWatch) {
			began(s, 1, "subscriptions/listen")
			s.moved(true, at(0))
		}, map[int]bool{60: true}},
		{"waiting for room counts from its begin", func(s *stallWatch) {
			s.moved(true, at(0))
			s.moved(true, time.Time{})
		}, map[int]bool{60: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStallWatch()
			tt.do(s)
			got := map[int]bool{}
			for second := range tt.want {
				got[second] = s.stalled(limit, at(second))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("stalled at second (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswerIDIsThatOfAnAnswer(t *testing.T) {
	got := map[string]string{}
	want := map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{}}`:             "7",
		`{"jsonrpc":"2.0","id":"7","error":{}}`:            `"7"`,
		`{"jsonrpc":"2.0","id":7,"method":"ping"}`:         "",
		`{"jsonrpc":"2.0","method":"notifications/hello"}`: "",
		`{"jsonrpc":`: "",
	}
	for frame := range want {
		got[frame] = answerID([]byte(frame))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
