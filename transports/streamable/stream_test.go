package streamable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

func TestB030_HalfAnEventAtTheEndIsNoAnswer(t *testing.T) {
	attempt := 0
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		if attempt++; attempt == 1 {
			stream(w)("data: " + progress + "\n\ndata: " + answer(1)[:20])
			return
		}
		writeJSON(w, answer(readMessage(r).ID))
	}, func(_ *wire, l *life) {
		l.send(request(1, modern, "resources/read"))
		synctest.Wait()
		l.send(request(2, modern, "resources/read")) // the engine's re-issue
		synctest.Wait()
		l.want(message(1, progress), transports.Broken{Ref: 1}, message(2, answer(2)))
	})
}

func TestB035_BytesThatAreNoMessageAreSignsOfLifeAtMostOneASecond(t *testing.T) {
	t.Run("silence is none", func(t *testing.T) {
		inBubble(t, func(w http.ResponseWriter, r *http.Request) {
			stream(w)("")
			<-r.Context().Done()
		}, func(_ *wire, l *life) {
			l.send(request(1, modern, "tools/call"))
			time.Sleep(time.Hour)
			l.want()
		})
	})
	t.Run("comments are, and a message needs none", func(t *testing.T) {
		inBubble(t, func(w http.ResponseWriter, r *http.Request) {
			write := stream(w)
			for i := range 25 { // every 400 ms for 10 s
				time.Sleep(400 * time.Millisecond)
				write(":\n")
				if i == 9 {
					write("data: " + progress + "\n\n")
				}
			}
			write("data: " + answer(1) + "\n\n")
		}, func(_ *wire, l *life) {
			l.send(request(1, modern, "tools/call"))
			time.Sleep(time.Hour)
			alive := 0
			last := time.Duration(-1)
			for i, e := range l.got() {
				if _, ok := e.(transports.Alive); !ok {
					continue
				}
				alive++
				at := l.at[i+1] // Ready comes first
				if last >= 0 && (at-last < time.Second || at-last > 1600*time.Millisecond) {
					t.Errorf("signs of life at %v and %v", last, at)
				}
				last = at
			}
			if alive != 9 {
				t.Errorf("%d signs of life in 10 s, want 9: one each 1.2 s", alive)
			}
		})
	})
	t.Run("the parts of a long answer are", func(t *testing.T) {
		for _, media := range []string{"application/json", "text/event-stream"} {
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", media)
				text := answer(1)
				if media != "application/json" {
					text = "data: " + text + "\n\n"
				}
				for i := range text {
					io.WriteString(w, text[i:i+1])
					w.(http.Flusher).Flush()
					time.Sleep(500 * time.Millisecond)
				}
			}, func(_ *wire, l *life) {
				l.send(request(1, modern, "tools/call"))
				time.Sleep(time.Hour)
				var alive int
				for _, e := range l.got() {
					if e == transports.Event(transports.Alive{Ref: 1}) {
						alive++
					}
				}
				if want := len(answer(1)) / 2; alive < want-2 || alive > want+4 {
					t.Errorf("%s: %d signs of life in about %d s", media, alive, want)
				}
			})
		}
	})
}

func TestB040_ASuccessOfAnotherMediaTypeIsNoStream(t *testing.T) {
	for _, tc := range []struct {
		status int
		media  string
		opens  bool
	}{
		{200, "text/plain", false},
		{200, "application/json", false},
		{200, "", false},
		{200, "text/event-streams", false},
		{204, "", false},
		{202, "", false},
		{202, "text/event-stream", false},
		{200, "Text/Event-Stream; charset=utf-8", true},
		{200, "text/event-stream;charset=utf-8", true},
	} {
		t.Run(fmt.Sprint(tc.status, " ", tc.media), func(t *testing.T) {
			body := "data: " + progress + "\n\n"
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if tc.media != "" {
					w.Header().Set("Content-Type", tc.media)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, body)
			}, func(w *wire, l *life) {
				l.send(listen(1, ""))
				synctest.Wait()
				if tc.opens {
					l.want(transports.Opened{Ref: 1}, message(0, progress), transports.Broken{Ref: 1})
					return
				}
				want := transports.Rejected{Ref: 1, Status: tc.status, Body: []byte(body)}
				if tc.status == 204 {
					want.Body = nil
				}
				l.want(want)
				wrong := new(streamable.AnswerError)
				if r := l.got()[0].(transports.Rejected); !errors.As(r.Cause, &wrong) || wrong.ContentType != tc.media {
					t.Errorf("the cause is %v", r.Cause)
				}
			})
		})
	}
}

