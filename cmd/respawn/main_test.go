package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/fsm"
)

// said is all that a command leaves behind.
type said struct {
	code     int
	out, err string
}

func respawn(args ...string) said {
	var out, err strings.Builder
	code := run(streams{strings.NewReader(""), &out, &err}, args)
	return said{code, out.String(), err.String()}
}

func TestTheCommandSaysWhatItCanDo(t *testing.T) {
	help := respawn("help")
	if help.code != exitOK || help.err != "" {
		t.Fatalf("help: %+v", help)
	}
	for _, c := range commands {
		if !strings.Contains(help.out, "  "+c.name+" ") || !strings.Contains(help.out, c.summary) {
			t.Errorf("help does not speak of %s:\n%s", c.name, help.out)
		}
		got := respawn(c.name, "-h")
		if got.code != exitOK || got.out != "" || !strings.HasPrefix(got.err, "usage: respawn "+c.name) {
			t.Errorf("%s -h: %+v", c.name, got)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		want said
	}{
		{"-h is help", []string{"-h"}, help},
		{"nothing is a mistake", nil, said{exitUsage, "", help.out}},
		{"an unknown command is named", []string{"restart"}, said{exitUsage, "", "respawn: unknown command \"restart\"\n" + help.out}},
	} {
		if diff := cmp.Diff(tc.want, respawn(tc.args...), cmp.AllowUnexported(said{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestWrongArgumentsAreToldWithTheUsage(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"version now", `respawn version: unexpected argument "now"`},
		{"version -x", "flag provided but not defined: -x"},
		{"drill npx", `respawn drill: unexpected argument "npx" (a server's command comes after --)`},
		{"drill --", "respawn drill: no command after --"},
		{"drill http://127.0.0.1/mcp and more", "respawn drill: a URL takes no arguments"},
		{"drill http://", "respawn drill: the URL names no host"},
		{"drill -header key http://127.0.0.1/mcp", "respawn drill: -header wants 'Name: value'"},
		{"drill -header a:b -- npx", "respawn drill: -header and -header-env are for a URL"},
		{"drill -timeout 0s", "respawn drill: -timeout 0s is not positive"},
		{"drill -timeout soon", `invalid value "soon" for flag -timeout: parse error`},
		{"drill -yaml", "flag provided but not defined: -yaml"},
		{"diagram README.md", `respawn diagram: unexpected argument "README.md" (did you mean -check or -write?)`},
		{"diagram -format svg", `respawn diagram: unknown format "svg"`},
		{"diagram -write", "respawn diagram: no files"},
		{"diagram -check", "respawn diagram: no files"},
		{"diagram -write -check a.md", "respawn diagram: -write and -check exclude each other"},
		{"diagram -format dot -check a.md", "respawn diagram: -format is for printing; in a file each block names its own"},
	} {
		args := strings.Fields(tc.args)
		got := respawn(args...)
		first, rest, _ := strings.Cut(got.err, "\n")
		if got.code != exitUsage || got.out != "" || first != tc.want || !strings.HasPrefix(rest, "usage: respawn "+args[0]) {
			t.Errorf("%s: exit %d, said %q, and\n%s%s\nwant exit %d and %q", tc.args, got.code, got.out, got.err, rest, exitUsage, tc.want)
		}
	}
}

func TestDiagramPrintsEachFormat(t *testing.T) {
	for format, render := range formats {
		var want strings.Builder
		if err := render(&want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(said{exitOK, want.String(), ""}, respawn("diagram", "-format", format), cmp.AllowUnexported(said{})); diff != "" {
			t.Errorf("-format %s (-want +got):\n%s", format, diff)
		}
		for _, s := range fsm.States() {
			if !strings.Contains(want.String(), s.String()) {
				t.Errorf("-format %s does not show %s", format, s)
			}
		}
	}
	if got, want := respawn("diagram"), respawn("diagram", "-format", "mermaid"); got != want {
		t.Errorf("without -format:\n%s\nwant Mermaid", got.out)
	}
}

func TestVersionNamesWhatTheToolchainRecorded(t *testing.T) {
	for _, tc := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{}, "respawn (unknown)"},
		{debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}}, "respawn v1.2.3 go1.26.8"},
		{debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123456789abcdef"},
				{Key: "vcs.modified", Value: "true"},
				{Key: "GOOS", Value: "linux"},
				{Key: "GOARCH", Value: "arm64"},
			},
		}, "respawn (devel) 0123456789ab modified go1.26.8 linux/arm64"},
	} {
		if got := versionLine(&tc.info); got != tc.want {
			t.Errorf("version %q, want %q", got, tc.want)
		}
	}
	if got := respawn("version"); got.code != exitOK || !strings.HasPrefix(got.out, "respawn ") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("version: %+v", got)
	}
}
