package fsm

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small has one row of each kind: a move, a loop with an action, an absorbed
// event, two rows that share an arrow, and a reason that Markdown would misread.
var small = MustCompile(Starting, []Action{Spawn}, []Row{
	{Starting, Lost, Dead, []Action{Settle, Arm}, "a | b\nc"},
	{Starting, Message, Starting, []Action{Deliver}, "deliver"},
	{Dead, Lost, Dead, nil, "absorb"},
	{Dead, Close, Dead, nil, "absorb"},
})

func TestRenderers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		render func(io.Writer) error
		want   string
	}{
		{"Mermaid aliases its names and merges arrows", small.WriteMermaid, `stateDiagram-v2
    state "starting" as starting
    state "dead-awaiting-respawn" as dead_awaiting_respawn
    [*] --> starting: spawn
    starting --> dead_awaiting_respawn: lost / settle, arm
    starting --> starting: message / deliver
    dead_awaiting_respawn --> dead_awaiting_respawn: lost, close
`},
		{"DOT has an edge for each row", small.WriteDOT, `digraph lifecycle {
    rankdir=LR;
    node [shape=box, style=rounded];
    "" [shape=point];
    "starting";
    "dead-awaiting-respawn";
    "" -> "starting" [label="spawn"];
    "starting" -> "dead-awaiting-respawn" [label="lost\nsettle, arm"];
    "starting" -> "starting" [label="message\ndeliver"];
    "dead-awaiting-respawn" -> "dead-awaiting-respawn" [label="lost"];
    "dead-awaiting-respawn" -> "dead-awaiting-respawn" [label="close"];
}
`},
		{"Markdown has a matrix and the reasons", small.WriteMarkdown, `| | up | message | lost | spent | due | close |
|---|---|---|---|---|---|---|
| **starting** | ✗ | deliver | → dead-awaiting-respawn: settle, arm | ✗ | ✗ | ✗ |
| **dead-awaiting-respawn** | ✗ | ✗ | – | ✗ | ✗ | – |

| in | on | to | do | why |
|---|---|---|---|---|
| | | starting | spawn | the first actions, before any event |
| starting | lost | dead-awaiting-respawn | settle, arm | a \| b c |
| starting | message | starting | deliver | deliver |
| dead-awaiting-respawn | lost | dead-awaiting-respawn |  | absorb |
| dead-awaiting-respawn | close | dead-awaiting-respawn |  | absorb |
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got strings.Builder
			if err := tc.render(&got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMermaidIdsHaveNoHyphen(t *testing.T) {
	id := regexp.MustCompile(`^[a-z_]+$`)
	for _, s := range States() {
		if !id.MatchString(mermaidID(s)) {
			t.Errorf("the id %q of %s does not match %s", mermaidID(s), s, id)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestRenderersReturnTheWritersError(t *testing.T) {
	for name, render := range map[string]func(io.Writer) error{
		"mermaid": Lifecycle.WriteMermaid, "dot": Lifecycle.WriteDOT, "markdown": Lifecycle.WriteMarkdown,
	} {
		if err := render(fullDisk{}); !errors.Is(err, errFull) {
			t.Errorf("%s: error %v, want %v", name, err, errFull)
		}
	}
}

func TestNamesAreThoseOfTheDocs(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{join(States()), "starting, serving, dead-awaiting-respawn, exhausted, closed"},
		{join(Events()), "up, message, lost, spent, due, close"},
		{join(Actions()), "spawn, announce, deliver, settle, stop, report, arm, disarm, fail"},
		{join([]State{numStates}), "State(5)"},
		{join([]Event{numEvents}), "Event(6)"},
		{join([]Action{numActions}), "Action(9)"},
	} {
		if tc.got != tc.want {
			t.Errorf("names %q, want %q", tc.got, tc.want)
		}
	}
	terminal := slices.DeleteFunc(States(), func(s State) bool { return !s.Terminal() })
	if diff := cmp.Diff([]State{Exhausted, Closed}, terminal); diff != "" {
		t.Errorf("terminal states (-want +got):\n%s", diff)
	}
}
