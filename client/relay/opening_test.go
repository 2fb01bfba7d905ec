package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/respawn-mcp/respawn/client/relay"
	"github.com/respawn-mcp/respawn/policy"
	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/memory"
)

const (
	probe       = `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}`
	modernProbe = `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{` + modernMeta + `}}`
)

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"the host's"}}`
}

// slow is a transport on a machine where anything may take its time.
type slow struct {
	transports.Transport
	before, after func(transports.Outbound) time.Duration // around handing a message over; nil: none
	ready         time.Duration                           // from the start to Ready
	linger        time.Duration                           // from the end to when it is known
}

func (s slow) Send(out transports.Outbound) error {
	if s.before != nil {
		time.Sleep(s.before(out))
	}
	err := s.Transport.Send(out)
	if s.after != nil {
		time.Sleep(s.after(out))
	}
	return err
}

func (s slow) Serve(ctx context.Context, emit func(transports.Event)) error {
	err := s.Transport.Serve(ctx, func(ev transports.Event) {
		if _, ok := ev.(transports.Ready); ok {
			time.Sleep(s.ready)
		}
		emit(ev)
	})
	time.Sleep(s.linger)
	return err
}

// slowed is a factory whose transports are slow: how tells by generation.
func slowed(f transports.Factory, how func(gen int, s *slow)) transports.Factory {
	living, gen := f.New, new(atomic.Int64)
	f.New = func() transports.Transport {
		s := slow{Transport: living()}
		how(int(gen.Add(1)), &s)
		return s
	}
	return f
}

// late is a factory whose first transport hands messages of a method over, and whoever
// did that is not heard of for a while: what comes of it is there before.
func late(f transports.Factory, method string, by time.Duration) transports.Factory {
	return slowed(f, func(gen int, s *slow) {
		if gen == 1 {
			s.after = lateAt(method, by)
		}
	})
}

func lateAt(method string, by time.Duration) func(transports.Outbound) time.Duration {
	return func(out transports.Outbound) time.Duration {
		if out.Method == method {
			return by
		}
		return 0
	}
}

// gap is late, and every later transport takes five seconds to start.
func gap(f transports.Factory, method string) transports.Factory {
	return slowed(f, func(gen int, s *slow) {
		if gen == 1 {
			s.after = lateAt(method, time.Second)
		} else {
			s.ready = 5 * time.Second
		}
	})
}

// unreachable is a server over HTTP that nothing reaches until it is well.
func unreachable(well *atomic.Bool, then func(*life, message) error) *server {
	return &server{shape: transports.Posts, on: func(l *life, m message) error {
		if well.Load() {
			return then(l, m)
		}
		l.Emit(transports.Unsent{Ref: m.ref, Cause: errors.New("connection refused")})
		return nil
	}}
}

// both answers either opening.
func both(l *life, m message) error {
	if m.Method == "server/discover" {
		l.Write(m.ref, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`)
		return nil
	}
	return legacy(l, m)
}

// dying is a server whose first life dies of whatever it reads.
func dying(then func(*life, message) error) *server {
	return &server{on: func(l *life, m message) error {
		if l.gen == 1 {
			return errors.New("exit code 1")
		}
		return then(l, m)
	}}
}

// answersTo counts what the host heard in answer to a request.
func (h *host) answersTo(id string) (n int) {
	for _, line := range h.heard() {
		if strings.Contains(line, `"id":`+id+`,`) {
			n++
		}
	}
	return n
}

