package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/segmentio/encoding/json"

	"github.com/respawn-mcp/respawn/transports"
)

// Era is the kind of protocol that a peer speaks (2026-07-28, basic/versioning,
// Terminology).
type Era uint8

const (
	Unknown Era = iota
	Legacy      // an initialize handshake
	Modern      // metadata on each request
)

// String returns "unknown", "legacy" or "modern".
func (e Era) String() string {
	switch e {
	case Legacy:
		return "legacy"
	case Modern:
		return "modern"
	}
	return "unknown"
}

// Session is what an incarnation said of itself in its opening exchange.
type Session struct {
	Era          Era
	Version      string
	Info         json.RawMessage // an Implementation; nil if it did not say
	Capabilities json.RawMessage
	Instructions string

	meta []byte // the inside of _meta of requests to it
}

// differs names what a replacement says differently.
func (s *Session) differs(before *Session) []string {
	if before == nil {
		return nil
	}
	var what []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"era", s.Era == before.Era},
		{"version", s.Version == before.Version},
		{"serverInfo", SameJSON(s.Info, before.Info)},
		{"capabilities", SameJSON(s.Capabilities, before.Capabilities)},
	} {
		if !f.same {
			what = append(what, f.name)
		}
	}
	return what
}

// SameJSON reports whether two texts say the same value, in whatever words: the order
// of fields and the spelling of numbers and strings tell nothing.
func SameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// The errors that only a modern server sends (2026-07-28, basic/index, Error
// codes): one of them on the probe says that the server is modern.
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

func modernError(e *RPCError) bool {
	return e != nil && e.Code <= codeHeaderMismatch && e.Code >= codeUnsupportedVersion
}

// errNotModern says that an answer to server/discover came from a legacy server.
var errNotModern = errors.New("the server is not modern")

// openingExchange finds the era, unless an earlier incarnation told it, and
// agrees on a version. A cached era that fails by an answer is given up for the
// other one, once (2026-07-28, basic/versioning).
func (inc *incarnation) openingExchange(ctx context.Context) (*Session, error) {
	switch inc.era {
	case Modern:
		s, err := inc.discover(ctx, inc.ask(methodDiscover, inc.discoverParams("")), false)
		if errors.Is(err, errNotModern) {
			return inc.initialize(ctx, "")
		}
		return s, err
	case Legacy:
		s, err := inc.initialize(ctx, "")
		if byAnswer(err) {
			if s, err := inc.discover(ctx, inc.ask(methodDiscover, inc.discoverParams("")), false); !errors.Is(err, errNotModern) {
				return s, err
			}
		}
		return s, err
	}
	return inc.probe(ctx)
}

// byAnswer reports whether an opening failed by what the peer answered, and not by
// silence, trouble on the way or a refusal of whoever asks (2026-07-28,
// streamable-http, Backward Compatibility: never on 401, 403, 429 or 5xx).
func byAnswer(err error) bool {
	opening, rejected := new(OpeningError), new(RejectedError)
	switch {
	case errors.As(err, &rejected):
		return eraStatus(rejected.Status)
	case errors.As(err, &opening):
		peer := new(RPCError)
		return errors.As(err, &peer) && (opening.Status == 0 || eraStatus(opening.Status))
	}
	return false
}

// eraStatus reports whether an HTTP status may mean that the other era is spoken.
func eraStatus(status int) bool {
	return status/100 == 4 && status != 401 && status != 403 && status != 429
}

const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"

	methodInitialized = "notifications/initialized"
)

