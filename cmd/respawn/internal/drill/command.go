package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

// The checks of somebody else's server that the built-in one's do not have.
const (
	checkServes   = "it serves"
	checkSameSelf = "it says the same of itself afterwards"
	checkAnswers  = "it answers a ping afterwards" // one that has no tools
)

// command drills the server that the options name: it is killed once, with all
// that it started, and must be the same afterwards.
func (d *drill) command(ctx context.Context) error {
	d.begin(filepath.Base(d.Command[0])) // its arguments may hold secrets
	before := look()
	words := &tail{}
	s, err := d.connect(ctx, stdio.Config{
		Path: d.Command[0], Args: d.Command[1:], Env: os.Environ(), Stderr: words,
	}, client.Config{})
	if err != nil {
		return words.explain(err)
	}
	hasTools := s.Server().Capabilities.Tools != nil
	same := checkAnswers
	if hasTools {
		same = checkSameTools
	}
	d.expect(checkServes, checkReplaced, checkOldGone, checkSameSelf, same, checkLegal, checkLeft)
	d.run(ctx, func(ctx context.Context) error { return d.replace(ctx, s, hasTools) })
	if err := s.close(); err != nil {
		d.say("error", err.Error(), field{"error", err.Error()})
	}
	illegal := s.Stats().IllegalEvents
	s.mu.Lock()
	lived := len(s.pids)
	s.mu.Unlock()
	d.prove(checkLegal, illegal == 0, "%d, in %s", illegal, plural(lived, "life", "lives"))
	d.left(before, 0)
	return nil
}

func (d *drill) replace(ctx context.Context, s *subject, hasTools bool) error {
	self := describe(s)
	tools, err := s.ask(ctx, hasTools)
	if err != nil {
		return err
	}
	group := groupLeft(s.pid())
	d.prove(checkServes, len(group) > 0, "%s", self)

	k, err := s.kill(true, "between requests")
	if err != nil {
		return err
	}
	r, err := k.serves(ctx)
	if err != nil {
		return err
	}
	after, err := s.ask(ctx, hasTools)
	if err != nil {
		return err
	}
	pid := s.pid()
	d.prove(checkReplaced, pid != k.old, "%d by %d, which answered after %s, %s of it the delay",
		k.old, pid, millis(time.Since(k.at)), millis(k.delay()))
	left := groupLeft(k.old)
	d.prove(checkOldGone, len(left) == 0, "its group had %s, and has %d", plural(len(group), "process", "processes"), len(left))
	changed := "era, version, name and capabilities"
	if len(r.Changed) > 0 {
		changed = strings.Join(r.Changed, ", ") + " changed; now " + describe(s)
	}
	d.prove(checkSameSelf, len(r.Changed) == 0, "%s", changed)
	if !hasTools {
		d.prove(checkAnswers, true, "it has no tools to compare")
		return nil
	}
	same, how := sameTools(tools, after)
	d.prove(checkSameTools, same, "%s", how)
	return nil
}

// describe names the server as it names itself.
func describe(s *subject) string {
	server := s.Server()
	name := "no name"
	if server.Info != nil {
		name = fmt.Sprintf("%s %s", server.Info.Name, server.Info.Version)
	}
	return fmt.Sprintf("%s, version %s, %s", server.Era, server.Version, name)
}

// tail keeps the last that a server wrote to its stderr, for a start that fails.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailKept is what fits the one line of an error.
const tailKept = 300

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailKept):]
	return len(p), nil
}

// explain adds what the server said to an error that does not: a start that was
// given up has no exit to tell of, and the reason is often there.
func (t *tail) explain(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.text), "?")), " ")
	if exit := new(stdio.ExitError); said == "" || errors.As(err, &exit) {
		return err
	}
	return fmt.Errorf("%w; its stderr: %q", err, said)
}
