package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// web is a server of the official Go SDK over HTTP, in a process of its own.
type web struct {
	cmd    *exec.Cmd
	legacy bool
	url    string // of the endpoint
	base   string // of the rest
	http   *http.Client
}

// startWeb starts it: with sessions it is legacy, without it serves both eras.
func startWeb(path string, legacy bool) (*web, error) {
	args := []string{"-http", "127.0.0.1:0"}
	if !legacy {
		args = append(args, "-stateless")
	}
	w := &web{cmd: exec.Command(path, args...), legacy: legacy, http: &http.Client{Transport: &http.Transport{}}}
	says, err := w.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		return nil, errors.Join(fmt.Errorf("the server says %q", line), w.close())
	}
	go func() { _, _ = io.Copy(os.Stderr, says) }() // until it ends
	w.base = "http://" + addr
	w.url = w.base + "/mcp"
	return w, nil
}

func (w *web) close() error {
	err := w.cmd.Process.Kill()
	_ = w.cmd.Wait() // always "signal: killed"
	w.http.CloseIdleConnections()
	return err
}

func (w *web) era() string {
	if w.legacy {
		return "legacy HTTP"
	}
	return "modern HTTP"
}

// count is what the server has counted since it started.
type count struct{ Accepted, Initializes, Refused int }

func (w *web) count() (c count, err error) {
	resp, err := w.http.Get(w.base + "/count")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&c)
	return c, err
}

func (w *web) accepted() (int, error) {
	c, err := w.count()
	return c.Accepted, err
}

// forget makes the server forget its sessions, and refuse them once so many
// requests have come that still belong to one.
func (w *web) forget(requests int) error {
	resp, err := w.http.Post(fmt.Sprintf("%s/forget?requests=%d", w.base, requests), "", nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return nil
}

// connections is what every client may keep, so that none of them is measured by
// net/http's default of 2.
const connections = 128

func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
}

// rawWeb is the floor that net/http and the server set: prebuilt requests, and
// bodies that are read and thrown away.
type rawWeb struct {
	web    *web
	http   *http.Client
	header http.Header
	next   atomic.Int64
	frames map[int]*sync.Pool // by size of the text, of *[]byte
}

// firstID is the first id of a prebuilt request. All have the same length, so that
// the next one is written over the last.
const firstID = 1_000_000_000

func dialRawWeb(w *web) (*rawWeb, error) {
	r := &rawWeb{web: w, http: newHTTPClient(), frames: map[int]*sync.Pool{}}
	r.header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"},
	}
	t := target{legacy: w.legacy}
	for _, size := range sizes {
		r.frames[size] = &sync.Pool{New: func() any {
			frame := t.callFrame(firstID, text(size))
			return &frame
		}}
	}
	if !w.legacy {
		return r, nil
	}
	r.header.Set("Mcp-Protocol-Version", "2025-11-25")
	r.header.Del("Mcp-Method")
	r.header.Del("Mcp-Name")
	lines, _ := t.opening()
	for _, line := range lines {
		resp, err := r.post([]byte(line))
		if err != nil {
			return nil, err
		}
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			r.header.Set("Mcp-Session-Id", id)
		}
	}
	return r, nil
}

func (r *rawWeb) post(frame []byte) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, r.web.url, bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	req.Header = r.header
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusOK && n == 0) {
		err = fmt.Errorf("%s, %d bytes", resp.Status, n)
	}
	return resp, err
}

// call makes rawWeb a peer. It gives the text back unseen: nothing is decoded.
func (r *rawWeb) call(_ context.Context, text string) (string, error) {
	pool := r.frames[len(text)]
	frame := pool.Get().(*[]byte)
	defer pool.Put(frame)
	at := bytes.Index(*frame, []byte(`"id":`)) + len(`"id":`)
	strconv.AppendInt((*frame)[:at], firstID+r.next.Add(1), 10)
	_, err := r.post(*frame)
	return text, err
}

func (r *rawWeb) close() error {
	r.http.CloseIdleConnections()
	return nil
}
