//go:build unix

package stdio

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// On a machine that is busy with others the time to read may be over before
// anything was read.
func TestB066_WhatIsInAPipeWhenTheTimeIsUpIsReadAndNoMore(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	words := bytes.Repeat([]byte("last words "), 1000)
	if _, err := w.Write(words); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 1000)
	s := newSource(r, func() []byte { return room }, func() {})
	var got []byte
	for range len(words) / len(room) {
		n, err := s.read()
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		got = append(got, room[:n]...)
	}
	if !bytes.Equal(got, words) {
		t.Errorf("read %q", got)
	}
	if n, err := s.read(); n != 0 || err != os.ErrClosed {
		t.Errorf("from a pipe that is open and empty: %d bytes, %v", n, err)
	}
	total := len(got)
	for range 2 * maxLate / len(room) {
		if _, err := w.Write(room); err != nil {
			t.Fatal(err)
		}
		n, err := s.read()
		if total += n; err != nil {
			break
		}
	}
	if total < maxLate || total > maxLate+len(room) {
		t.Errorf("a writer without end was read for %d bytes, want about %d", total, maxLate)
	}
}
