package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// readEnvFile reads KEY=VALUE lines: blank lines and those that begin with # say
// nothing, "export " in front of a key is allowed, and one pair of quotes around a
// value is taken off. Nothing is expanded. An error names the line, not its text, nor
// the file.
func readEnvFile(path string) (env []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20) // a key with a certificate in it still fits
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, string(byteOrderMark))
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.ContainsAny(key, " \t\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("line %d is not KEY=VALUE", n)
		}
		env = append(env, key+"="+unquoted(strings.TrimSpace(value)))
	}
	if err := in.Err(); err != nil {
		return nil, withoutPath(err)
	}
	return env, nil
}

func withoutPath(err error) error {
	if at := new(fs.PathError); errors.As(err, &at) {
		return at.Err
	}
	return err
}

func unquoted(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
