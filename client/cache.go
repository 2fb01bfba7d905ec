package client

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// cacheKey identifies a cached result by what affects it (2026-07-28,
// server/utilities/caching, Cache Key).
type cacheKey struct{ method, cursor, uri string }

func (k cacheKey) kind() Kind {
	kind, _, _ := strings.Cut(k.method, "/")
	return Kind(kind)
}

// cache keeps raw results of one server for one client, so that cacheScope makes
// no difference: no other authorization context ever sees them.
type cache struct {
	mu    sync.Mutex
	kept  map[cacheKey]cached
	epoch uint64 // moves with each drop, so that an older answer is not kept after it
}

type cached struct {
	result json.RawMessage
	gen    uint64 // who gave it, and whose cursor it may carry
	until  time.Time
}

// maxCached bounds the results that are kept; a server with more pages and
// resources than this is asked again.
const maxCached = 1024

// get returns a fresh result if there is one, and the epoch to put a new one under.
func (c *cache) get(k cacheKey, now time.Time) (hit cached, ok bool, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hit, ok = c.kept[k]; ok && !now.Before(hit.until) {
		delete(c.kept, k)
		ok = false
	}
	return hit, ok, c.epoch
}

// put keeps a result for as long as it says, unless something was dropped since
// it was asked for.
func (c *cache) put(k cacheKey, epoch uint64, r Response, received time.Time) {
	var hint struct {
		TTL  int64  `json:"ttlMs"`
		Type string `json:"resultType"`
	}
	if engine.Decode(r.Result, &hint) != nil || hint.TTL <= 0 || hint.Type == inputRequired {
		return
	}
	ttl := time.Duration(min(hint.TTL, int64(24*time.Hour/time.Millisecond))) * time.Millisecond // no overflow, and no listing is older than a day
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if len(c.kept) >= maxCached {
		maps.DeleteFunc(c.kept, func(_ cacheKey, old cached) bool { return !received.Before(old.until) })
	}
	if len(c.kept) >= maxCached {
		return
	}
	if c.kept == nil {
		c.kept = map[cacheKey]cached{}
	}
	c.kept[k] = cached{r.Result, r.Generation, received.Add(ttl)}
}

func (c *cache) drop(stale func(cacheKey) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for k := range c.kept {
		if stale(k) {
			delete(c.kept, k)
		}
	}
}

// Flush forgets everything that Config.Cache kept.
func (c *Client) Flush() { c.cache.drop(func(cacheKey) bool { return true }) }
