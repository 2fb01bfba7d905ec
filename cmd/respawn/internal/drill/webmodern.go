package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/fsm"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// The checks of the built-in HTTP server of the modern era, beside those of any.
const (
	checkReadCut     = "a read whose stream is cut is sent again"
	checkReadOnce    = "and once only"
	checkAnnotated   = "a read-only tool whose stream is cut is called again"
	checkUnannotated = "any other tool is not"
	checkListenCut   = "a cut subscription comes back"
)

var modernWebChecks = []string{
	checkOpens, checkReadCut, checkReadOnce, checkAnnotated, checkUnannotated, checkListenCut, checkLegal, checkLeft,
}

// web is the drill of a built-in HTTP server.
type web struct {
	d      *drill
	server *webServer
	tools  []string // as they were listed first
}

// webPart drills a built-in HTTP server by steps with one client, which is closed
// before closed is asked.
func (d *drill) webPart(ctx context.Context, modern bool, checks []string, steps []func(*web, context.Context, *subject) error, closed func(*web)) error {
	d.expect(checks...)
	before := look()
	server, err := openWebServer(modern, d.fault)
	if err != nil {
		return err
	}
	w := &web{d: d, server: server}
	d.run(ctx, func(ctx context.Context) error {
		s, err := d.attach(ctx, streamable.Endpoint(server.url, nil), client.Config{})
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err = step(w, ctx, s); err != nil {
				break
			}
		}
		err = errors.Join(err, s.close())
		d.proveLegal(s)
		return err
	})
	if closed != nil {
		closed(w)
	}
	err = server.close()
	d.left(before, 1)
	return err
}

// proveLegal judges a client that is closed.
func (d *drill) proveLegal(s *subject) {
	illegal := s.Stats().IllegalEvents
	s.mu.Lock()
	lived := 0
	for _, t := range s.states {
		if t.To == fsm.Serving {
			lived++
		}
	}
	s.mu.Unlock()
	d.prove(checkLegal, illegal == 0 && lived > 0, "%d, in %s", illegal, plural(lived, "life", "lives"))
}

func (d *drill) modernWeb(ctx context.Context) error {
	return d.webPart(ctx, true, modernWebChecks, []func(*web, context.Context, *subject) error{
		(*web).opens, (*web).readCut, (*web).toolsCut, (*web).listenCut,
	}, nil)
}

// opens makes the first listing, which is what the client knows of the tools, and
// the first call.
func (w *web) opens(ctx context.Context, s *subject) error {
	server := s.Server()
	era := "legacy"
	if w.server.modern {
		era = "modern"
	}
	var err error
	if w.tools, err = listTools(ctx, s); err != nil {
		return err
	}
	result, err := s.CallTool(ctx, call(toolCount, "first"))
	w.d.told(toolCount, result, err)
	n := w.server.executions("first")
	w.d.prove(checkOpens, server.Era == era && len(w.tools) > 0 && err == nil && n == 1,
		"%s, %s, %s", server.Version, plural(len(w.tools), "tool", "tools"), ranTimes(n))
	return err
}

// readCut cuts the response to a read once, and that to another one twice.
func (w *web) readCut(ctx context.Context, s *subject) error {
	read := func(uri string, cuts int) (answer string, err error) {
		w.server.cut(uri, cuts)
		w.d.say("cut", fmt.Sprintf("%s to resources/read %s", plural(cuts, "response", "responses"), uri), field{"uri", uri}, field{"times", cuts})
		result, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err == nil && len(result.Contents) == 1 {
			answer = result.Contents[0].Text
			w.d.say("answer", "resources/read: "+answer, field{"request", "resources/read"}, field{"answer", answer})
		}
		if err != nil {
			w.d.told("resources/read", nil, err)
		}
		return answer, err
	}
	at := time.Now()
	answer, err := read(resource, 1)
	took := time.Since(at)
	reads := w.server.about("resources/read", resource)
	w.d.prove(checkReadCut, err == nil && len(reads) == 2 && distinct(reads) && answer == "read by request "+reads[1].ID,
		"asked %s under %s, answered after %s", plural(len(reads), "time", "times"), ids(reads), millis(took))

	const poor = resource + "/poor"
	_, err = read(poor, 3)
	broken := new(client.StreamError)
	reads = w.server.about("resources/read", poor)
	w.d.prove(checkReadOnce, errors.As(err, &broken) && len(reads) == 2 && distinct(reads),
		"cut again: asked %s, %s", plural(len(reads), "time", "times"), client.OutcomeOf(err))
	return nil
}

// toolsCut cuts the responses to a tool that says it only reads, and to one that
// does not.
func (w *web) toolsCut(ctx context.Context, s *subject) error {
	cut := func(tool string) ([]asked, error) {
		w.server.cut(tool, 1)
		w.d.say("cut", "1 response to "+tool, field{"tool", tool}, field{"times", 1})
		result, err := s.CallTool(ctx, call(tool, tool))
		w.d.told(tool, result, err)
		return w.server.about("tools/call", tool), err
	}
	calls, err := cut(toolLook)
	n := w.server.executions(toolLook)
	w.d.prove(checkAnnotated, err == nil && len(calls) == 2 && n == 2 && distinct(calls), "%s, under %s", ranTimes(n), ids(calls))

	calls, lost := cut(toolCount)
	// Whatever would come of it comes before the answer to another call.
	if _, err := s.CallTool(ctx, call(toolCount, "after")); err != nil {
		return err
	}
	n = w.server.executions(toolCount)
	w.d.prove(checkUnannotated, lost != nil && client.OutcomeOf(lost) == client.OutcomeUnknown && len(calls) == 1 && n == 1,
		"%s, %s", client.OutcomeOf(lost), ranTimes(n))
	return nil
}

// listenCut cuts a subscription. The server tells of one change on each stream.
func (w *web) listenCut(ctx context.Context, s *subject) error {
	sub, err := s.Listen(ctx, client.Filter{URIs: []string{resource}}, s.hear)
	if err != nil {
		return err
	}
	if err := s.await(ctx, "news", func() bool { return len(s.heard) > 0 }); err != nil {
		return err
	}
	before := len(w.server.about("subscriptions/listen", ""))
	n := w.server.cutStreams()
	at := time.Now()
	w.d.say("cut", plural(n, "subscription", "subscriptions"), field{"times", n})
	if err := s.await(ctx, "news on a new stream", func() bool { return len(s.heard) > 1 }); err != nil {
		return err
	}
	took := time.Since(at)
	sub.Close()
	if err := sub.Wait(ctx); err != nil {
		return err
	}
	opened := w.server.about("subscriptions/listen", "")
	s.mu.Lock()
	heard := len(s.heard)
	s.mu.Unlock()
	w.d.prove(checkListenCut, n == 1 && before == 1 && len(opened) == 2 && distinct(opened) && heard == 2,
		"heard 1 change before and %d after, on streams %s, %s later", heard-1, ids(opened), millis(took))
	return nil
}

// distinct reports whether no id was used twice.
func distinct(all []asked) bool {
	seen := map[string]bool{}
	for _, a := range all {
		seen[a.ID] = true
	}
	return len(seen) == len(all)
}

// ids names the requests as the server saw them.
func ids(all []asked) string {
	var names []string
	for _, a := range all {
		names = append(names, a.ID)
	}
	return fmt.Sprintf("%v", slices.Clip(names))
}
