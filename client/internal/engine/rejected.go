package engine

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// RejectedError is an HTTP answer that is no answer to the request.
type RejectedError struct {
	Status int
	Header http.Header
	Body   []byte // clipped
	Cause  error  // what was wrong with a 2xx, or why there were no credentials for a 401
}

// maxShown is how much of a body an error shows: enough for a sentence, not for a
// page of HTML.
const maxShown = 256

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.Status, http.StatusText(e.Status))
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	if body := bytes.TrimSpace(e.Body); len(body) > 0 {
		text += fmt.Sprintf(": %.*q", maxShown, body)
	}
	return text
}

func (e *RejectedError) Unwrap() error { return e.Cause }

// rejection is the failure of a call that was refused by HTTP alone.
func rejection(ev transports.Rejected) *Failure {
	return &Failure{
		Kind: KindRejected, NotRun: neverRun(ev.Status),
		Cause: &RejectedError{Status: ev.Status, Header: ev.Header, Body: clip(ev.Body), Cause: ev.Cause},
	}
}

// uncredentialed reports that a refusal is for a fault on this side.
func uncredentialed(status int, cause error) bool {
	return status == http.StatusUnauthorized && cause != nil
}

func clip(body []byte) []byte { return slices.Clone(body[:min(len(body), maxShown)]) }

// neverRun reports whether an HTTP status says that the request was turned away
// before anybody worked on it (RFC 9110, section 15.5): not authenticated or
// authorized, the wrong method or form, too large, too many.
func neverRun(status int) bool {
	switch status {
	case 401, 403, 405, 406, 411, 413, 414, 415, 417, 421, 426, 428, 429, 431:
		return true
	}
	return false
}

// maxRetryAfter bounds the wish of a Retry-After: no call waits longer than that
// by default, so a header must not keep the server away for longer either.
const maxRetryAfter = 10 * time.Minute

// retryAfter is a server's wish for the delay before the next try, 0 for none
// (RFC 9110, section 10.2.3: seconds, or a date).
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
