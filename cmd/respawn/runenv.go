package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// readEnvFile reads KEY=VALUE lines: blank lines and those that begin with # say
// nothing, "export " in front of a key is allowed, and one pair of quotes around a
// value is taken off. Nothing is expanded. An error names the line, not its text.
func readEnvFile(path string) (env []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-env-file: %w", err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20) // a key with a certificate in it still fits
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.ContainsAny(key, " \t\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("-env-file: %s: line %d is not KEY=VALUE", path, n)
		}
		env = append(env, key+"="+unquoted(strings.TrimSpace(value)))
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("-env-file: %s: %w", path, err)
	}
	return env, nil
}

func unquoted(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
