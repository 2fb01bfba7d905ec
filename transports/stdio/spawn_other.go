//go:build !linux

package stdio

import "os/exec"

// startWithUs starts a child. Only Linux kills it with us; elsewhere it sees the
// end of its stdin.
func startWithUs(cmd *exec.Cmd) error { return cmd.Start() }

func childGone() {}
