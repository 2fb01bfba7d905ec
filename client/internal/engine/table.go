package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// gate says what happens to a new call.
type gate uint8

const (
	gateDown    gate = iota // nobody serves: refused, or parked
	gateOpening             // an incarnation serves and older calls go first: parked
	gateOpen                // sent at once
	gateEnded               // nobody ever will: refused with the terminal failure
)

// table is every call of this side that is not over, and the gate. One mutex
// guards it, and it is never held while calling out.
type table struct {
	mu       sync.Mutex
	gate     gate
	inc      *incarnation // whose calls go through the open gate
	terminal *Failure     // for gateEnded
	serial   uint64
	firstID  uint64 // where ids begin

	retryAt  time.Time // for gateDown: the earliest use that may help
	onUse    bool      // ... and a use from then on waits for the replacement
	armed    bool      // ... the replacement is on its way, not waiting for a use
	renames  bool      // an attempt may have another wire id than its owner's
	draining bool      // say when nothing is given out any more

	byID   map[string]*call // sending or sent
	byRef  map[uint64]*call // likewise
	tokens map[string]*call // by progress token, of those that asked for progress
	waits  []*call          // parked or held, unordered
	queued int64            // bytes in waits
}

func newTable(firstID uint64) *table {
	return &table{firstID: firstID, byID: map[string]*call{}, byRef: map[uint64]*call{}, tokens: map[string]*call{}}
}

// give marks a call as being sent to inc, under a new ref. mu is held.
func (t *table) give(c *call, inc *incarnation, ref uint64) {
	c.phase, c.inc, c.ref, c.unsent, c.turned = sending, inc, ref, false, false
	c.lastID, c.resumed, c.adrift, c.resumes, c.retry, c.polls = "", false, false, 0, 0, 0
	c.turn++
	c.resume.stop()
	c.given++
	t.byID[c.id] = c
	t.byRef[ref] = c
	if c.token != "" {
		t.tokens[c.token] = c
	}
}

// withdraw takes a call out of wherever it is. mu is held.
func (t *table) withdraw(c *call) {
	switch c.phase {
	case sending, sent:
		delete(t.byID, c.id)
		delete(t.byRef, c.ref)
	case parked, held:
		if i := slices.Index(t.waits, c); i >= 0 {
			t.waits = slices.Delete(t.waits, i, i+1)
			t.queued -= c.size()
		}
	}
}

// wait puts a call, withdrawn or new, among those that wait. mu is held.
func (t *table) wait(c *call, p phase) {
	c.phase = p
	t.waits = append(t.waits, c)
	t.queued += c.size()
}

// release gives what waits in a phase to inc, oldest first; what is held goes
// with any phase. With nothing left after the parked it opens the gate. mu is
// held.
func (t *table) release(p phase, inc *incarnation, now time.Time, ref func() uint64) []*call {
	var calls []*call
	t.waits = slices.DeleteFunc(t.waits, func(c *call) bool {
		if c.phase != p && c.phase != held {
			return false
		}
		calls = append(calls, c)
		t.queued -= c.size()
		return true
	})
	slices.SortFunc(calls, func(a, b *call) int {
		return cmp.Or(cmp.Compare(b.phase, a.phase), cmp.Compare(a.serial, b.serial))
	})
	for _, c := range calls {
		t.renew(c)
		c.rest(now)
		t.give(c, inc, ref())
		c.queued = true
	}
	if len(calls) == 0 && p == parked && t.gate == gateOpening {
		t.gate, t.inc = gateOpen, inc
	}
	return calls
}

// rest ends the time that a call waits. mu is held.
func (c *call) rest(now time.Time) {
	if !c.waiting.IsZero() {
		c.waker.stop()
		c.waited += now.Sub(c.waiting)
		c.waiting = time.Time{}
	}
}

// renew gives a call another wire id if it needs one. mu is held.
func (t *table) renew(c *call) {
	if c.renew {
		t.serial++
		c.id, c.renew = idText(t.firstID+t.serial), false
	}
}

// alias is an id that no request has had, for one that its owner knows by another.
func (t *table) alias() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renames = true
	t.serial++
	return idText(t.firstID + t.serial)
}

// given lists the calls that an incarnation has, oldest first. mu is held.
func (t *table) given(inc *incarnation) []*call {
	var calls []*call
	for _, c := range t.byRef {
		if c.inc == inc {
			calls = append(calls, c)
		}
	}
	sortCalls(calls)
	return calls
}

func sortCalls(calls []*call) {
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.serial, b.serial) })
}

// starting forgets when a replacement was to start: nobody knows how long that
// takes.
func (t *table) starting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryAt = time.Time{}
}

// opening parks new calls until those that wait have been sent.
func (t *table) opening() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gate == gateDown {
		t.gate = gateOpening
	}
}

// drain asks for word when nothing is given out any more, and reports whether
// that is so already.
func (t *table) drain() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	return t.isIdle()
}

// open reports whether new calls are sent at once.
func (t *table) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gate == gateOpen
}

// taken reports whether a call that is not over has a wire id. mu is held.
func (t *table) taken(id string) bool { return t.owned(id) != nil }

// owned returns the call that its owner knows by an id, which on Posts may have
// another on the wire by now. mu is held.
func (t *table) owned(id string) *call {
	if c := t.byID[id]; c != nil {
		return c
	}
	for _, c := range t.waits {
		if c.id == id || c.ID == id {
			return c
		}
	}
	if !t.renames {
		return nil
	}
	for _, c := range t.byRef {
		if c.ID == id && c.id != id {
			return c
		}
	}
	return nil
}

// idle reports whether the peer has nothing to do but hold streams open.
func (t *table) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isIdle()
}

// isIdle is idle with mu held.
func (t *table) isIdle() bool {
	for _, c := range t.byRef {
		if c.stream == nil && !c.probe {
			return false
		}
	}
	return true
}

// find returns the call of an incarnation with a wire id, or nil.
func (t *table) find(inc *incarnation, id []byte) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[string(id)]
	if c == nil {
		c = t.spelled(inc, id)
	}
	if c == nil || c.inc != inc {
		return nil
	}
	return c
}

// spelled returns the call of an incarnation whose id the peer has spelled in its own
// way: the same JSON value in other bytes or, if there is none, the number for the
// string or the string for the number. Only a miss comes here. mu is held.
func (t *table) spelled(inc *incarnation, id []byte) (like *call) {
	key, number := IDKey(id), transports.LooseID(id)
	for _, c := range t.byID {
		switch its := []byte(c.id); {
		case c.inc != inc:
		case IDKey(its) == key:
			return c
		case number != "" && transports.LooseID(its) == number:
			like = c
		}
	}
	return like
}
