//go:build unix && !linux && !darwin

package stdio

// groupMembers knows only whether the leader is there: these systems have no
// common list of a group's processes. The group is signalled all the same.
func groupMembers(int) []Process { return nil }

func processName(int) string { return "" }
