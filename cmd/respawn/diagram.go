package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/respawn-mcp/respawn/fsm"
)

var formats = map[string]func(io.Writer) error{
	"mermaid":  fsm.Lifecycle.WriteMermaid,
	"dot":      fsm.Lifecycle.WriteDOT,
	"markdown": fsm.Lifecycle.WriteMarkdown,
}

func diagram(c command, std streams, args []string) int {
	fs := c.flags(std)
	format := fs.String("format", "mermaid", "what to print: mermaid, dot or markdown")
	write := fs.Bool("write", false, "write the generated blocks of the files anew")
	check := fs.Bool("check", false, "fail with a diff if a generated block of the files is not what the code says")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	switch {
	case *write && *check:
		return misused(fs, "-write and -check exclude each other")
	case *write || *check:
		if given(fs, "format") {
			return misused(fs, "-format is for printing; in a file each block names its own")
		}
		if fs.NArg() == 0 {
			return misused(fs, "no files")
		}
		return eachFile(std, fs.Args(), *write)
	case fs.NArg() > 0:
		return misused(fs, "unexpected argument %q (did you mean -check or -write?)", fs.Arg(0))
	}
	render, ok := formats[*format]
	if !ok {
		return misused(fs, "unknown format %q", *format)
	}
	if err := render(std.out); err != nil {
		fmt.Fprintf(std.err, "respawn diagram: %v\n", err)
		return exitFailure
	}
	return exitOK
}

func given(fs *flag.FlagSet, name string) bool {
	found := false
	fs.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// eachFile goes on after a bad file, so that one run tells everything. A run that
// finds no block at all has checked nothing, and says so.
func eachFile(std streams, files []string, write bool) int {
	code, found := exitOK, false
	for _, name := range files {
		doc, err := os.ReadFile(name)
		var fresh string
		var stale []staleBlock
		if err == nil {
			fresh, stale, err = regenerate(name, string(doc), blocks)
		}
		if err == nil && write && len(stale) > 0 {
			err = replaceFile(name, fresh)
		}
		if err != nil {
			fmt.Fprintf(std.err, "respawn diagram: %v\n", err)
			code = exitFailure
			continue
		}
		found = found || strings.Contains("\n"+fresh, "\n"+end)
		for _, s := range stale {
			if write {
				fmt.Fprintf(std.out, "%s:%d: wrote %s\n", name, s.line, s.block)
				continue
			}
			fmt.Fprintf(std.out, "%s:%d: %s is not what the code says (- file, + code):\n%s", name, s.line, s.block, diff(s.have, s.want))
			code = exitFailure
		}
	}
	if !found && code == exitOK {
		fmt.Fprintln(std.err, "respawn diagram: no generated block in any of the files")
		return exitFailure
	}
	return code
}

// replaceFile puts the new text beside the old file and renames it, so that an
// interrupted run leaves the one or the other.
func replaceFile(name, text string) (err error) {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".respawn-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
