package stdio

import (
	"os"

	"github.com/respawn-mcp/respawn/transports"
)

// stdin is our end of the server's stdin and the writer that owns it, unless a
// Send found the pipe idle and writes itself, without waiting: that saves the
// common case, one call at a time, a change of goroutines.
type stdin struct {
	file *os.File
	out  *outbox
	emit func(transports.Event)
	fail func(error) // hears of a write that failed; the outbox is shut then
	pipe pipe        // how this platform writes
}

func newStdin(file *os.File, out *outbox, emit func(transports.Event), fail func(error)) (*stdin, error) {
	w := &stdin{file: file, out: out, emit: emit, fail: fail}
	return w, w.pipe.open(file, out)
}

// tryOnce is one write by a Send that owns the descriptor. What the pipe does
// not take at once is left to the writer.
func (w *stdin) tryOnce() { w.giveBack(w.pipe.tryOnce()) }

// giveBack ends one owner's turn, which ended in err.
func (w *stdin) giveBack(err error) {
	if err != nil {
		w.out.advance(shut)
	}
	w.out.release()
	if err != nil {
		w.fail(err)
	}
}

// run is the writer goroutine. It ends when the outbox is shut, with everything
// said about what was and was not written, and stdin closed.
func (w *stdin) run() {
	for {
		if w.out.acquire() {
			w.giveBack(w.pipe.writeQueue())
		}
		w.emitSent()
		phase, empty := w.out.state()
		if phase == flushing && empty {
			phase = w.out.advance(shut)
		}
		if phase == shut {
			break
		}
		<-w.out.wake
	}
	w.file.Close() // the server's sign to leave; a Send's write under way ends first
	<-w.out.settled
	w.emitSent()
	for ref, ok := w.out.takeUnsent(); ok; ref, ok = w.out.takeUnsent() {
		w.emit(transports.Unsent{Ref: ref, Cause: transports.ErrGone})
	}
}

func (w *stdin) emitSent() {
	for ref, ok := w.out.takeSent(); ok; ref, ok = w.out.takeSent() {
		w.emit(transports.Sent{Ref: ref})
	}
}
