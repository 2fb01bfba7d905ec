//go:build unix

package stdio_test

import (
	"crypto/rand"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/conformance"
	"github.com/respawn-mcp/respawn/transports/stdio"
)

func TestTheContractIsKept(t *testing.T) {
	conformance.TestTransport(t, func(t *testing.T, kind conformance.PeerKind) conformance.TransportPeer {
		mark, fds := rand.Text(), openFiles(t)
		conf := role(string(kind))
		conf.StdinWait = 100 * time.Millisecond // a deaf server stays until SIGTERM
		conf.Env = append(conf.Env, markVar+"="+mark)
		if kind == conformance.PeerAbsent {
			conf.Path = filepath.Join(t.TempDir(), "no such program")
		}
		pids := make(chan int, 1)
		conf.OnStart = func(p stdio.Process) { pids <- p.PID }
		return conformance.TransportPeer{
			Factory: conf.Factory(),
			Kill: func() {
				if err := syscall.Kill(<-pids, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			},
			Left: func() []string {
				left := marked(mark)
				if diff := cmp.Diff(fds, openFiles(t)); diff != "" {
					left = append(left, "descriptors: "+diff)
				}
				return left
			},
		}
	})
}
