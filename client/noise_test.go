package client_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports"
)

func TestB069_NoiseIsCountedAndSurvived(t *testing.T) {
	lines := []string{
		"", " ", "null", "[]", "[[]]", "42", `"x"`, "true", "{}", "\x1b[31mred\x1b[0m", "listening on :8080", "{", `{"jsonrpc":"2.0"`,
		`{"jsonrpc":"2.0","id":1,"result":{}} and more`, `[{"jsonrpc":"2.0","id":1,"result":{}}]`, "\x00", "\xff\xfe",
		strings.Repeat("noise ", 1<<17), strings.Repeat("[", 2<<20), strings.Repeat(`{"a":`, 1<<19),
	}
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method == "server/discover" || m.Method == "initialize" || m.Method == "tools/call" {
					for _, line := range lines {
						l.Write(0, line)
					}
					l.Emit(transports.Noise{Bytes: 10, Sample: "no message"})
				}
				return false, nil
			}}
			c := connect(t, p, d.of(client.Config{}))
			for range 3 {
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
			}
			n := uint64(4)
			if legacy {
				n++
			}
			want := client.Stats{Malformed: n * uint64(len(lines)), NoiseBytes: 10 * n}
			if diff := cmp.Diff(want, c.Stats()); diff != "" {
				t.Error(diff)
			}
			if got := d.read(); got != nil {
				t.Error(got)
			}
		})
	}
}

func TestB070_JSONThatIsNoAnswerAnswersNobody(t *testing.T) {
	for _, line := range []string{
		`{"level":"info"}`,
		`{"id":%[1]s}`,
		`{"id":%[1]s,"result":{}}`,
		`{"jsonrpc":"1.0","id":%[1]s,"result":{}}`,
		`{"jsonrpc":2.0,"id":%[1]s,"result":{}}`,
		`{"jsonrpc":"2.0","id":%[1]s}`,
		`{"jsonrpc":"2.0","id":%[1]s,"result":{},"error":{}}`,
		`{"jsonrpc":"2.0","id":%[1]s,"result":{},"error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","ID":%[1]s,"RESULT":{}}`,
		`{"jsonrpc":"2.0","result":{}}`,
		`{"jsonrpc":"2.0","id":%[1]s,"params":{}}`,
	} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method == "tools/call" {
						l.Write(0, strings.ReplaceAll(line, "%[1]s", string(m.ID)))
					}
					return false, nil
				}}
				c := connect(t, p, client.Config{})
				if got := tool(t.Context(), c); got != "generation 1" {
					t.Error(got)
				}
				if diff := cmp.Diff(client.Stats{Malformed: 1}, c.Stats()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Some servers marshal both fields always, and null the one that does not count.
func TestB070_ANullFieldBesideTheTrueOneIsNoContradiction(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x"}]},"error":null}`: "x",
		`{"jsonrpc":"2.0","id":%s,"result":null,"error":{"code":-32000,"message":"m"}}`:            "the peer says -32000",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{on: on("tools/call", func(l *life, m message) error {
				l.Write(0, fmt.Sprintf(line, m.ID))
				return nil
			})}
			c := connect(t, p, client.Config{RequestTimeout: time.Second})
			if got := tool(t.Context(), c); got != want {
				t.Errorf("%s: %s, want %s", line, got, want)
			}
		})
	}
}

