package drill

import "time"

// asked is one line of the record.
type asked struct {
	At      time.Time
	Verb    string // of HTTP
	Method  string
	What    string // the key of a call, or the URI
	ID      string // the JSON text of the request's id
	Session string // that it carried
	Status  int    // that it was answered with; 0: not yet
}

// gate holds calls until enough of them wait. Then the server restarts, so that
// all of them meet one that forgot them.
type gate struct {
	missing int
	open    chan struct{}
}

// cut makes the next responses about a key or URI break.
func (s *webServer) cut(what string, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[what] = times
}

// cutStreams cuts the listen streams and returns how many there were.
func (s *webServer) cutStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.streams)
	for cut := range s.streams {
		close(cut)
		delete(s.streams, cut)
	}
	return n
}

// restartAt makes the server restart when n calls wait for it.
func (s *webServer) restartAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = &gate{missing: n, open: make(chan struct{})}
}

// find returns the record's lines that ok holds of.
func (s *webServer) find(ok func(asked) bool) (found []asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if ok(a) {
			found = append(found, a)
		}
	}
	return found
}

// about returns the requests of one method about one thing.
func (s *webServer) about(method, what string) []asked {
	return s.find(func(a asked) bool { return a.Method == method && a.What == what })
}

func (s *webServer) executions(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[key]
}

// known counts the sessions that are not forgotten.
func (s *webServer) known() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}
