//go:build unix && !linux

package drill

// groupLeft names a group that still has members. Which they are, this system
// does not tell without more.
func groupLeft(pgid int) []int {
	if groupGone(pgid) {
		return nil
	}
	return []int{pgid}
}