func TestRelay_Rule1_AnOpeningWhoseLossIsToldLateIsGivenToOneServerAtATime(t *testing.T) {
	for _, tc := range []struct{ method, opening, took, heard string }{
		{"server/discover", probe, "1", `"code":-31001`},
		{"initialize", initialize, "1 2", `"id":"i","result"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := dying(legacy)
			h := inFrontOf(t, late(s.factory(), tc.method, time.Second), relay.Config{})
			h.say(tc.opening)
			sleep(time.Minute)
			var took []string
			for _, frame := range s.took() {
				gen, _, _ := strings.Cut(frame, " ")
				took = append(took, gen)
			}
			if got := strings.Join(took, " "); got != tc.took || s.count() != 2 {
				t.Errorf("of %d lives, %s were given %s; want 2 and %s", s.count(), got, tc.opening, tc.took)
			}
			if got := h.heard(); len(got) != 1 || !strings.Contains(got[0], tc.heard) {
				t.Errorf("the host hears %s, want one %s", got, tc.heard)
			}
		})
	}
}

func TestRelay_Rule1_AProbeBetweenTwoServersIsGivenToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dying(both)
		h := inFrontOf(t, gap(s.factory(), "initialize"), relay.Config{})
		h.say(initialize)
		sleep(100 * time.Millisecond)
		h.say(modernProbe)
		sleep(time.Minute)
		expect(t, "the servers", methods(s.took()), []string{`"i" initialize`, `"i" initialize`, `"d" server/discover`})
		if n := h.answersTo(`"d"`); n != 1 {
			t.Errorf("the probe has %d answers", n)
		}
	})
}

func TestRelay_Rule1_AnOpeningThatOnlyASettledServerWasOfferedIsTheNextOnes(t *testing.T) {
	for _, shape := range []transports.Shape{transports.Pipe, transports.Posts} {
		t.Run(shape.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := dying(legacy)
				s.shape = shape
				h := inFrontOf(t, gap(s.factory(), "server/discover"), relay.Config{})
				h.say(probe)
				sleep(100 * time.Millisecond)
				h.say(initialize)
				sleep(time.Hour)
				if n := h.answersTo(`"i"`); n != 1 {
					t.Errorf("the initialize has %d answers", n)
				}
			})
		})
	}
}

func TestRelay_Rule3_AnOpeningThatNobodyHasWhenAnotherWinsIsAnswered(t *testing.T) {
	t.Run("its server died before it was offered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: func(l *life, m message) error {
				if m.Method == "server/discover" && l.gen == 1 {
					time.Sleep(150 * time.Millisecond)
				}
				return both(l, m)
			}}
			h := inFrontOf(t, late(s.factory(), "server/discover", time.Second), relay.Config{})
			h.say(modernProbe)
			sleep(100 * time.Millisecond)
			h.say(initialize)
			sleep(100 * time.Millisecond)
			s.kill()
			sleep(time.Hour)
			if n := h.answersTo(`"i"`); n != 1 {
				t.Errorf("the initialize has %d answers", n)
			}
		})
	})
	t.Run("it waits to be tried again over HTTP", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var well atomic.Bool
			h := start(t, unreachable(&well, both), relay.Config{})
			h.say(modernProbe)
			well.Store(true)
			h.say(initialize, initialized)
			sleep(time.Hour)
			if n := h.answersTo(`"d"`); n != 1 {
				t.Errorf("the probe has %d answers", n)
			}
		})
	})
}

func TestRelay_Rule4_AProbeToAServerWhoseEndIsNotKnownYetIsToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: legacy}
		h := inFrontOf(t, slowed(s.factory(), func(_ int, s *slow) { s.linger = time.Second }), relay.Config{})
		synctest.Wait()
		s.kill()
		sleep(100 * time.Millisecond)
		h.say(probe)
		sleep(time.Minute)
		got := strings.Join(h.heard(), "\n")
		if !strings.Contains(got, "went away before it answered server/discover") || !strings.Contains(got, `"outcome":"not executed"`) {
			t.Errorf("the host hears %s", got)
		}
	})
}

func TestRelay_Rule4_TheErrorOfAnOpeningCountsAllItsAttempts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		shape transports.Shape
		peer  func(gen int, s *server) memory.Peer
		want  string
	}{
		{
			"read once, and then by nobody", transports.Pipe,
			func(gen int, s *server) memory.Peer {
				if gen == 1 {
					s.on = func(*life, message) error { return errors.New("exit code 1") }
					return s.serve
				}
				return func(context.Context, *memory.Conn) error {
					time.Sleep(time.Second)
					return errors.New("exit code 2")
				}
			},
			`"i": -31003, unknown, attempt 2`,
		},
		{
			"read twice, and answered at too great a length", transports.Pipe,
			func(gen int, s *server) memory.Peer {
				s.on = func(l *life, m message) error {
					if l.gen == 1 {
						return errors.New("exit code 1")
					}
					l.Emit(transports.Noise{Bytes: 65 << 20, ID: string(m.ID), Sample: `{"jsonrpc`})
					return nil
				}
				return s.serve
			},
			`"i": -31001, unknown, attempt 2`,
		},
		{
			"never sent", transports.Posts,
			func(gen int, s *server) memory.Peer {
				s.on = func(l *life, m message) error {
					l.Emit(transports.Unsent{Ref: m.ref, Cause: errors.New("connection refused")})
					return nil
				}
				return s.serve
			},
			`"i": -31002, not executed, attempt 6`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{shape: tc.shape}
				gen := 0
				h := inFrontOf(t, memory.Factory(tc.shape, "scripted", func(ctx context.Context, c *memory.Conn) error {
					gen++
					return tc.peer(gen, s)(ctx, c)
				}), relay.Config{})
				h.say(initialize)
				sleep(time.Minute)
				expect(t, "the host hears", h.brief(), []string{tc.want})
			})
		})
	}
}

