package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/respawn-mcp/respawn/transports"
)

// lines splits what the host says at the byte 0x0A and nothing else.
type lines struct {
	r     *bufio.Reader
	limit int // bytes of a line without its newline
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// headMax is how much of a line over the limit is told: enough for the id and the
// method, which most clients write first.
const headMax = 4 << 10

// each gives every line to take, who may keep it, until the input ends. Of a line
// over the limit only its beginning and the length are told.
func (l *lines) each(take func([]byte), tooLong func(head []byte, n int)) error {
	var long []byte // the beginning of a line that the buffer does not hold
	length := 0
	for first := true; ; {
		part, err := l.r.ReadSlice('\n')
		length += len(part)
		if length <= l.limit+1 {
			long = append(long, part...)
		} else if len(long) > headMax {
			long = bytes.Clone(long[:headMax])
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if line := bytes.TrimSuffix(long, []byte{'\n'}); first {
			long, first = bytes.TrimPrefix(line, byteOrderMark), false
		} else {
			long = line
		}
		if length > l.limit+1 || len(long) > l.limit {
			tooLong(long[:min(len(long), headMax)], length)
		} else if len(long) > 0 {
			take(long)
		}
		long, length = nil, 0
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxUnread is how much may wait for a host that does not read before its server has
// to wait too: what may be queued for a server that does not.
const maxUnread = transports.MaxQueued

// overflow is how many times that may wait in all, as what is said by others than the
// server comes on top, and so does what each exchange of a server's has in hand.
const overflow = 4

// errUnread breaks an outlet whose reader is too slow.
var errUnread = errors.New("too much waits to be read")

// outlet writes on one goroutine, so that nobody else waits for whoever reads.
type outlet struct {
	w     io.Writer
	limit int

	mu      sync.Mutex
	queue   [][]byte
	bytes   int
	closing bool
	room    chan struct{} // closed when less than the limit waits; nil: nobody asked
	wake    chan struct{} // holds a token while there is something to do
	broken  chan struct{} // closed when nothing can be written any more
	done    chan struct{}
	err     error // why it is broken
}

func newOutlet(w io.Writer, limit int) *outlet {
	o := &outlet{
		w: w, limit: limit,
		wake: make(chan struct{}, 1), broken: make(chan struct{}), done: make(chan struct{}),
	}
	go o.run()
	return o
}

// wait blocks while too much waits to be read, but not beyond ctx.
func (o *outlet) wait(ctx context.Context) {
	for {
		o.mu.Lock()
		if o.err != nil || o.bytes < o.limit {
			o.mu.Unlock()
			return
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-o.broken:
		case <-ctx.Done():
			return
		}
	}
}

// put queues a message as a line of its own. One that finds far too much before it
// breaks the outlet: a gap would be a lost answer.
func (o *outlet) put(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
	case o.bytes > 0 && o.bytes+len(frame) > overflow*o.limit:
		o.fail(errUnread)
	default:
		o.add(frame)
	}
}

// Write queues a whole line of a log, or loses it if too much waits already.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && o.bytes+len(line) <= o.limit {
		o.add(bytes.Clone(bytes.TrimSuffix(line, []byte{'\n'})))
	}
	return len(line), nil
}

// add queues a message. mu is held.
func (o *outlet) add(frame []byte) {
	o.queue = append(o.queue, frame)
	o.bytes += len(frame)
	o.poke()
}

func (o *outlet) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// fail breaks the outlet. mu is held.
func (o *outlet) fail(err error) {
	if o.err == nil {
		o.err, o.queue = err, nil
		close(o.broken)
	}
}

// joined is the most that one write joins: what a pipe takes at once (Linux).
const joined = 64 << 10

// run writes what is queued, small messages together.
func (o *outlet) run() {
	defer close(o.done)
	var scratch []byte
	for {
		o.mu.Lock()
		queue, closing := o.queue, o.closing
		o.queue = nil
		o.mu.Unlock()
		if len(queue) == 0 {
			if closing {
				return
			}
			<-o.wake
			continue
		}
		for len(queue) > 0 {
			scratch = scratch[:0]
			size := 0
			for len(queue) > 0 && (size == 0 || len(scratch)+len(queue[0]) < joined) {
				scratch = append(append(scratch, queue[0]...), '\n')
				size += len(queue[0])
				queue = queue[1:]
			}
			_, err := o.w.Write(scratch)
			o.mu.Lock()
			o.bytes -= size
			if o.room != nil && o.bytes < o.limit {
				close(o.room)
				o.room = nil
			}
			if err != nil {
				o.fail(err)
			}
			broken := o.err != nil
			o.mu.Unlock()
			if broken {
				return
			}
			if cap(scratch) > 1<<20 { // a long message's buffer is not kept
				scratch = nil
			}
		}
	}
}

// finish ends the outlet once what is queued was written; done tells when.
func (o *outlet) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = true
	o.poke()
}

// close waits until what is queued was written, but not for ever.
func (o *outlet) close(bound time.Duration) {
	o.finish()
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
	}
}

// paced returns a factory whose servers wait while their host does not read, as they
// would if they wrote to it themselves.
func paced(f transports.Factory, host *outlet) transports.Factory {
	eager := f.New
	f.New = func() transports.Transport { return pacedTransport{eager(), host} }
	return f
}

type pacedTransport struct {
	transports.Transport
	host *outlet
}

func (t pacedTransport) Serve(ctx context.Context, emit func(transports.Event)) error {
	return t.Transport.Serve(ctx, func(ev transports.Event) {
		if _, ok := ev.(transports.Message); ok {
			t.host.wait(ctx)
		}
		emit(ev)
	})
}
