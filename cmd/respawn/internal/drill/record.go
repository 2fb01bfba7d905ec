package drill

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stage is the folder that the drill and the servers of one act share: the
// servers write into it what they did, and find in it what they are told.
type stage string

// entry is one line of the record: something that a server did.
type entry struct {
	PID  int    `json:"pid"`
	Did  string `json:"did"`  // started, ran, read, opened
	What string `json:"what"` // the key of the call, the URI, the id of the stream
	ID   string `json:"id"`   // the JSON text of the request's id
}

func (s stage) record() string { return filepath.Join(string(s), "record") }

// note appends one entry in a single write, so that the entries of a server that
// is killed, or of two of them, never mix. Without a stage nothing is noted.
func (s stage) note(e entry) error {
	if s == "" {
		return nil
	}
	e.PID = os.Getpid()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.record(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// find returns the entries of one kind about one thing, or about all for "".
func (s stage) find(did, what string) ([]entry, error) {
	text, err := os.ReadFile(s.record())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []entry
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("the record has a line that is no entry: %q: %w", line, err)
		}
		if e.Did == did && (what == "" || e.What == what) {
			found = append(found, e)
		}
	}
	return found, nil
}

// What a server may be told, each by a file of that name.
const (
	orderExit = "exit" // exit at start
	orderHold = "hold" // do not answer before the order is withdrawn
)

// exitCode is what a server that was told to exit or crash exits with. It is none
// that Go or a shell chooses.
const exitCode = 42

func (s stage) tell(order string) error {
	return os.WriteFile(filepath.Join(string(s), order), nil, 0o600)
}

func (s stage) withdraw(order string) error { return os.Remove(filepath.Join(string(s), order)) }

func (s stage) told(order string) bool {
	if s == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(string(s), order))
	return err == nil
}
