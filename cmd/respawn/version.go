package main

import (
	"fmt"
	"runtime/debug"
	"strings"
)

func version(c command, std streams, args []string) int {
	fs := c.flags(std)
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if fs.NArg() > 0 {
		return misused(fs, "unexpected argument %q", fs.Arg(0))
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	fmt.Fprintln(std.out, versionLine(info))
	return exitOK
}

// versionLine names the module version, the commit it was built from if the
// toolchain recorded one, the Go version and the platform.
func versionLine(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	words := []string{"respawn", "(unknown)"}
	if info.Main.Version != "" {
		words[1] = info.Main.Version
	}
	if rev := set["vcs.revision"]; rev != "" {
		words = append(words, rev[:min(len(rev), 12)])
		if set["vcs.modified"] == "true" {
			words = append(words, "modified")
		}
	}
	if info.GoVersion != "" {
		words = append(words, info.GoVersion)
	}
	if set["GOOS"] != "" {
		words = append(words, set["GOOS"]+"/"+set["GOARCH"])
	}
	return strings.Join(words, " ")
}
