package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/encoding/json"
)

// The faults of x-mcp-header annotations (2026-07-28, streamable-http, Schema
// Extension).
var (
	errHeaderName  = errors.New("not a header name")
	errHeaderTwice = errors.New("two parameters name the same header")
	errHeaderType  = errors.New("only an integer, a string or a boolean can be mirrored")
	errHeaderPlace = errors.New("not reachable by properties alone")
)

const annotation = "x-mcp-header"

// bindingsOf reads which parameters of a tool are mirrored into headers.
func bindingsOf(schema json.RawMessage) ([]binding, error) {
	if !strings.Contains(string(schema), annotation) {
		return nil, nil
	}
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, nil // a schema that is none mirrors nothing
	}
	var found []binding
	if err := collect(root, nil, true, &found); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, b := range found {
		if name := strings.ToLower(b.header); seen[name] {
			return nil, fmt.Errorf("%w: %s", errHeaderTwice, b.header)
		} else {
			seen[name] = true
		}
	}
	return found, nil
}

// collect walks a schema. reachable says whether only properties led here; path is
// the way, and empty at the root.
func collect(node any, path []string, reachable bool, found *[]binding) error {
	if list, ok := node.([]any); ok {
		for _, item := range list {
			if err := collect(item, path, false, found); err != nil {
				return err
			}
		}
		return nil
	}
	object, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	if name, ok := object[annotation]; ok {
		b, err := bind(name, object, path, reachable)
		if err != nil {
			return err
		}
		*found = append(*found, b)
	}
	for _, key := range sortedKeys(object) {
		switch key {
		case annotation, "default", "const", "enum", "examples": // the last four hold data, and no schema
			continue
		}
		properties, ok := object[key].(map[string]any)
		if key != "properties" || !ok {
			if err := collect(object[key], path, false, found); err != nil {
				return err
			}
			continue
		}
		for _, name := range sortedKeys(properties) {
			if err := collect(properties[name], append(slices.Clone(path), name), reachable, found); err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func bind(name any, schema map[string]any, path []string, reachable bool) (binding, error) {
	text, _ := name.(string)
	switch {
	case !isToken(text):
		return binding{}, fmt.Errorf("%w: %q", errHeaderName, fmt.Sprint(name))
	case !reachable || len(path) == 0:
		return binding{}, fmt.Errorf("%w: %s", errHeaderPlace, text)
	}
	switch schema["type"] {
	case "integer", "string", "boolean":
		return binding{"Mcp-Param-" + text, path}, nil
	}
	return binding{}, fmt.Errorf("%w: %s", errHeaderType, text)
}

// isToken reports an HTTP field name (RFC 9110, section 5.6.2, tchar).
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
