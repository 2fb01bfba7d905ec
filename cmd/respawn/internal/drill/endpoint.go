package drill

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/respawn-mcp/respawn/client"
)

// The checks of somebody else's server behind a URL, beside those of a command.
const (
	checkPing      = "it answers a ping"
	checkListed    = "it lists the same tools again"
	checkForgotten = "a deleted session is replaced"
)

// endpoint drills a server behind a URL as far as a client can: it can't be
// killed, nor its streams be cut, but a legacy session can be deleted behind its
// client's back.
func (d *drill) endpoint(ctx context.Context) error {
	if u, err := url.Parse(d.Endpoint.URL); err == nil {
		d.begin(u.Host) // the rest may hold secrets
	}
	before := look()
	w := newWire()
	defer w.base.CloseIdleConnections()
	conf := *d.Endpoint
	conf.Client = &http.Client{Transport: w}
	s, err := d.attach(ctx, conf.Factory(), client.Config{})
	if err != nil {
		return err
	}
	d.run(ctx, func(ctx context.Context) error { return d.visit(ctx, s, w) })
	if err := s.close(); err != nil {
		d.say("error", err.Error(), field{"error", err.Error()})
	}
	w.base.CloseIdleConnections()
	d.expect(checkLegal, checkLeft)
	d.proveLegal(s)
	d.left(before, 1)
	return nil
}

// visit asks what can be asked of any server, twice, and then deletes its session.
func (d *drill) visit(ctx context.Context, s *subject, w *wire) error {
	hasTools := s.Server().Capabilities.Tools != nil
	d.expect(checkServes, checkPing)
	if hasTools {
		d.expect(checkListed)
	}
	self := describe(s)
	tools, err := s.ask(ctx, hasTools)
	if err != nil {
		return err
	}
	d.prove(checkServes, w.count() > 0, "%s, %s", self, plural(w.count(), "HTTP exchange", "HTTP exchanges"))
	at := time.Now()
	if err := s.Ping(ctx); err != nil {
		return err
	}
	d.prove(checkPing, true, "after %s", millis(time.Since(at)))
	if hasTools {
		again, err := s.ask(ctx, hasTools)
		if err != nil {
			return err
		}
		same, how := sameTools(tools, again)
		d.prove(checkListed, same, "%s", how)
	}
	d.untried("to end the server or to cut its responses, which can't be done from outside")
	if s.Server().Era == "modern" {
		d.untried("to lose a session: a modern server has none")
		return nil
	}
	return d.forget(ctx, s, w, tools, hasTools)
}

// untried says what this drill does not prove, and why.
func (d *drill) untried(what string) { d.say("untried", what) }

// forget deletes the session and shows that the client begins another.
func (d *drill) forget(ctx context.Context, s *subject, w *wire, tools []string, hasTools bool) error {
	old := w.session()
	if old == "" {
		d.untried("to lose a session: the server issues none")
		return nil
	}
	status, err := w.deleteSession(ctx)
	if err != nil {
		return fmt.Errorf("DELETE: %w", err)
	}
	if status/100 != 2 {
		d.untried(fmt.Sprintf("to lose a session: the server answers DELETE with %d", status))
		return nil
	}
	d.say("delete", fmt.Sprintf("the session, behind the client's back: HTTP status %d", status), field{"status", status})
	before := w.sessions()
	at := time.Now()
	after, err := s.ask(ctx, hasTools)
	took, refused, made := time.Since(at), w.refused(old), w.sessions()-before
	if err == nil && refused == 0 && made == 0 {
		d.untried("to lose a session: the server says that it deleted it, and still knows it")
		return nil
	}
	same := checkAnswers
	if hasTools {
		same = checkSameTools
	}
	d.expect(checkForgotten, checkSameSelf, same)
	if err != nil {
		return err
	}
	if err := s.await(ctx, "a replacement that serves", func() bool { return len(s.returns) > 0 }); err != nil {
		return err
	}
	d.prove(checkForgotten, refused > 0 && made == 1 && w.session() != old,
		"refused %s, %d initialize, answered after %s", plural(refused, "time", "times"), made, millis(took))
	s.mu.Lock()
	changed := s.returns[0].Changed
	s.mu.Unlock()
	how := "era, version, name and capabilities"
	if len(changed) > 0 {
		how = strings.Join(changed, ", ") + " changed; now " + describe(s)
	}
	d.prove(checkSameSelf, len(changed) == 0, "%s", how)
	if !hasTools {
		d.prove(checkAnswers, true, "it has no tools to compare")
		return nil
	}
	equal, how := sameTools(tools, after)
	d.prove(checkSameTools, equal, "%s", how)
	return nil
}

// ask lists the tools of a server that has some, and else pings it.
func (s *subject) ask(ctx context.Context, hasTools bool) (tools []string, err error) {
	if hasTools {
		return listTools(ctx, s)
	}
	if err := s.Ping(ctx); err != nil {
		return nil, err
	}
	s.d.say("answer", "ping")
	return nil, nil
}
