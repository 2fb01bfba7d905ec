package fsm_test

import (
	"testing"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/fsm"
)

func TestTheLifecycle(t *testing.T) { conformance.TestTable(t, fsm.Lifecycle) }
