package main

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/segmentio/encoding/json"
)

// least is the least client that does the JSON work of a real one: it marshals
// the caller's params, adds what the era asks for, finds id and result in the
// answer, and unmarshals the result. A map of channels, one goroutine that
// writes and one that reads; no context, no deadline, no death.
type least struct {
	proc   *process
	legacy bool
	out    chan []byte

	mu      sync.Mutex
	next    int64
	pending map[int64]chan []byte
}

// Params and result of the echo tool, as a user of a generic call writes them.
type (
	callParams struct {
		Name      string        `json:"name"`
		Arguments callArguments `json:"arguments"`
	}
	callArguments struct {
		Text string `json:"text"`
	}
	callResult struct {
		Content []callContent `json:"content"`
	}
	callContent struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
)

func (r callResult) text() (string, error) {
	if len(r.Content) != 1 {
		return "", errNoText
	}
	return r.Content[0].Text, nil
}

func dialLeast(_ context.Context, t target) (peer, error) {
	proc, err := t.start()
	if err != nil {
		return nil, err
	}
	l := &least{proc: proc, legacy: t.legacy, out: make(chan []byte), pending: map[int64]chan []byte{}}
	go l.write()
	go l.read()
	return l, nil
}

func (l *least) call(_ context.Context, text string) (string, error) {
	params, err := json.Append(nil, callParams{Name: "echo", Arguments: callArguments{Text: text}}, json.SortMapKeys)
	if err != nil {
		return "", err
	}
	reply := make(chan []byte, 1)
	l.mu.Lock()
	l.next++
	id := l.next
	l.pending[id] = reply
	l.mu.Unlock()
	l.out <- l.frame(id, params)
	raw, ok := <-reply
	if !ok {
		return "", errors.New("the server went away")
	}
	var result callResult
	if _, err := json.Parse(raw, &result, json.DontMatchCaseInsensitiveStructFields); err != nil {
		return "", err
	}
	return result.text()
}

func (l *least) frame(id int64, params []byte) []byte {
	b := make([]byte, 0, len(params)+len(meta)+80) // 80: the envelope around them
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"method":"tools/call","params":`...)
	if l.legacy {
		b = append(b, params...)
	} else {
		b = append(b, params[:len(params)-1]...)
		b = append(b, ',')
		b = append(b, meta...)
		b = append(b, '}')
	}
	return append(b, '}', '\n')
}

func (l *least) write() {
	for frame := range l.out {
		if _, err := l.proc.in.Write(frame); err != nil {
			return
		}
	}
}

func (l *least) read() {
	for {
		line, err := l.proc.out.ReadBytes('\n')
		if err != nil {
			l.mu.Lock()
			for id, reply := range l.pending {
				close(reply)
				delete(l.pending, id)
			}
			l.mu.Unlock()
			return
		}
		var envelope struct {
			ID     int64           `json:"id"`
			Result json.RawMessage `json:"result"`
		}
		// DontCopy: the line is fresh, so the result may stay a part of it.
		if _, err := json.Parse(line, &envelope, json.DontCopyRawMessage); err != nil {
			continue
		}
		l.mu.Lock()
		reply := l.pending[envelope.ID]
		delete(l.pending, envelope.ID)
		l.mu.Unlock()
		if reply != nil {
			reply <- envelope.Result
		}
	}
}

func (l *least) close() error {
	close(l.out)
	return l.proc.close()
}