func TestB042_ExactlyTheMessagesArriveWhateverIsBetweenThem(t *testing.T) {
	split := "{\"jsonrpc\":\"2.0\",\ndata: \"method\":\"b\"}"
	text := "\xef\xbb\xbf" + // a byte order mark
		":\n" +
		": keepalive\r\n\r\n" +
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"a\"}\r\n\r\n" +
		"event: ping\ndata: x\n\n" +
		"event: message\ndata: " + split + "\n\n" +
		"data:{\"jsonrpc\":\"2.0\",\"method\":\"c\"}\r\r" + // lone CRs, no space
		"event: other\rdata: {\"jsonrpc\":\"2.0\",\"method\":\"no\"}\r\n\r\n" +
		"unknown: field\ndata\n\n" +
		"data: " + answer(1) + "\n\n"
	want := []transports.Event{
		message(1, `{"jsonrpc":"2.0","method":"a"}`),
		message(1, "{\"jsonrpc\":\"2.0\",\n\"method\":\"b\"}"),
		message(1, `{"jsonrpc":"2.0","method":"c"}`),
		message(1, answer(1)),
	}
	for _, step := range []int{1, 2, 3, 7, 64, len(text)} {
		t.Run(fmt.Sprint(step, " bytes at a time"), func(t *testing.T) {
			inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
				write := stream(w)
				for rest := text; rest != ""; {
					n := min(step, len(rest))
					write(rest[:n])
					rest = rest[n:]
				}
			}, func(_ *wire, l *life) {
				l.send(request(1, legacy, "tools/call"))
				synctest.Wait()
				got := l.got()
				var messages []transports.Event
				for _, e := range got {
					if _, ok := e.(transports.Message); ok {
						messages = append(messages, e)
					} else if e != transports.Event(transports.Alive{Ref: 1}) {
						t.Errorf("unexpected %#v", e)
					}
				}
				if diff := cmp.Diff(want, messages); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestB042_DataThatIsNoObjectIsNoise(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w)("data: hello\x07\n\ndata: [1]\n\ndata: {\"jsonrpc\":\n\ndata: " + answer(1) + "\n\n")
	}, func(_ *wire, l *life) {
		l.send(request(1, legacy, "tools/call"))
		synctest.Wait()
		l.want(
			transports.Noise{Bytes: 6, Sample: "hello "},
			transports.Noise{Bytes: 3, Sample: "[1]"},
			transports.Noise{Bytes: 11, Sample: `{"jsonrpc":`},
			message(1, answer(1)),
		)
	})
}

func TestB074_AnEventOverTheLimitEndsItsOwnRequestAndALongOneArrives(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 2<<20) + `"}`
	line := strings.Repeat("y", 99<<10)
	for _, tc := range []struct {
		name  string
		limit int
		write string
		want  transports.Event
	}{
		{"one data line of 2 MiB", 0, "data: " + long + "\n\n", message(1, long)},
		{
			"as long as the limit", len(long), "data: " + long + "\n\n", message(1, long),
		},
		{"over it", len(long) - 1, "data: " + long + "\n\n", transports.Rejected{Ref: 1, Status: 200}},
		{"many lines over it", 6 << 20, strings.Repeat("data: "+line+"\n", 64) + "\n", transports.Rejected{Ref: 1, Status: 200}},
		{
			"a comment does not count", 1 << 10,
			":" + strings.Repeat("z", 3<<20) + "\nunknown: " + strings.Repeat("z", 3<<20) + "\ndata: " + answer(1) + "\n\n",
			message(1, answer(1)),
		},
		{"a line without end", 1 << 20, "data: " + long, transports.Rejected{Ref: 1, Status: 200}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
					stream(w)(tc.write)
					<-r.Context().Done()
				})
				conf := w.config()
				conf.MaxMessage = tc.limit
				l := live(t, conf.Factory())
				l.send(request(1, modern, "resources/read"))
				time.Sleep(time.Second)
				got := l.got()
				// The parts of a long message are a sign of life.
				if len(got) > 0 && got[0] == transports.Event(transports.Alive{Ref: 1}) {
					got = got[1:]
				}
				if len(got) != 1 {
					t.Fatalf("%d events, want 1", len(got))
				}
				if r, ok := got[0].(transports.Rejected); ok {
					tooLarge := new(streamable.TooLargeError)
					if !errors.As(r.Cause, &tooLarge) || tooLarge.Limit != tc.limit {
						t.Errorf("the cause is %v", r.Cause)
					}
					r.Header, r.Cause = nil, nil
					got[0] = r
				}
				if diff := cmp.Diff(tc.want, got[0], cmp.Comparer(bytes.Equal)); diff != "" {
					t.Errorf("event (-want +got):\n%.400s", diff)
				}
				if n := w.count("POST"); n != 1 {
					t.Errorf("%d POSTs, want 1", n)
				}
				l.stop(errTestOver)
				w.Close()
			})
		})
	}
}

func TestB074_AStandaloneStreamGoesOnAfterAnEventOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(w http.ResponseWriter, r *http.Request) {
			stream(w)("data: " + strings.Repeat("x", 200<<10) + "\ndata: y\n\ndata: " + progress + "\n\n")
			<-r.Context().Done()
		})
		conf := w.config()
		conf.MaxMessage = 1 << 10
		l := live(t, conf.Factory())
		l.send(listen(1, ""))
		synctest.Wait()
		got := l.got()
		if noise, ok := got[1].(transports.Noise); !ok || noise.Bytes < 1<<10 {
			t.Errorf("%#v, want noise of more than the limit", got[1])
		}
		if diff := cmp.Diff(transports.Event(message(0, progress)), got[len(got)-1]); diff != "" {
			t.Errorf("the next event (-want +got):\n%s", diff)
		}
		l.stop(errTestOver)
		w.Close()
	})
}

// What an exchange emitted stays as it is, and is nobody else's memory.
func TestAFrameIsTheReceivers(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		id := readMessage(r).ID
		if id%2 == 0 {
			writeJSON(w, answer(id))
			return
		}
		stream(w)("data: " + progress + "\n\ndata: " + answer(id) + "\n\n")
	}, func(_ *wire, l *life) {
		var kept [][]byte
		l.hook = func(e transports.Event) {
			if m, ok := e.(transports.Message); ok {
				kept = append(kept, bytes.Clone(m.Frame))
			}
		}
		for ref := uint64(1); ref <= 20; ref++ {
			l.send(request(ref, legacy, "ping"))
			synctest.Wait()
		}
		i := 0
		for _, e := range l.got() {
			m, ok := e.(transports.Message)
			if !ok {
				continue
			}
			if !bytes.Equal(m.Frame, kept[i]) {
				t.Fatalf("frame %d changed to %q", i, m.Frame)
			}
			clear(m.Frame[:cap(m.Frame)])
			i++
		}
		if i != 30 {
			t.Errorf("%d messages, want 30", i)
		}
	})
}
