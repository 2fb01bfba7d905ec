package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
)

// paged is a peer whose tools come in pages, named after the incarnation and the
// page: pages[g-1] of them from incarnation g on, the first ones empty if asked.
// ttl is what each allows in milliseconds.
type paged struct {
	peer
	pages int
	empty int
	ttl   int
	die   func(gen, page int) bool // instead of an answer
}

func newPaged(pages int) *paged {
	p := &paged{pages: pages}
	p.on = func(l *life, m message) (bool, error) {
		if m.Method != "tools/list" {
			return false, nil
		}
		var params struct{ Cursor string }
		_ = json.Unmarshal(m.Params, &params)
		gen, page := l.gen, 1
		if params.Cursor != "" {
			if _, err := fmt.Sscanf(params.Cursor, "%d/%d", &gen, &page); err != nil || gen != l.gen {
				l.fail(m, -32602, "a cursor of somebody else's: "+params.Cursor)
				return true, nil
			}
		}
		if p.die != nil && p.die(l.gen, page) {
			return true, errKilled
		}
		tools, next := "", ""
		if page > p.empty {
			tools = fmt.Sprintf(`{"name":"%d/%d","inputSchema":{"type":"object"}}`, l.gen, page)
		}
		if page < p.pages {
			next = fmt.Sprintf(`,"nextCursor":"%d/%d"`, l.gen, page+1)
		}
		l.result(m, `{"tools":[%s],"ttlMs":%d%s}`, tools, p.ttl, next)
		return true, nil
	}
	return p
}

// iterate reads all tools and says how it ended; between is called after each.
func iterate(t *testing.T, c *client.Client, between func(n int)) []string {
	t.Helper()
	var got []string
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			return append(got, endOfListing(err))
		}
		if got = append(got, tool.Name); between != nil {
			between(len(got))
		}
	}
	return append(got, "end")
}

func endOfListing(err error) string {
	if errors.Is(err, client.ErrCursorLost) {
		return "cursor lost"
	}
	return words(err)
}

func TestIteration_SurvivesADeathWhereNothingWasGivenOutYet(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   client.Config
		empty int
		dies  int // in answering this page, once
		kill  int // or between two pages, after this many tools
		want  []string
	}{
		{"nothing happens", client.Config{}, 0, 0, 0, []string{"1/1", "1/2", "1/3", "end"}},
		{"a retried first page", client.Config{RetryLost: true}, 0, 1, 0, []string{"2/1", "2/2", "2/3", "end"}},
		{"a first page that is not retried", client.Config{WaitForReady: true}, 0, 1, 0, []string{"outcome unknown: killed by the test"}},
		{"a later page, nothing given out", client.Config{WaitForReady: true}, 2, 2, 0, []string{"2/3", "end"}},
		{"the same without waiting", client.Config{}, 2, 2, 0, []string{"not executed: nobody serves"}},
		{"a later page, something given out", client.Config{WaitForReady: true}, 0, 3, 0, []string{"1/1", "1/2", "cursor lost"}},
		{"the same under RetryLost", client.Config{WaitForReady: true, RetryLost: true}, 0, 3, 0, []string{"1/1", "1/2", "cursor lost"}},
		{"between two pages", client.Config{WaitForReady: true}, 0, 0, 1, []string{"1/1", "cursor lost"}},
		{"after the last page", client.Config{}, 0, 0, 3, []string{"1/1", "1/2", "1/3", "end"}},
	} {
		for _, cached := range []bool{false, true} {
			for _, legacy := range []bool{false, true} {
				t.Run(tt.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := newPaged(3)
						p.legacy, p.empty, p.ttl = legacy, tt.empty, 1000
						p.die = func(gen, page int) bool { return gen == 1 && page == tt.dies }
						tt.cfg.Cache = cached
						c := connect(t, &p.peer, tt.cfg)
						got := iterate(t, c, func(n int) {
							if n == tt.kill {
								p.kill()
								synctest.Wait()
							}
						})
						if diff := cmp.Diff(tt.want, got); diff != "" {
							t.Error(diff)
						}
					})
				})
			}
		}
	}
}

func TestIteration_EndsWhereTheServerWouldNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "tools/list" {
				return false, nil
			}
			l.result(m, `{"tools":[{"name":"x","inputSchema":{"type":"object"}}],"nextCursor":"same"}`)
			return true, nil
		}}
		c := connect(t, p, client.Config{})
		var last error
		n := 0
		for _, err := range c.Tools(t.Context()) {
			if n++; err != nil {
				last = err
			}
		}
		if decode := new(client.DecodeError); n != 3 || !errors.As(last, &decode) || client.OutcomeOf(last) != client.Answered {
			t.Errorf("%d steps, then %v", n, last)
		}
		for range c.Tools(t.Context()) {
			break // asks for no further page
		}
		if n := len(p.got("tools/list")); n != 3 {
			t.Errorf("%d pages were asked for", n)
		}
	})
}

func TestIteration_EndsAtAnItemThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "tools/list" {
				return false, nil
			}
			l.result(m, `{"tools":[{"name":"x","inputSchema":{"type":"object"}},null,{"name":"y"}]}`)
			return true, nil
		}}
		c := connect(t, p, client.Config{})
		var got []string
		for tool, err := range c.Tools(t.Context()) {
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			got = append(got, tool.Name)
		}
		want := []string{"x", "client: the answer to tools/list can't be decoded: an item is null"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A page that was kept belongs to the server that gave it, and so does its cursor.
func TestCache_ACursorOfAKeptPageGoesToNoOtherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaged(2)
		p.ttl = 3_600_000
		c := connect(t, &p.peer, client.Config{Cache: true, WaitForReady: true})
		for range 2 {
			if diff := cmp.Diff([]string{"1/1", "1/2", "end"}, iterate(t, c, nil)); diff != "" {
				t.Error(diff)
			}
		}
		if n := len(p.got("tools/list")); n != 2 {
			t.Errorf("%d pages were asked for", n)
		}
		c.Flush()
		if _, err := c.ListTools(t.Context(), nil); err != nil { // the first page alone is kept
			t.Fatal(err)
		}
		p.kill()
		synctest.Wait()
		if diff := cmp.Diff([]string{"1/1", "cursor lost"}, iterate(t, c, nil)); diff != "" {
			t.Errorf("while nobody serves: %s", diff)
		}
		pass(defaultDelay)
		if diff := cmp.Diff([]string{"2/1", "2/2", "end"}, iterate(t, c, nil)); diff != "" {
			t.Error(diff)
		}
	})
}

