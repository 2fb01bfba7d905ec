package main

// guard is not needed here: the Job Object of a server ends with our handle of it.
type guard struct{}

func startGuard() (*guard, error) { return nil, nil }

func (*guard) watch(int)    {}
func (*guard) forget()      {}
func (*guard) close()       {}
func isGuard([]string) bool { return false }