// probe asks a peer of unknown era for server/discover and falls back to
// initialize on any answer that is not modern, or on silence. The probe stays
// pending: a slow modern server answers it before it refuses initialize.
func (inc *incarnation) probe(ctx context.Context) (*Session, error) {
	if inc.e.Factory.Shape == transports.Posts { // every request is answered, so silence says nothing
		s, err := inc.discover(ctx, inc.ask(methodDiscover, inc.discoverParams("")), false)
		if errors.Is(err, errNotModern) {
			return inc.initialize(ctx, "")
		}
		return s, err
	}
	probe := inc.asking(methodDiscover, inc.discoverParams(""), "")
	inc.question.Store(probe)
	inc.e.giveTo(inc, probe)
	silence, stop := inc.e.alarm(inc.e.ProbeTimeout)
	defer stop()
	select {
	case <-probe.done:
		s, err := inc.discover(ctx, probe, false)
		if errors.Is(err, errNotModern) {
			return inc.initialize(ctx, "")
		}
		return s, err
	case <-silence:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := inc.initialize(ctx, "")
	if answered := new(RPCError); err == nil || !errors.As(err, &answered) {
		inc.e.drop(probe, &Failure{Kind: KindCaller}, "")
		return s, err
	}
	late, stop := inc.e.alarm(inc.e.ProbeTimeout)
	defer stop()
	select {
	case <-probe.done:
		if s, err := inc.discover(ctx, probe, false); !errors.Is(err, errNotModern) {
			return s, err
		}
	case <-late:
		inc.e.drop(probe, &Failure{Kind: KindCaller}, "")
	case <-ctx.Done():
	}
	return nil, err
}

// ask sends a request of the opening exchange past the gate. Nothing of an
// opening is ever cancelled on the wire: initialize must not be (2025-11-25,
// cancellation), and a probe that is late may still be of use.
func (inc *incarnation) ask(method string, params json.RawMessage) *call {
	return inc.askAt(method, params, "")
}

// askAt is ask under a protocol version for its header, "" for the preferred one.
func (inc *incarnation) askAt(method string, params json.RawMessage, version string) *call {
	c := inc.asking(method, params, version)
	inc.e.giveTo(inc, c)
	return c
}

// asking is a request of the opening exchange that is not on its way yet.
func (inc *incarnation) asking(method string, params json.RawMessage, version string) *call {
	c := &call{
		Request: Request{Method: method, Params: params, uncancelled: true},
		opened:  inc, done: make(chan struct{}),
	}
	if method == methodDiscover {
		c.Version = cmp.Or(version, inc.e.Hello.modern())
	}
	return c
}

// answerTo waits for the answer to a request of the opening exchange.
func (inc *incarnation) answerTo(ctx context.Context, c *call) (json.RawMessage, error) {
	reply, fail := inc.e.await(ctx, c)
	switch {
	case fail != nil:
		return nil, fail
	case reply.Err != nil:
		return nil, &OpeningError{Method: c.Method, Status: reply.Status, Header: reply.Header, Err: reply.Err}
	}
	return reply.Result, nil
}

func (inc *incarnation) discoverParams(version string) json.RawMessage {
	h := inc.e.Hello
	return append(append([]byte(`{"_meta":{`), modernMeta(h, cmp.Or(version, h.modern()))...), "}}"...)
}

// modern is the preferred modern version.
func (h Hello) modern() string {
	if len(h.Modern) == 0 {
		return ""
	}
	return h.Modern[0]
}

// discover reads the answer to a server/discover and agrees on a version.
// errNotModern is for any answer that only a legacy server gives.
func (inc *incarnation) discover(ctx context.Context, c *call, again bool) (*Session, error) {
	h := inc.e.Hello
	result, err := inc.answerTo(ctx, c)
	answered := new(RPCError)
	if errors.As(err, &answered) {
		if answered.Code != codeUnsupportedVersion {
			if modernError(answered) || !byAnswer(err) {
				return nil, err
			}
			return nil, errNotModern
		}
		var data struct {
			Supported []string `json:"supported"`
		}
		_ = Decode(answered.Data, &data) // no list: nothing in common
		return inc.pick(ctx, data.Supported, again)
	}
	if byAnswer(err) {
		return nil, errNotModern
	}
	if err != nil {
		return nil, err
	}
	var r struct {
		Supported    []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions"`
		Meta         struct {
			Info json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if Decode(result, &r) != nil || len(r.Supported) == 0 {
		return nil, errNotModern
	}
	s := &Session{Era: Modern, Capabilities: r.Capabilities, Info: r.Meta.Info, Instructions: r.Instructions}
	if version := common(h.Modern, r.Supported); version != "" {
		s.Version, s.meta = version, modernMeta(h, version)
		inc.speak(Modern, version)
		return s, nil
	}
	return inc.pick(ctx, r.Supported, again)
}

// pick goes on with a version that the server named: a modern one by another
// server/discover, but only once, else a legacy one by initialize.
func (inc *incarnation) pick(ctx context.Context, supported []string, again bool) (*Session, error) {
	h := inc.e.Hello
	if version := common(h.Modern, supported); version != "" && !again {
		return inc.discover(ctx, inc.askAt(methodDiscover, inc.discoverParams(version), version), true)
	}
	if version := common(h.Legacy, supported); version != "" {
		return inc.initialize(ctx, version)
	}
	return nil, &VersionError{Ours: slices.Concat(h.Modern, h.Legacy), Theirs: supported}
}

func common(ours, theirs []string) string {
	for _, v := range ours {
		if slices.Contains(theirs, v) {
			return v
		}
	}
	return ""
}

// speak notes the era and the version that an incarnation speaks, as soon as they
// are known.
func (inc *incarnation) speak(era Era, version string) {
	if era == Legacy && version < versionHeader {
		version = ""
	}
	inc.version.Store(&version)
	inc.speaks.Store(uint32(era))
}

// versionHeader is the first version whose requests name it in a header
// (2025-06-18, transports, Protocol Version Header).
const versionHeader = "2025-06-18"

// initialize runs the legacy handshake (2025-11-25, basic/lifecycle).
func (inc *incarnation) initialize(ctx context.Context, version string) (*Session, error) {
	h := inc.e.Hello
	if version == "" {
		if len(h.Legacy) == 0 {
			return nil, &VersionError{Ours: h.Modern}
		}
		version = h.Legacy[0]
	}
	inc.speaks.Store(uint32(Unknown)) // it may ask something right after its answer
	params := appendField(nil, "protocolVersion", appendString(nil, version))
	params = appendField(params, "capabilities", h.Handshake)
	params = appendField(params, "clientInfo", h.Info)
	result, err := inc.answerTo(ctx, inc.ask(methodInitialize, append(append([]byte{'{'}, params...), '}')))
	if err != nil {
		return nil, err
	}
	var r struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         json.RawMessage `json:"serverInfo"`
		Instructions string          `json:"instructions"`
	}
	if err := Decode(result, &r); err != nil {
		return nil, &OpeningError{Method: methodInitialize, Err: err}
	}
	if !slices.Contains(h.Legacy, r.Version) {
		return nil, &VersionError{Ours: slices.Concat(h.Modern, h.Legacy), Theirs: []string{r.Version}}
	}
	inc.speak(Legacy, r.Version)
	if err := inc.accepted(ctx, methodInitialized); err != nil {
		return nil, &OpeningError{Method: methodInitialized, Err: err}
	}
	inc.startGet(ctx)
	return &Session{
		Era: Legacy, Version: r.Version,
		Capabilities: r.Capabilities, Info: r.Info, Instructions: r.Instructions,
	}, nil
}