// A kept page without tools does not send the iteration round in circles.
func TestCache_AnIterationThatStartsOverAsksAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaged(2)
		p.ttl, p.empty = 3_600_000, 1
		c := connect(t, &p.peer, client.Config{Cache: true, WaitForReady: true})
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		p.kill()
		synctest.Wait()
		if diff := cmp.Diff([]string{"2/2", "end"}, iterate(t, c, nil)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCache_KeepsAResultForAsLongAsItSays(t *testing.T) {
	for _, tt := range []struct {
		hint string
		kept time.Duration
	}{
		{`"ttlMs":1000`, time.Second},
		{`"ttlMs":1000,"cacheScope":"public"`, time.Second},
		{`"ttlMs":1000,"cacheScope":"private"`, time.Second},
		{`"ttlMs":9223372036854775807`, 24 * time.Hour},
		{`"ttlMs":0`, 0},
		{`"ttlMs":-5`, 0},
		{`"ttlMs":null`, 0},
		{`"other":1`, 0},
	} {
		t.Run(tt.hint, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p := &peer{on: func(l *life, m message) (bool, error) {
					if m.Method != "resources/read" {
						return false, nil
					}
					asked++
					l.result(m, `{"contents":[{"uri":"a","text":"%d"}],%s}`, asked, tt.hint)
					return true, nil
				}}
				c := connect(t, p, client.Config{Cache: true})
				read := func() string {
					r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "a"})
					if err != nil {
						t.Fatal(err)
					}
					return r.Contents[0].Text
				}
				got := []string{read()}
				if tt.kept > 0 {
					pass(tt.kept - 1)
					got = append(got, read())
					pass(1)
				}
				got = append(got, read())
				want := []string{"1", "1", "2"}
				if tt.kept == 0 {
					want = []string{"1", "2"}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestCache_ForgetsWhatTheServerSaysHasChanged(t *testing.T) {
	kinds := map[string]func(*testing.T, *client.Client) error{
		"tools/list":     func(t *testing.T, c *client.Client) error { _, err := c.ListTools(t.Context(), nil); return err },
		"prompts/list":   func(t *testing.T, c *client.Client) error { _, err := c.ListPrompts(t.Context(), nil); return err },
		"resources/list": func(t *testing.T, c *client.Client) error { _, err := c.ListResources(t.Context(), nil); return err },
		"resources/templates/list": func(t *testing.T, c *client.Client) error {
			_, err := c.ListResourceTemplates(t.Context(), nil)
			return err
		},
		"resources/read a": func(t *testing.T, c *client.Client) error {
			_, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "a"})
			return err
		},
		"resources/read b": func(t *testing.T, c *client.Client) error {
			_, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "b"})
			return err
		},
	}
	all := []string{"prompts/list", "resources/list", "resources/read a", "resources/read b", "resources/templates/list", "tools/list"}
	for _, tt := range []struct {
		name  string
		event func(p *peer, c *client.Client)
		want  []string // asked for again
	}{
		{"nothing", func(*peer, *client.Client) {}, nil},
		{"tools", func(p *peer, _ *client.Client) { p.last().say("notifications/tools/list_changed", `{}`) }, all[5:]},
		{"tools, with odd params", func(p *peer, _ *client.Client) { p.last().say("notifications/tools/list_changed", `{"uri":7}`) }, all[5:]},
		{"prompts", func(p *peer, _ *client.Client) { p.last().say("notifications/prompts/list_changed", `null`) }, all[:1]},
		{"resources", func(p *peer, _ *client.Client) { p.last().say("notifications/resources/list_changed", `{}`) }, all[1:5]},
		{"one resource", func(p *peer, _ *client.Client) { p.last().say("notifications/resources/updated", `{"uri":"b"}`) }, all[3:4]},
		{"an unknown one", func(p *peer, _ *client.Client) { p.last().say("notifications/resources/updated", `{"uri":"c"}`) }, nil},
		{"Flush", func(_ *peer, c *client.Client) { c.Flush() }, all},
		{"a recovery", func(p *peer, _ *client.Client) { p.kill(); pass(defaultDelay) }, all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				p := &peer{on: func(l *life, m message) (bool, error) {
					if !strings.HasSuffix(m.Method, "/list") && m.Method != "resources/read" {
						return false, nil
					}
					var params struct{ URI string }
					_ = json.Unmarshal(m.Params, &params)
					asked = append(asked, strings.TrimSpace(m.Method+" "+params.URI))
					l.result(m, `{"tools":[],"prompts":[],"resources":[],"resourceTemplates":[],"contents":[],"ttlMs":60000}`)
					return true, nil
				}}
				c := connect(t, p, client.Config{Cache: true})
				read := func() []string {
					asked = nil
					for name, f := range kinds {
						if err := f(t, c); err != nil {
							t.Fatal(name, err)
						}
					}
					return sorted(asked)
				}
				if diff := cmp.Diff(all, read()); diff != "" {
					t.Errorf("at first: %s", diff)
				}
				tt.event(p, c)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, read()); diff != "" {
					t.Errorf("then: %s", diff)
				}
			})
		})
	}
}

// What was asked for before a change may be older than the change.
func TestCache_AnAnswerOlderThanAChangeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []message
		p := &peer{on: func(_ *life, m message) (bool, error) {
			if m.Method == "tools/list" {
				waiting = append(waiting, m)
			}
			return m.Method == "tools/list", nil
		}}
		c := connect(t, p, client.Config{Cache: true})
		for range 2 {
			said := start(func() string { _, err := c.ListTools(t.Context(), nil); return words(err) })
			synctest.Wait()
			p.last().say("notifications/tools/list_changed", `{}`)
			p.last().result(waiting[len(waiting)-1], `{"tools":[],"ttlMs":60000}`)
			if got := <-said; got != "ok" {
				t.Error(got)
			}
		}
		if len(waiting) != 2 {
			t.Errorf("it was asked for %d times", len(waiting))
		}
	})
}

// A client that lives for long reads more than is kept at once.
func TestCache_MakesRoomOfWhatIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := &peer{on: func(l *life, m message) (bool, error) {
			if m.Method != "resources/read" {
				return false, nil
			}
			asked++
			l.result(m, `{"contents":[],"ttlMs":1000}`)
			return true, nil
		}}
		c := connect(t, p, client.Config{Cache: true})
		read := func(uri string) {
			if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1024 {
			read(fmt.Sprint(i))
		}
		read("one more")
		read("one more") // for which there is no room
		pass(time.Second)
		read("another")
		read("another")
		if asked != 1024+2+1 {
			t.Errorf("the server was asked %d times", asked)
		}
	})
}
