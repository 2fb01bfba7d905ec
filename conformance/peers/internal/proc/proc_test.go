//go:build linux

package proc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree starts a shell that starts a cat, in a group of their own, and returns
// once the cat has answered.
func tree(t *testing.T, marker string) (*exec.Cmd, io.Writer, io.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "cat; exit 0")
	cmd.Env = append(os.Environ(), marker)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	if _, err := io.WriteString(in, "up"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	return cmd, in, out
}

type shape struct {
	Name        string
	Parent      string
	LeaderGroup bool
}

func shapes(found []Process, leader int) []shape {
	names := map[int]string{os.Getpid(): "test"}
	for _, p := range found {
		names[p.PID] = p.Name
	}
	var got []shape
	for _, p := range found {
		got = append(got, shape{p.Name, names[p.Parent], p.Group == leader})
	}
	return got
}

func TestMarkedFindsTheWholeTreeLeaderFirstAndNobodyElse(t *testing.T) {
	marker := fmt.Sprintf("PROC_TEST=%d-marked", os.Getpid())
	cmd, _, out := tree(t, marker)
	tree(t, marker+"-another")
	found, err := Marked(marker)
	if err != nil {
		t.Fatal(err)
	}
	want := []shape{{"sh", "test", true}, {"cat", "sh", true}}
	if diff := cmp.Diff(want, shapes(found, cmd.Process.Pid)); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil { // both ends of the pipe are closed: both have ended
		t.Fatal(err)
	}
	found, err = Marked(marker)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]shape(nil), shapes(found, cmd.Process.Pid)); diff != "" {
		t.Errorf("after the kill (-want +got):\n%s", diff)
	}
}

func TestUnreadTellsWhatAStoppedProcessHasNotRead(t *testing.T) {
	marker := fmt.Sprintf("PROC_TEST=%d-unread", os.Getpid())
	cmd, in, _ := tree(t, marker)
	found, err := Marked(marker)
	if err != nil {
		t.Fatal(err)
	}
	if err := Stop(cmd.Process.Pid, found); err != nil {
		t.Fatal(err)
	}
	last := found[len(found)-1].PID
	if n, err := Unread(last, 0); err == nil {
		t.Errorf("before the write, %d bytes are unread", n)
	}
	if _, err := io.WriteString(in, "frame\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := Unread(last, 10_000); n != 6 || err != nil {
		t.Errorf("after the write: %d bytes unread, %v; want 6", n, err)
	}
}

func TestLeftWaitsForTheEndOfThoseThatEnd(t *testing.T) {
	marker := "RESPAWN_PROC_TEST=left"
	_, in, _ := tree(t, marker)
	left, err := Left(marker, time.Millisecond)
	if err != nil || len(left) != 2 {
		t.Fatalf("left: %v, %v, want the shell and its cat", left, err)
	}
	in.(io.Closer).Close() // the cat ends, and the shell after it
	if left, err := Left(marker, time.Minute); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v, want none", left, err)
	}
}