func TestRelay_Rule5_ACancelOfALiveProbeIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{on: mute}
		h := start(t, s, relay.Config{})
		h.say(probe)
		h.say(cancelOf(`"d"`))
		sleep(time.Minute)
		expect(t, "the server", s.took(), []string{"1 " + probe, "1 " + cancelOf(`"d"`)})
		expect(t, "the host", h.heard(), nil)
	})
}

func TestRelay_Rule5_ACancelIsToldOnceAndOnlyOfWhatTheServerMayRead(t *testing.T) {
	t.Run("while its request is being sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: mute}
			h := inFrontOf(t, late(s.factory(), "tools/call", time.Second), relay.Config{})
			h.say(call(1, "tools/call")) // it waits for the opening, so that the engine's loop sends it
			h.say(initialize)
			s.took()
			sleep(100 * time.Millisecond)
			h.say(cancelOf("1"))
			sleep(time.Minute)
			expect(t, "the server", s.took(), []string{"1 " + cancelOf("1")})
		})
	})
	t.Run("while its request waits for others to be sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: mute}
			h := inFrontOf(t, slowed(s.factory(), func(_ int, s *slow) { s.before = lateAt("tools/call", time.Second) }), relay.Config{})
			h.say(call(1, "tools/call"), call(2, "tools/list"), initialize) // the engine's loop sends the first two
			sleep(100 * time.Millisecond)
			h.say(cancelOf("2"))
			sleep(time.Minute)
			expect(t, "the server", methods(s.took()), []string{`"i" initialize`, "1 tools/call"})
		})
	})
	t.Run("while its request waits to be written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: func(l *life, m message) error {
				if m.Method == "tools/call" {
					time.Sleep(time.Second) // it reads nothing meanwhile
					return nil
				}
				return legacy(l, m)
			}}
			h := opened(t, s, relay.Config{})
			h.say(call(1, "tools/call"), call(2, "tools/list"), cancelOf("2"))
			sleep(time.Minute)
			expect(t, "the server", methods(s.took()), []string{"1 tools/call"})
		})
	})
}

// The host has its answer, and the engine's loop hears of the death first: on another
// goroutine than the answer came by.
func TestRelay_Rule1_FromTheAnswerOnADeathIsTheBudgets(t *testing.T) {
	answers := func(upTo int) func(*life, message) error {
		return func(l *life, m message) error {
			_ = legacy(l, m)
			if l.gen <= upTo {
				return errors.New("exit code 2")
			}
			return nil
		}
	}
	run := func(t *testing.T, s *server, budget policy.Budget) *host {
		h := inFrontOf(t, late(s.factory(), "initialize", time.Second), relay.Config{Budget: budget})
		h.say(initialize)
		sleep(time.Hour)
		return h
	}
	t.Run("two deaths are within it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: answers(2)}
			if h := run(t, s, policy.Patient()); h.State().Terminal() || s.count() != 3 {
				t.Errorf("%s after %d lives", h.State(), s.count())
			}
		})
	})
	t.Run("one is beyond none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{on: answers(1)}
			if h := run(t, s, policy.Never()); !h.State().Terminal() || s.count() != 1 {
				t.Errorf("%s after %d lives", h.State(), s.count())
			}
		})
	})
	t.Run("a replacement that hangs is replaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer := answers(1)
			s := &server{on: func(l *life, m message) error {
				if l.gen == 2 {
					return nil
				}
				return answer(l, m)
			}}
			if h := run(t, s, policy.Patient()); h.State().Terminal() || s.count() != 3 {
				t.Errorf("%s after %d lives", h.State(), s.count())
			}
		})
	})
}
