//go:build linux

package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/respawn-mcp/respawn/conformance/peers/internal/proc"
)

// TestTheDrillHoldsForRealPeers runs the command as its users do.
func TestTheDrillHoldsForRealPeers(t *testing.T) {
	command := filepath.Join(t.TempDir(), "respawn")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", command, "./cmd/respawn").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, p := range all() {
		t.Run(p.name, func(t *testing.T) {
			marker := fmt.Sprintf("RESPAWN_PEER=%d/%s", os.Getpid(), t.Name())
			drill := exec.Command(command, append([]string{"drill", "--"}, p.argv...)...)
			drill.Dir, drill.Env = p.dir(t), append(os.Environ(), marker)
			out, err := drill.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, says := range []string{"  held  it serves ", p.era + ", version ", "\n7 of 7 held, in "} {
				if !strings.Contains(string(out), says) {
					t.Errorf("the drill does not say %q:\n%s", says, out)
				}
			}
			if left, err := proc.Marked(marker); err != nil || len(left) > 0 {
				t.Errorf("after the drill these processes are left: %v %v", left, err)
			}
		})
	}
}
