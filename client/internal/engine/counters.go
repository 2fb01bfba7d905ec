package engine

import "sync/atomic"

// Counters counts what was survived rather than reported as an error.
type Counters struct {
	Illegal    atomic.Uint64 // events the table forbids: a bug of a transport or of ours
	Stale      atomic.Uint64 // what an ended incarnation, or one nobody waits for, still said
	Noise      atomic.Uint64 // bytes where a message belonged
	Malformed  atomic.Uint64 // JSON that is no JSON-RPC message, batches, errors without an id
	Unmatched  atomic.Uint64 // answers to ids that nobody waits for
	LooseIDs   atomic.Uint64 // answers whose id was spelled differently ("5" or 5.0 for 5)
	Unanswered atomic.Uint64 // requests of a modern peer, which the spec forbids
	Panics     atomic.Uint64 // panics of callbacks
	Untold     atomic.Uint64 // notifications that callbacks were too slow for
}
