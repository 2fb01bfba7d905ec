package conformance_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports"
)

// wrong is the reference transport with one fault.
type wrong struct {
	transports.Transport
	serve  func(w *wrong, ctx context.Context, emit func(transports.Event)) error
	send   func(w *wrong, out transports.Outbound) error
	cancel func(w *wrong, ref uint64) bool

	mu   sync.Mutex
	refs []uint64
	over bool
}

func (w *wrong) Serve(ctx context.Context, emit func(transports.Event)) error {
	defer func() {
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
	}()
	if w.serve != nil {
		return w.serve(w, ctx, emit)
	}
	return w.Transport.Serve(ctx, emit)
}

func (w *wrong) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

func (w *wrong) Send(out transports.Outbound) error {
	if w.send != nil {
		return w.send(w, out)
	}
	return w.Transport.Send(out)
}

func (w *wrong) Cancel(ref uint64) bool {
	if w.cancel != nil {
		return w.cancel(w, ref)
	}
	return w.Transport.Cancel(ref)
}

// events makes a Serve whose events pass through change, which returns those to
// emit instead.
func events(change func(w *wrong, e transports.Event) []transports.Event) func(*wrong, context.Context, func(transports.Event)) error {
	return func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
		return w.Transport.Serve(ctx, func(e transports.Event) {
			for _, e := range change(w, e) {
				emit(e)
			}
		})
	}
}

func without[E transports.Event](_ *wrong, e transports.Event) []transports.Event {
	if _, ok := e.(E); ok {
		return nil
	}
	return []transports.Event{e}
}

func TestTheKitFindsAFactoryThatGivesATransportTwice(t *testing.T) {
	found := conformance.TransportProblem(t, "a factory starts nothing and gives each incarnation its own transport", time.Second,
		func(t *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
			peer := memoryPeer(transports.Pipe)(t, kind)
			only := peer.Factory.New()
			peer.Factory.New = func() transports.Transport { return only }
			return peer
		})
	if len(found) == 0 {
		t.Error("it did not")
	}
}

