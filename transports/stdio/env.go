package stdio

import (
	"os"
	"runtime"
	"strings"
)

// The short lists are those of the official TypeScript and Python SDKs
// (DEFAULT_INHERITED_ENV_VARS), so that a server that starts there starts here.
var (
	prunedUnix    = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
	prunedWindows = []string{
		"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
	}
)

// PrunedEnv returns the few variables of our environment that Config.PruneEnv
// passes on: HOME, LOGNAME, PATH, SHELL, TERM and USER, or their counterparts on
// Windows. Exported shell functions, whose values begin with "()", are left out.
func PrunedEnv() []string {
	names := prunedUnix
	if runtime.GOOS == "windows" {
		names = prunedWindows
	}
	env := []string{} // never nil: that would inherit everything
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok && !strings.HasPrefix(v, "()") {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// environ is the child's environment; nil inherits ours.
func (c Config) environ() []string {
	if c.PruneEnv {
		return append(PrunedEnv(), c.Env...)
	}
	return c.Env
}
