package streamable

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Authorizer supplies credentials. It is asked before the first request, before
// the credentials it gave expire, and when the server answered 401: once each
// time, however many requests wait for it, and at most once for each request
// that the server refused, but not again for credentials that it gave for a 401
// less than 10 s ago. A 401 that stays is reported as a refusal.
//
// It is called on a goroutine of its own, never twice at once, and must return
// when ctx is done, which is when nobody waits any more: Serve waits for it.
type Authorizer interface {
	Authorize(ctx context.Context, why Reason) (Credentials, error)
}

// Reason says why credentials are asked for.
type Reason struct {
	// Stale are the credentials so far; zero at first.
	Stale Credentials
	// Challenge is the header of the 401 that refused them, with its
	// WWW-Authenticate; nil if there was none.
	Challenge http.Header
}

// Credentials are what a request shows.
type Credentials struct {
	Authorization string    // the header's value, such as "Bearer …"; "": none
	Expires       time.Time // zero: unknown
}

// AuthorizerFunc is a function as an [Authorizer].
type AuthorizerFunc func(ctx context.Context, why Reason) (Credentials, error)

// Authorize calls f.
func (f AuthorizerFunc) Authorize(ctx context.Context, why Reason) (Credentials, error) {
	return f(ctx, why)
}

// earlyMax and earlyShare say how long before their end credentials are renewed:
// long enough for a request and a clock that is off by some seconds, and never a
// large part of short-lived ones.
const (
	earlyMax   = 30 * time.Second
	earlyShare = 10
)

// authority holds the credentials of a factory.
type authority struct {
	from Authorizer

	mu     sync.Mutex
	held   held
	asking *asking
	failed *AuthError // why there is nothing newer than held; nil if nobody failed
	until  time.Time  // when to ask again all the same
}

// askAgain is how long a failure of the Authorizer stands for whoever comes later:
// the requests that were refused together do not come back together.
const askAgain = time.Second

// held are credentials with their number, which tells a request that was refused
// whether others were given out meanwhile.
type held struct {
	Credentials
	n       uint64    // 0: none yet
	renewAt time.Time // zero: never early
	cureAt  time.Time // when a 401 called for them; zero: none did
}

// cureAgain is how long a renewal for a 401 holds: credentials that are refused
// sooner after it were not what the server minds, as with servers that answer a
// forgotten session by 401.
const cureAgain = 10 * time.Second

// curable reports whether a 401 to these may be a matter of credentials.
func (h held) curable(now time.Time) bool {
	return h.cureAt.IsZero() || now.Sub(h.cureAt) >= cureAgain
}

// asking is one call of the Authorizer that several requests wait for.
type asking struct {
	done    chan struct{}
	waiters int
	left    bool // the last waiter left before it was done
	cancel  context.CancelFunc
	got     held
	err     error
}

// current returns credentials for a request, asking for them if there are none
// or they are about to expire. Those that still hold outlive a failure to renew
// them early.
func (a *authority) current(ctx context.Context) (held, error) {
	now := time.Now()
	a.mu.Lock()
	h := a.held
	a.mu.Unlock()
	if h.n > 0 && (h.renewAt.IsZero() || now.Before(h.renewAt)) {
		return h, nil
	}
	got, err := a.renew(ctx, h, nil)
	if err != nil && h.n > 0 && now.Before(h.Expires) {
		return h, nil
	}
	return got, err
}

// renew returns credentials newer than stale. Whoever comes while the Authorizer
// is asked waits for that one answer.
func (a *authority) renew(ctx context.Context, stale held, challenge http.Header) (held, error) {
	for {
		q, newer, err := a.join(ctx, stale, challenge)
		if q == nil {
			return newer, err
		}
		select {
		case <-q.done:
			if !q.left { // else it was cancelled because nobody waited
				return q.got, q.err
			}
		case <-ctx.Done():
			a.leave(q)
			return held{}, context.Cause(ctx)
		}
	}
}

// join finds newer credentials, a failure that still stands, or a call of the
// Authorizer to wait for.
func (a *authority) join(ctx context.Context, stale held, challenge http.Header) (q *asking, newer held, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held.n > stale.n {
		return nil, a.held, nil
	}
	if a.asking == nil && a.failed != nil && time.Now().Before(a.until) {
		return nil, held{}, a.failed
	}
	if a.asking == nil {
		// Not the first waiter's context: its cancel must not fail the others.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		a.asking = &asking{done: make(chan struct{}), cancel: cancel}
		go a.ask(own, a.asking, Reason{Stale: stale.Credentials, Challenge: challenge})
	}
	a.asking.waiters++
	return a.asking, held{}, nil
}

// leave stops waiting. The last one to leave cancels the call and sees it end, so
// that nothing is left running.
func (a *authority) leave(q *asking) {
	a.mu.Lock()
	q.waiters--
	last := q.waiters == 0
	if last {
		q.left = true
		q.cancel()
	}
	a.mu.Unlock()
	if last {
		<-q.done
	}
}

func (a *authority) ask(ctx context.Context, q *asking, why Reason) {
	defer close(q.done)
	defer q.cancel()
	c, err := a.call(ctx, why)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = nil
	if err != nil {
		failed := &AuthError{err}
		if q.err = failed; !q.left { // else it failed because nobody waited
			a.failed, a.until = failed, now.Add(askAgain)
		}
		// Early renewal is not tried again before the end.
		if a.held.n > 0 && !a.held.renewAt.IsZero() {
			a.held.renewAt = a.held.Expires
		}
		return
	}
	h := held{Credentials: c, n: a.held.n + 1}
	if why.Challenge != nil {
		h.cureAt = now
	}
	if !c.Expires.IsZero() {
		h.renewAt = c.Expires.Add(-min(earlyMax, max(c.Expires.Sub(now), 0)/earlyShare))
	}
	a.held, q.got, a.failed = h, h, nil
}

// call asks the Authorizer, whose panic is an error of those who wait.
func (a *authority) call(ctx context.Context, why Reason) (c Credentials, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Authorizer panicked: %v", p)
		}
	}()
	if c, err = a.from.Authorize(ctx, why); err != nil {
		return c, err
	}
	if bad := checkHeader("Authorization", c.Authorization); bad != nil {
		return c, bad
	}
	return c, nil
}