func TestTheKitFindsWhatATransportDoesWrong(t *testing.T) {
	const check = "a received frame is the receiver's, a sent one the sender's"
	for _, tt := range []struct {
		fault string
		found string // the check that has to find it
		make  func(t *testing.T) wrong
	}{
		{"no Ready", "Ready comes first", func(*testing.T) wrong {
			return wrong{serve: events(without[transports.Ready])}
		}},
		{"something comes before Ready", "Ready comes first", func(*testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				emit(transports.Diagnostic{Line: "hello"})
				return w.Transport.Serve(ctx, emit)
			}}
		}},
		{"two Readies", "Ready comes first", func(*testing.T) wrong {
			return wrong{serve: events(func(_ *wrong, e transports.Event) []transports.Event {
				if _, ok := e.(transports.Ready); ok {
					return []transports.Event{e, e}
				}
				return []transports.Event{e}
			})}
		}},
		{"answers are lost", "requests are answered", func(*testing.T) wrong {
			return wrong{serve: events(without[transports.Message])}
		}},
		{"a message names an attempt on a pipe", "requests are answered", func(*testing.T) wrong {
			return wrong{serve: events(func(_ *wrong, e transports.Event) []transports.Event {
				if m, ok := e.(transports.Message); ok {
					m.Ref = 1
					e = m
				}
				return []transports.Event{e}
			})}
		}},
		{"a frame is changed after Send", check, func(*testing.T) wrong {
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				copied := out
				copied.Frame = append([]byte(nil), out.Frame...)
				err := w.Transport.Send(copied)
				out.Frame[0] = '['
				return err
			}}
		}},
		{"received frames are pieces of one buffer, with what follows as capacity", check, func(*testing.T) wrong {
			buf := make([]byte, 0, 1<<20)
			return wrong{serve: events(func(_ *wrong, e transports.Event) []transports.Event {
				if m, ok := e.(transports.Message); ok {
					buf = append(buf, m.Frame...)
					e = transports.Message{Frame: buf[len(buf)-len(m.Frame):]}
				}
				return []transports.Event{e}
			})}
		}},
		{"frames leave out of order", "a pipe keeps the order of Send", func(*testing.T) wrong {
			var held *transports.Outbound
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				if out.Ref == 2 {
					held = &out
					return nil
				}
				err := w.Transport.Send(out)
				if held != nil {
					err = errors.Join(err, w.Transport.Send(*held))
					held = nil
				}
				return err
			}}
		}},
		{"an answer is given twice", "many senders at once", func(*testing.T) wrong {
			var once sync.Once
			return wrong{serve: events(func(_ *wrong, e transports.Event) (es []transports.Event) {
				es = append(es, e)
				if _, ok := e.(transports.Message); ok {
					once.Do(func() { es = append(es, e) })
				}
				return es
			})}
		}},
		{"no Sent", "Sent follows a notification, and nothing else does", func(*testing.T) wrong {
			return wrong{serve: events(without[transports.Sent])}
		}},
		{"a Sent for a request", "Sent follows a notification, and nothing else does", func(*testing.T) wrong {
			return wrong{
				send: func(w *wrong, out transports.Outbound) error {
					if out.ID != "" {
						w.mu.Lock()
						w.refs = append(w.refs, out.Ref)
						w.mu.Unlock()
					}
					return w.Transport.Send(out)
				},
				serve: events(func(w *wrong, e transports.Event) (es []transports.Event) {
					w.mu.Lock()
					defer w.mu.Unlock()
					for _, ref := range w.refs {
						es = append(es, transports.Sent{Ref: ref})
					}
					w.refs = nil
					return append(es, e)
				}),
			}
		}},
		{"Send waits for the peer", "Send does not wait for a peer that reads nothing, and a queue ends", func(t *testing.T) wrong {
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				err := w.Transport.Send(out)
				if errors.Is(err, transports.ErrFull) {
					<-over
				}
				return err
			}}
		}},
		{"the queue has no end", "Send does not wait for a peer that reads nothing, and a queue ends", func(*testing.T) wrong {
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				if err := w.Transport.Send(out); !errors.Is(err, transports.ErrFull) {
					return err
				}
				return nil
			}}
		}},
		{"the queue is short", "Send does not wait for a peer that reads nothing, and a queue ends", func(*testing.T) wrong {
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				if out.Ref > 10 {
					return transports.ErrFull
				}
				return w.Transport.Send(out)
			}}
		}},
		{"Cancel takes nothing back", "Cancel takes back what was not written", func(*testing.T) wrong {
			return wrong{cancel: func(*wrong, uint64) bool { return false }}
		}},
		{"Cancel says it took back what it did not", "Cancel takes back what was not written", func(*testing.T) wrong {
			return wrong{cancel: func(*wrong, uint64) bool { return true }}
		}},
		{"Cancel says it took back what was answered", "Cancel of what was written, or never sent, is false", func(*testing.T) wrong {
			return wrong{cancel: func(w *wrong, ref uint64) bool { w.Transport.Cancel(ref); return true }}
		}},
		{"Cancel does not keep what it says", "no event follows a Cancel", func(*testing.T) wrong {
			return wrong{cancel: func(*wrong, uint64) bool { return true }}
		}},
		{"no Unsent", "what was not begun is Unsent before Serve returns", func(*testing.T) wrong {
			return wrong{serve: events(without[transports.Unsent])}
		}},
		{"an Unsent without a cause", "what was not begun is Unsent before Serve returns", func(*testing.T) wrong {
			return wrong{serve: events(func(_ *wrong, e transports.Event) []transports.Event {
				if u, ok := e.(transports.Unsent); ok {
					e = transports.Unsent{Ref: u.Ref}
				}
				return []transports.Event{e}
			})}
		}},
		{"Serve returns another error than the cause", "Serve returns the cause of its context", func(*testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				w.Transport.Serve(ctx, emit)
				return ctx.Err()
			}}
		}},
		{"Serve does not return", "Serve stops under a silent peer with requests in flight", func(t *testing.T) wrong {
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				w.Transport.Serve(ctx, emit)
				<-over
				return context.Cause(ctx)
			}}
		}},
		{"Serve serves a context that is over", "Serve with a context that is over returns its cause", func(*testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				if ctx.Err() != nil {
					return nil
				}
				return w.Transport.Serve(ctx, emit)
			}}
		}},
		{"Send takes what nobody will carry", "Send is refused once Serve returned, and does not wait before Serve", func(*testing.T) wrong {
			return wrong{send: func(w *wrong, out transports.Outbound) error {
				w.Transport.Send(out)
				return nil
			}}
		}},
		{"something is emitted after Serve returned", "Serve returns the cause of its context", func(t *testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				err := w.Transport.Serve(ctx, emit)
				go func() {
					for !w.isOver() {
						runtime.Gosched()
					}
					emit(transports.Diagnostic{Line: "late"})
				}()
				return err
			}}
		}},
		{"a goroutine is left", "Serve returns the cause of its context", func(t *testing.T) wrong {
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				go func() { <-over }()
				return w.Transport.Serve(ctx, emit)
			}}
		}},
		{"a death without a cause", "a peer that dies ends Serve with an error", func(*testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				w.Transport.Serve(ctx, emit)
				return context.Cause(ctx)
			}}
		}},
		{"Unsent for what was refused", "each attempt of a death is accounted for", func(*testing.T) wrong {
			return wrong{serve: func(w *wrong, ctx context.Context, emit func(transports.Event)) error {
				err := w.Transport.Serve(ctx, emit)
				emit(transports.Unsent{Ref: 1 << 40, Cause: err})
				return err
			}}
		}},
		{"an absent peer is served", "a peer that is not there", func(*testing.T) wrong {
			return wrong{serve: func(*wrong, context.Context, func(transports.Event)) error { return nil }}
		}},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			found := conformance.TransportProblem(t, tt.found, 500*time.Millisecond, func(t *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
				peer := memoryPeer(transports.Pipe)(t, kind)
				if kind == conformance.PeerAbsent {
					peer = memoryPeer(transports.Pipe)(t, conformance.PeerSilent)
				}
				right := peer.Factory.New
				peer.Factory.New = func() transports.Transport {
					w := tt.make(t)
					w.Transport = right()
					return &w
				}
				return peer
			})
			if len(found) == 0 {
				t.Errorf("%q did not find it", tt.found)
			}
			for _, p := range found[:min(1, len(found))] {
				t.Logf("found: %.200s", p)
			}
		})
	}
}
