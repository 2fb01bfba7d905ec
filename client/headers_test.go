package client_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/client"
)

// schema is a tool named x with an input schema.
func schema(properties string) string {
	return `{"name":"x","inputSchema":{"type":"object","properties":` + properties + `}}`
}

func TestM11_ParametersAreMirroredAsTheirSchemaSays(t *testing.T) {
	for _, tt := range []struct{ name, properties, arguments, header, want string }{
		{"a string", `{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":"us west"}`, "Mcp-Param-A", "us west"},
		{"an integer", `{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":42}`, "Mcp-Param-A", "42"},
		{"a negative one", `{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":-7}`, "Mcp-Param-A", "-7"},
		{"the largest safe one", `{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":9007199254740991}`, "Mcp-Param-A", "9007199254740991"},
		{"one spelled as a float", `{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":4.2e1}`, "Mcp-Param-A", "42"},
		{"a boolean", `{"a":{"type":"boolean","x-mcp-header":"A"}}`, `{"a":false}`, "Mcp-Param-A", "false"},
		{"a nested one", `{"o":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, `{"o":{"a":"deep"}}`, "Mcp-Param-A", "deep"},
		{"null", `{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":null}`, "Mcp-Param-A", ""},
		{"none", `{"a":{"type":"string","x-mcp-header":"A"}}`, `{}`, "Mcp-Param-A", ""},
		{"of another type", `{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":{"b":1}}`, "Mcp-Param-A", ""},
		{"a word in data", `{"a":{"type":"object","default":{"x-mcp-header":"A"}},"b":{"type":"string","x-mcp-header":"B"}}`, `{"b":"1"}`, "Mcp-Param-B", "1"},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			w := &web{on: listing(schema(tt.properties))}
			c := dial(t, w, client.Config{})
			if _, err := c.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			params := json.RawMessage(`{"name":"x","arguments":` + tt.arguments + `}`)
			if got := fateOf(c.Call(t.Context(), "tools/call", params, nil)); got != "answered" {
				t.Fatal(got)
			}
			x := w.find("tools/call")
			if got, sent := x.Header.Get(tt.header), len(x.Header.Values(tt.header)) > 0; got != tt.want || sent != (tt.want != "") {
				t.Errorf("the header is %q, %t", got, sent)
			}
			if x.Name != "x" {
				t.Errorf("the name is %q", x.Name)
			}
		})
	}
}

func TestM11_AToolWithInvalidAnnotationsIsLeftOut(t *testing.T) {
	for name, properties := range map[string]string{
		"empty":                   `{"a":{"type":"string","x-mcp-header":""}}`,
		"no text":                 `{"a":{"type":"string","x-mcp-header":7}}`,
		"a space":                 `{"a":{"type":"string","x-mcp-header":"A B"}}`,
		"a line break":            `{"a":{"type":"string","x-mcp-header":"A\r\nB"}}`,
		"a number":                `{"a":{"type":"number","x-mcp-header":"A"}}`,
		"an object":               `{"a":{"type":"object","x-mcp-header":"A"}}`,
		"no type":                 `{"a":{"x-mcp-header":"A"}}`,
		"twice":                   `{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}`,
		"in items":                `{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}`,
		"in anyOf":                `{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}`,
		"in the values of others": `{"a":{"type":"object","additionalProperties":{"type":"string","x-mcp-header":"A"}}}`,
	} {
		bubble(t, name, func(t *testing.T) {
			book, logger := logbook()
			w := &web{on: listing(schema(properties), `{"name":"good","inputSchema":{"type":"object"},"x-vendor":1}`)}
			c := dial(t, w, client.Config{Logger: logger})
			r, err := c.ListTools(t.Context(), nil)
			if err != nil || len(r.Tools) != 1 || r.Tools[0].Name != "good" {
				t.Errorf("the listing: %+v, %v", r, err)
			}
			if book.Len() == 0 {
				t.Error("nobody was warned")
			}
		})
	}
}

func TestS47_HeaderBindingsAreThoseOfTheNewIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{on: listing(schema(`{"a":{"type":"string","x-mcp-header":"Old"}}`))}
		c := dial(t, w, client.Config{})
		call := func() *exchange {
			t.Helper()
			if got := fateOf(c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x","arguments":{"a":"1"}}`), nil)); got != "answered" {
				t.Error(got)
			}
			return w.find("tools/call")
		}
		list := func() {
			t.Helper()
			if _, err := c.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		list()
		var got []string
		note := func(x *exchange) {
			got = append(got, fmt.Sprintf("old %q new %q", x.Header.Get("Mcp-Param-Old"), x.Header.Get("Mcp-Param-New")))
		}
		note(call())
		w.becomes(listing(schema(`{"a":{"type":"string","x-mcp-header":"New"}}`)))
		for range 2 { // to the legacy era and back again
			w.become(func(w *web) { w.legacy, w.knows = !w.legacy, nil })
			note(call())
			pass(time.Minute)
		}
		list()
		note(call())
		want := []string{`old "1" new ""`, `old "" new ""`, `old "" new ""`, `old "" new "1"`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
