package relay

import (
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/client/internal/engine"
)

// ended reports an ending, whose dialogs are over.
func (r *Relay) ended(e engine.Ended) {
	if !e.Withdrawn {
		r.dropDialogs(e.Gen)
		r.mu.Lock()
		clear(r.tasks)
		r.mu.Unlock()
	}
	if r.cfg.OnEnd != nil {
		r.cfg.OnEnd(Ended(e))
	}
}

// recovered tells the host what may have changed while nobody served: each kind
// whose changes it was told to expect, once, and each subscribed resource. A modern
// host hears it on its streams, once they are open again.
func (r *Relay) recovered(engine.Reconnect) {
	r.mu.Lock()
	rec := r.record
	r.mu.Unlock()
	if rec.session.Era == engine.Modern {
		return
	}
	type changes struct {
		ListChanged bool `json:"listChanged"`
	}
	var told struct{ Tools, Prompts, Resources changes }
	_, _ = json.Parse(rec.declared, &told, 0) // what can't be read declares nothing
	r.tellChanges(told.Tools.ListChanged, told.Prompts.ListChanged, told.Resources.ListChanged, r.engine.Subscribed(), "")
}

// tellChanges sends the notifications of a recovery, on the stream with an id, or
// untagged.
func (r *Relay) tellChanges(tools, prompts, resources bool, uris []string, stream string) {
	meta := ""
	if stream != "" {
		meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":` + stream + `}`
	}
	send := func(method, params string) {
		if params != "" {
			params = `,"params":{` + params + `}`
		}
		r.toHost([]byte(`{"jsonrpc":"2.0","method":"notifications/` + method + `"` + params + `}`))
	}
	for _, uri := range uris {
		raw, err := json.Marshal(uri)
		if err != nil {
			continue // a string always encodes
		}
		params := `"uri":` + string(raw)
		if meta != "" {
			params += "," + meta
		}
		send("resources/updated", params)
	}
	for _, kind := range []struct {
		name string
		want bool
	}{{"tools", tools}, {"prompts", prompts}, {"resources", resources}} {
		if kind.want {
			send(kind.name+"/list_changed", meta)
		}
	}
}

func (r *Relay) hold() time.Duration { return duration(r.cfg.Hold, DefaultHold) }
