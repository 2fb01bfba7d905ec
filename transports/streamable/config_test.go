package streamable_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/respawn-mcp/respawn/transports"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

func TestAConfigThatMakesNoSenseIsServesError(t *testing.T) {
	for _, tc := range []struct {
		name string
		conf streamable.Config
		want streamable.ConfigError
	}{
		{"not a URL", streamable.Config{URL: "http://a b/?key=secret"}, streamable.ConfigError{Field: "URL", Why: "is not a URL"}},
		{"empty", streamable.Config{}, streamable.ConfigError{Field: "URL", Why: "is neither http nor https"}},
		{"another scheme", streamable.Config{URL: "ftp://secret:secret@host:21/secret?key=secret#secret"}, streamable.ConfigError{Field: "URL", Value: "ftp://host:21", Why: "is neither http nor https"}},
		{"no scheme", streamable.Config{URL: "secret:secret@host/x"}, streamable.ConfigError{Field: "URL", Why: "is neither http nor https"}},
		{"a path", streamable.Config{URL: "/mcp"}, streamable.ConfigError{Field: "URL", Why: "is neither http nor https"}},
		{"no host", streamable.Config{URL: "http:///mcp?key=secret"}, streamable.ConfigError{Field: "URL", Value: "http://", Why: "names no host"}},
		{"a header with a line break", streamable.Config{URL: "http://h/", Header: http.Header{"X-A": {"a\nb"}}}, streamable.ConfigError{Field: "Header", Value: `"X-A"`, Why: "has a control character in its value"}},
		{"a header that is none", streamable.Config{URL: "http://h/", Header: http.Header{"X A": {"a"}}}, streamable.ConfigError{Field: "Header", Value: `"X A"`, Why: "is no header name"}},
		{"a negative bound", streamable.Config{URL: "http://h/", ReadOut: -1}, streamable.ConfigError{Field: "ReadOut", Value: "-1", Why: "is negative"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := live(t, tc.conf.Factory())
			<-l.done
			got := new(streamable.ConfigError)
			if !errors.As(l.err, &got) {
				t.Fatalf("Serve returned %v", l.err)
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
			if !got.Permanent() || strings.Contains(got.Error(), "secret") {
				t.Errorf("%v: permanent %v", got, got.Permanent())
			}
			l.want()
			if err := l.tr.Send(request(1, modern, "ping")); err != transports.ErrGone {
				t.Errorf("Send returned %v", err)
			}
		})
	}
}

func TestALabelHoldsNoSecret(t *testing.T) {
	for _, tc := range []struct {
		conf streamable.Config
		want string
	}{
		{streamable.Config{URL: "https://user:secret@host:8443/a/mcp?key=secret#x"}, "host:8443/a/mcp"},
		{streamable.Config{URL: "https://host/", Label: "mine"}, "mine"},
		{streamable.Config{URL: "http://secret secret"}, "http"},
	} {
		f := tc.conf.Factory()
		if f.Label != tc.want || f.Shape != transports.Posts {
			t.Errorf("%s: label %q, shape %s, want %q on posts", tc.conf.URL, f.Label, f.Shape, tc.want)
		}
	}
	if got := streamable.Endpoint("http://host/mcp", &streamable.Config{URL: "ignored"}).Label; got != "host/mcp" {
		t.Errorf("Endpoint's label is %q", got)
	}
}