func TestB073_WhateverIsInsideAStringItsRequestIsSettled(t *testing.T) {
	for _, tt := range []struct{ what, text, want string }{
		{"an emoji", "\U0001F600", "\U0001F600"},
		{"a line separator", "a\u2028b\u2029c", "a\u2028b\u2029c"},
		{"an escaped surrogate pair", `\ud83d\ude00`, "\U0001F600"},
		{"a lone surrogate", `a\ud83d b`, "a\ufffd b"},
		{"CP949", "\xc7\xd1\xb1\xdb", "\ufffd\u0471\ufffd"},
		{"a lone byte", "a\xffb", "a\ufffdb"},
		{"half an emoji", "a\xf0\x9f\x98", "a\ufffd\ufffd\ufffd"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{on: on("tools/call", func(l *life, m message) error {
					l.Write(0, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"`+tt.text+`"}]}}`)
					return nil
				})}
				c := connect(t, p, client.Config{})
				began := time.Now()
				if got := tool(t.Context(), c); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if !time.Now().Equal(began) {
					t.Errorf("it took %s", time.Since(began))
				}
			})
		})
	}
}

func TestB011_AnErrorWithoutAnIdResolvesNothingOnAPipe(t *testing.T) {
	for _, id := range []string{`"id":null,`, ``} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{on: func(l *life, m message) (bool, error) {
				if m.Method == "tools/call" {
					l.Write(0, `{"jsonrpc":"2.0",`+id+`"error":{"code":-32700,"message":"parse error"}}`)
				}
				return false, nil
			}}
			c := connect(t, p, client.Config{})
			if got := tool(t.Context(), c); got != "generation 1" {
				t.Error(got)
			}
			if diff := cmp.Diff(client.Stats{Malformed: 1}, c.Stats()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestB079_WhatTheServerSaysUnaskedMovesNothing(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &diary{}
			p := &peer{legacy: legacy, on: func(l *life, m message) (bool, error) {
				if m.Method != "tools/call" {
					return false, nil
				}
				l.answer(m)
				l.progress(m, 1)
				l.progress(message{ID: json.RawMessage(`"tool-call-1"`)}, 1)
				l.progress(message{ID: json.RawMessage(`null`)}, 1)
				l.Write(0, `{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`)
				l.Write(0, `{"jsonrpc":"2.0","method":"notifications/unheard-of"}`)
				l.Write(0, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
				l.Write(0, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"notifications/stray-id"}`, m.ID))
				l.Write(0, `{"jsonrpc":"2.0","id":999999,"result":{}}`)
				return true, nil
			}}
			heard := 0
			c := connect(t, p, d.of(client.Config{OnNotification: func(client.Notification) { heard++ }}))
			for range 10 {
				_, err := c.Do(t.Context(), client.Request{Method: "tools/call", Progress: func(client.Progress) {}})
				if err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			want := client.Stats{UnknownIDs: 10, ModernRequests: 10}
			if legacy { // where a server may make requests, this is one that nobody knows
				want.ModernRequests = 0
				if got := len(p.got("")); got != 10 {
					t.Errorf("%d replies", got)
				}
			}
			if diff := cmp.Diff(want, c.Stats()); diff != "" {
				t.Error(diff)
			}
			if got := d.read(); got != nil || heard != 50 {
				t.Errorf("%d notifications, and %q", heard, got)
			}
		})
	}
}

func TestB104_AnIdThatComesBackAsAnotherType(t *testing.T) {
	const (
		mine    = "it is matched, and counted"
		nobodys = "it answers nobody"
	)
	for form, want := range map[string]string{
		`"%d"`: mine, `%d.0`: mine, `%de0`: mine, `%d.000`: mine, `"%d.0"`: mine, `0.%de1`: mine,
		`"x%d"`: nobodys, `0`: nobodys, `"0"`: nobodys, `-%d`: nobodys, `%d.5`: nobodys, `9007199254740993`: nobodys,
		`[%d]`: nobodys, `{"id":%d}`: nobodys, `true`: nobodys, `""`: nobodys, `"0x%d"`: nobodys, `" %d"`: nobodys, `"+%d"`: nobodys, `"0x%dp0"`: nobodys,
		`1e400`: nobodys, `"NaN"`: nobodys, `"Infinity"`: nobodys,
	} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held []message
				p := &peer{on: hold(1, &held)}
				c := connect(t, p, client.Config{})
				call := func() string {
					resp, err := c.Do(t.Context(), client.Request{Method: "tools/call"})
					return words(err) + string(resp.Result)
				}
				first := start(call)
				synctest.Wait()
				second := start(call)
				synctest.Wait()
				loose := held[0]
				var n int
				if err := json.Unmarshal(loose.ID, &n); err != nil {
					t.Fatal(err)
				}
				loose.ID = json.RawMessage(strings.ReplaceAll(form, "%d", fmt.Sprint(n)))
				p.last().result(loose, `"loose"`)
				p.last().result(held[0], `"first"`)
				p.last().result(held[1], `"second"`)
				got := []string{<-first, <-second}
				stats := client.Stats{UnknownIDs: 1}
				answers := []string{`ok"first"`, `ok"second"`}
				if want == mine {
					stats.LooseIDs = 1
					answers[0] = `ok"loose"`
				}
				if diff := cmp.Diff(answers, got); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(stats, c.Stats()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
