package drill

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// The tools of the built-in server. Each notes its execution, under the key that
// it is called with, before it does anything else: what ran is in the record,
// whatever becomes of the answer. It is the record's own process that says so,
// not the client that is being tested.
const (
	toolCount = "count" // notes it, answers, and announces that the record changed
	toolSlow  = "slow"  // notes it, reports progress, and answers after slowly, or when it is cancelled
	toolCrash = "crash" // notes it and exits
)

// slowly is far longer than anybody waits for a call that is to be lost.
const slowly = time.Minute

func (s *server) tools() string {
	names := []string{toolCount, toolSlow, toolCrash}
	if s.fault == faultFickle {
		names = append(names, fmt.Sprintf("tool-of-%d", os.Getpid()))
	}
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"name":%s,"description":"Counts that it runs.",`+
			`"inputSchema":{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}}`, text(name)))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func (s *server) call(r *request) {
	switch r.Params.Name {
	case toolCount, toolSlow, toolCrash:
	default:
		s.refuse(r, codeInvalidParams, "unknown tool: "+r.Params.Name)
		return
	}
	times := 1
	if s.fault == faultTwice {
		times = 2
	}
	for range times {
		if err := s.stage.note(entry{Did: "ran", What: r.Params.Arguments.Key, ID: string(r.ID)}); err != nil {
			s.refuse(r, codeInternal, err.Error())
			return
		}
	}
	done := fmt.Sprintf(`"content":[{"type":"text","text":"ran in process %d"}]`, os.Getpid())
	switch r.Params.Name {
	case toolCount:
		s.announce(resource)
		s.result(r, done)
	case toolSlow:
		s.slow(r, func() { s.result(r, done) })
	case toolCrash:
		fmt.Fprintln(os.Stderr, "told to crash")
		os.Exit(exitCode)
	}
}

// read answers with the record. The first read of a stage is slow, so that it can
// be lost in the middle.
func (s *server) read(r *request) {
	if r.Params.URI != resource {
		s.refuse(r, codeInvalidParams, "unknown resource: "+r.Params.URI)
		return
	}
	err := s.stage.note(entry{Did: "read", What: resource, ID: string(r.ID)})
	reads, findErr := s.stage.find("read", resource)
	if err != nil || findErr != nil {
		s.refuse(r, codeInternal, fmt.Sprint(err, findErr))
		return
	}
	answer := func() {
		s.result(r, s.fresh(`"contents":[{"uri":`+text(resource)+`,"text":`+text(readBy(os.Getpid()))+`}]`))
	}
	if len(reads) == 1 {
		s.slow(r, answer)
		return
	}
	answer()
}

// readBy is the text of the resource.
func readBy(pid int) string { return fmt.Sprintf("read by process %d", pid) }

// slow reports progress at once, which tells that the request is being worked on,
// and answers much later, unless it is cancelled.
func (s *server) slow(r *request, answer func()) {
	ctx, cancel := context.WithTimeout(context.Background(), slowly)
	s.mu.Lock()
	s.busy[string(r.ID)] = cancel
	if token := r.Params.Meta.Token; len(token) > 0 {
		s.sayLocked(fmt.Sprintf(`"method":"notifications/progress","params":{"progressToken":%s,"progress":1}`, token))
	}
	s.mu.Unlock()
	s.work.Go(func() {
		<-ctx.Done()
		if ctx.Err() == context.DeadlineExceeded {
			answer()
		}
		s.cancel(string(r.ID))
	})
}

func (s *server) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.busy[id]; cancel != nil {
		cancel()
	}
	delete(s.busy, id)
	delete(s.news, id)
}

// listen opens a stream (2026-07-28, patterns/subscriptions). It is answered when
// it ends; this server never ends one.
func (s *server) listen(r *request) {
	if err := s.stage.note(entry{Did: "opened", What: "stream", ID: string(r.ID)}); err != nil {
		s.refuse(r, codeInternal, err.Error())
		return
	}
	agreed := ""
	for _, uri := range r.Params.Notifications.URIs {
		if uri == resource {
			agreed = text(uri)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if agreed != "" {
		s.news[string(r.ID)] = resource
	}
	s.sayLocked(fmt.Sprintf(`"method":"notifications/subscriptions/acknowledged","params":{`+
		`"notifications":{"resourceSubscriptions":[%s]},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, agreed, r.ID))
}

// subscribe is the legacy twin (2025-11-25, server/resources, Subscriptions).
func (s *server) subscribe(r *request) {
	if err := s.stage.note(entry{Did: "opened", What: "stream", ID: string(r.ID)}); err != nil {
		s.refuse(r, codeInternal, err.Error())
		return
	}
	s.mu.Lock()
	s.news[r.Params.URI] = r.Params.URI
	s.mu.Unlock()
	s.result(r, "")
}

// announce tells whoever subscribed to a resource that it changed.
func (s *server) announce(uri string) {
	if s.fault == faultMute {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, to := range s.news {
		switch {
		case to != uri:
		case s.modern:
			s.sayLocked(fmt.Sprintf(`"method":"notifications/resources/updated","params":{"uri":%s,`+
				`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, text(uri), id))
		default:
			s.sayLocked(fmt.Sprintf(`"method":"notifications/resources/updated","params":{"uri":%s}`, text(uri)))
		}
	}
}
