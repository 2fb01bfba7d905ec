package drill

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/client"
)

// The checks of the built-in HTTP server of the legacy era, beside those of any.
const (
	checkCalm     = "a stream that always ends is not opened too often"
	checkOneOpen  = "20 calls refused at once make one new session"
	checkAnswered = "all of them are answered"
	checkRanOnce  = "and each ran once"
	checkDeleted  = "the session is deleted at the end"
)

var legacyWebChecks = []string{
	checkOpens, checkCalm, checkOneOpen, checkAnswered, checkRanOnce, checkSameTools, checkDeleted, checkLegal, checkLeft,
}

const (
	// callers are how many calls a restart meets.
	callers = 20
	// calmFor and calmOpens are what is allowed of a stream that ends at once: the
	// client's default opens it five times in the first 4 s.
	calmFor   = 2 * time.Second
	calmOpens = 6
)

func (d *drill) legacyWeb(ctx context.Context) error {
	return d.webPart(ctx, false, legacyWebChecks, []func(*web, context.Context, *subject) error{
		(*web).opens, (*web).calm, (*web).restart,
	}, (*web).deleted)
}

// calm counts how often the standalone stream is opened, which the server ends at
// once each time.
func (w *web) calm(ctx context.Context, _ *subject) error {
	gets := func() []asked { return w.server.find(func(a asked) bool { return a.Verb == http.MethodGet }) }
	first := gets()
	if len(first) == 0 {
		return fmt.Errorf("nobody opened the standalone stream")
	}
	w.d.say("wait", fmt.Sprintf("%s, while the standalone stream ends whenever it is opened", calmFor))
	select {
	case <-time.After(time.Until(first[0].At.Add(calmFor))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	opens := 0
	for _, a := range gets() {
		if a.At.Sub(first[0].At) <= calmFor {
			opens++
		}
	}
	w.d.prove(checkCalm, 2 <= opens && opens <= calmOpens, "%s in %s, and it came back", plural(opens, "open", "opens"), calmFor)
	return nil
}

// restart restarts the server while calls wait for it.
func (w *web) restart(ctx context.Context, s *subject) error {
	initialize := func() int { return len(w.server.about("initialize", "")) }
	before := initialize()
	w.server.restartAt(callers)
	w.d.say("restart", fmt.Sprintf("when %d calls are on their way: all sessions are forgotten", callers), field{"calls", callers})
	errs := make([]error, callers)
	at := time.Now()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.CallTool(ctx, call(toolCount, fmt.Sprint("caller ", i))) })
	}
	wg.Wait()
	took := time.Since(at)
	answers, once, most, all := 0, 0, 0, 0
	for i, err := range errs {
		if err == nil {
			answers++
		} else {
			w.d.told(toolCount, nil, err)
		}
		n := w.server.executions(fmt.Sprint("caller ", i))
		if all, most = all+n, max(most, n); n == 1 {
			once++
		}
	}
	made, known := initialize()-before, w.server.known()
	refused := w.server.find(func(a asked) bool { return a.Method == "tools/call" && a.Status == http.StatusNotFound })
	w.d.say("answer", fmt.Sprintf("%s, %d initialize", plural(answers, "answer", "answers"), made),
		field{"answers", answers}, field{"initialize", made}, field{"outcomes", outcomes(errs)})
	w.d.prove(checkOneOpen, len(refused) == callers && made == 1 && known == 1,
		"%d refused with 404, %d initialize, %s", len(refused), made, plural(known, "session", "sessions"))
	w.d.prove(checkAnswered, answers == callers, "%s, after %s", plural(answers, "answer", "answers"), millis(took))
	w.d.prove(checkRanOnce, once == callers, "%s of %d calls, at most %d of each", plural(all, "execution", "executions"), callers, most)

	tools, err := listTools(ctx, s)
	if err != nil {
		return err
	}
	same, how := sameTools(w.tools, tools)
	w.d.prove(checkSameTools, same, "%s", how)
	return nil
}

// outcomes counts how calls ended.
func outcomes(errs []error) map[string]int {
	n := map[string]int{}
	for _, err := range errs {
		n[client.OutcomeOf(err).String()]++
	}
	return n
}

// deleted looks at the sessions once the client is closed.
func (w *web) deleted() {
	deletes := w.server.find(func(a asked) bool { return a.Verb == http.MethodDelete })
	left := w.server.known()
	w.d.prove(checkDeleted, len(deletes) == 1 && deletes[0].Status == http.StatusNoContent && left == 0,
		"%d DELETE, %s left", len(deletes), plural(left, "session", "sessions"))
}
