package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/respawn-mcp/respawn/policy"
)

// tool is one entry of a listing; annotations "" leaves the member out.
func tool(name, annotations string) string {
	if annotations == "" {
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
	}
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":%s}`, name, annotations)
}

func page(next string, tools ...string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"tools":[%s]%s}`, strings.Join(tools, ","), next))
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

const (
	reads    = `{"readOnlyHint":true}`
	nextC    = `,"nextCursor":"c"`
	cursorC  = `{"cursor":"c"}`
	noParams = `{}`
)

func TestM6_OnlyAJSONTrueGrants(t *testing.T) {
	tests := []struct {
		annotations string
		want        bool
	}{
		{`{"readOnlyHint":true}`, true},
		{`{"idempotentHint":true}`, true},
		{`{ "readOnlyHint" : true }`, true},
		{`{"readOnlyHint":true,"idempotentHint":true}`, true},
		{`{"readOnlyHint":true,"idempotentHint":false}`, true},
		{`{"readOnlyHint":true,"destructiveHint":false}`, true},
		{`{"readOnlyHint":false,"idempotentHint":true}`, true},
		{`{"idempotentHint":true,"destructiveHint":true}`, true},
		{`{"readOnlyHint":true,"openWorldHint":"?","title":7}`, true},

		{``, false},
		{`null`, false},
		{`{}`, false},
		{`[]`, false},
		{`true`, false},
		{`"readOnlyHint"`, false},
		{`{"readOnlyHint":false}`, false},
		{`{"readOnlyHint":"true"}`, false},
		{`{"readOnlyHint":1}`, false},
		{`{"readOnlyHint":null}`, false},
		{`{"readOnlyHint":[true]}`, false},
		{`{"destructiveHint":false}`, false},
		{`{"readOnlyHint":true,"destructiveHint":true}`, false},
		{`{"readOnlyHint":true,"idempotentHint":true,"destructiveHint":true}`, false},
		{`{"readOnlyHint":true,"destructiveHint":"no"}`, false},
		{`{"readOnlyHint":true,"destructiveHint":null}`, false},
		{`{"readOnlyHint":true,"idempotentHint":0}`, false},
		{`{"readOnlyHint":false,"readOnlyHint":true}`, false},
		{`{"ReadOnlyHint":true}`, false},
		{`{"readonlyhint":true}`, false},
		{`{"IDEMPOTENTHINT":true}`, false},
	}
	for _, tc := range tests {
		t.Run(tc.annotations, func(t *testing.T) {
			e := Evidence{}.Add(raw(noParams), page("", tool("x", tc.annotations)))
			equal(t, "grants", tc.want, e.Grants("x"))
		})
	}
}

func TestM6_WhatIsNotListedIsNotGranted(t *testing.T) {
	listed := Evidence{}.Add(raw(noParams), page("", tool("x", reads)))
	equal(t, "the listed tool", true, listed.Grants("x"))
	equal(t, "an unknown tool", false, listed.Grants("y"))
	equal(t, "a name that differs in case", false, listed.Grants("X"))
	equal(t, "no name", false, listed.Grants(""))
	equal(t, "no listing at all", false, Evidence{}.Grants("x"))
	equal(t, "an empty listing", false, listed.Add(raw(noParams), page("")).Grants("x"))
}

func TestM7_DuplicateNamesMustAllGrant(t *testing.T) {
	yes, no := tool("x", reads), tool("x", "")
	tests := []struct {
		name  string
		pages [][]string
		want  bool
	}{
		{"both grant", [][]string{{yes, yes}}, true},
		{"the first does not", [][]string{{no, yes}}, false},
		{"the second does not", [][]string{{yes, no}}, false},
		{"the second of three does not", [][]string{{yes, no, yes}}, false},
		{"both grant, on two pages", [][]string{{yes}, {yes}}, true},
		{"the one on the next page does not", [][]string{{yes}, {no}}, false},
		{"the one on the page before does not", [][]string{{no}, {yes}}, false},
		{"one entry names itself twice", [][]string{{yes, `{"name":"y","name":"x","annotations":` + reads + `}`}}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := Evidence{}
			for i, tools := range tc.pages {
				params, next := noParams, ""
				if i > 0 {
					params = cursorC
				}
				if i < len(tc.pages)-1 {
					next = nextC
				}
				e = e.Add(raw(params), page(next, tools...))
			}
			equal(t, "grants", tc.want, e.Grants("x"))
		})
	}
}

func TestM7_OnlyACompleteListingIsEvidence(t *testing.T) {
	type step struct{ params, result string }
	good := string(page("", tool("new", reads)))
	first := string(page(nextC, tool("new", reads)))
	last := string(page("", tool("more", reads)))
	tests := []struct {
		name  string
		steps []step
		want  []string // of old, new, more: what is granted at the end
	}{
		{"nothing was listed since", nil, []string{"old"}},
		{"one page replaces", []step{{noParams, good}}, []string{"new"}},
		{"params left out", []step{{"", good}}, []string{"new"}},
		{"params null", []step{{"null", good}}, []string{"new"}},
		{"a cursor that is null", []step{{`{"cursor":null}`, good}}, []string{"new"}},
		{"a nextCursor that is null ends it", []step{{noParams, string(page(`,"nextCursor":null`, tool("new", reads)))}}, []string{"new"}},
		{"the first of two pages keeps the old", []step{{noParams, first}}, []string{"old"}},
		{"two pages replace", []step{{noParams, first}, {cursorC, last}}, []string{"new", "more"}},
		{"an empty cursor is a cursor", []step{{noParams, string(page(`,"nextCursor":""`, tool("new", reads)))}, {`{"cursor":""}`, last}}, []string{"new", "more"}},
		{"an empty cursor is not the end", []step{{noParams, string(page(`,"nextCursor":""`, tool("new", reads)))}}, []string{"old"}},
		{"a page of another listing is ignored", []step{{noParams, first}, {`{"cursor":"d"}`, last}}, []string{"old"}},
		{"and the listing under way goes on", []step{{noParams, first}, {`{"cursor":"d"}`, last}, {cursorC, last}}, []string{"new", "more"}},
		{"a page that continues nothing is ignored", []step{{cursorC, last}}, []string{"old"}},
		{"an empty cursor continues nothing either", []step{{`{"cursor":""}`, last}}, []string{"old"}},
		{"a last page that comes twice counts once", []step{{noParams, first}, {cursorC, last}, {cursorC, good}}, []string{"new", "more"}},
		{"beginning again forgets the pages so far", []step{{noParams, first}, {noParams, string(page(nextC))}, {cursorC, last}}, []string{"more"}},
		{"a malformed second page keeps the old", []step{{noParams, first}, {cursorC, `{"tools":7}`}}, []string{"old"}},
		{"and ends that listing", []step{{noParams, first}, {cursorC, `{"tools":7}`}, {cursorC, last}}, []string{"old"}},
		{"a cursor that is no string", []step{{`{"cursor":7}`, good}}, []string{"old"}},
		{"a nextCursor that is no string", []step{{noParams, string(page(`,"nextCursor":7`, tool("new", reads)))}}, []string{"old"}},
		{"two nextCursors", []step{{noParams, string(page(`,"nextCursor":"a","nextCursor":null`, tool("new", reads)))}}, []string{"old"}},
		{"params that are no object", []step{{`[]`, good}}, []string{"old"}},
		{"no tools", []step{{noParams, `{}`}}, []string{"old"}},
		{"tools null", []step{{noParams, `{"tools":null}`}}, []string{"old"}},
		{"no object", []step{{noParams, `[]`}}, []string{"old"}},
		{"null", []step{{noParams, `null`}}, []string{"old"}},
		{"no JSON", []step{{noParams, `{"tools":[`}}, []string{"old"}},
		{"nothing", []step{{noParams, ``}}, []string{"old"}},
		{"something behind it", []step{{noParams, good + `{}`}}, []string{"old"}},
		{"an entry that is none spoils only itself", []step{{noParams, string(page("", "7", "null", `{}`, `{"name":7}`, tool("new", reads)))}}, []string{"new"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := Evidence{}.Add(raw(noParams), page("", tool("old", reads)))
			for _, s := range tc.steps {
				e = e.Add(raw(s.params), raw(s.result))
			}
			var got []string
			for _, name := range []string{"old", "new", "more"} {
				if e.Grants(name) {
					got = append(got, name)
				}
			}
			equal(t, "granted", tc.want, got)
		})
	}
}

func TestM7_EvidenceIsAValue(t *testing.T) {
	first := Evidence{}.Add(raw(noParams), page(nextC, tool("a", reads)))
	left := first.Add(raw(cursorC), page("", tool("b", reads)))
	right := first.Add(raw(cursorC), page("", tool("a", "")))
	equal(t, "left grants a and b", []bool{true, true}, []bool{left.Grants("a"), left.Grants("b")})
	equal(t, "right grants neither", []bool{false, false}, []bool{right.Grants("a"), right.Grants("b")})
	equal(t, "the first page alone grants neither", []bool{false, false}, []bool{first.Grants("a"), first.Grants("b")})
}

func TestM7_AListingWithoutEndGivesNoEvidenceAndIsForgotten(t *testing.T) {
	var many []string
	for i := range 1 << 14 {
		many = append(many, tool(fmt.Sprint("t", i), reads))
	}
	e := Evidence{}.Add(raw(noParams), page(nextC, many...))
	equal(t, "as many tools as are remembered", true, e.Add(raw(cursorC), page("")).Grants("t0"))
	e = e.Add(raw(cursorC), page(nextC, tool("one too many", reads)))
	equal(t, "one more", false, e.Add(raw(cursorC), page("")).Grants("t0"))
}

func TestM7_ListingsAreReadThroughAnyWhiteSpaceAndNesting(t *testing.T) {
	const listing = `
	{ "other" : [ { "tools" : [ ] } , "]}" , -1.5e+3 , true , null , "\\\"{[" ] ,
	  "tools" : [ { "inputSchema" : { "a" : [ 1 , { "annotations" : { "readOnlyHint" : true } } ] } , "name" : "no" } ,
	              { "annot\u0061tions" : { "readOnlyHint" : true , "title" : "\\" } , "name" : "y\u0065s" } ] } `
	e := Evidence{}.Add(raw(" { } "), raw(listing))
	equal(t, "yes and no", []bool{true, false}, []bool{e.Grants("yes"), e.Grants("no")})
}

func FuzzEvidence(f *testing.F) {
	f.Add(noParams, string(page(nextC, tool("x", reads))))
	f.Add(cursorC, `{"tools":[{"name":"x","annotations":{"readOnlyHint":true,}}]}`)
	f.Add(`{"cursor":{}`, `{"a" "b":{1:2}}`)
	f.Fuzz(func(t *testing.T, params, result string) {
		e := Evidence{}.Add(raw(params), raw(result))
		if e.Grants("x") && !json.Valid([]byte(result)) {
			t.Errorf("a listing that is no JSON grants: %q", result)
		}
	})
}
