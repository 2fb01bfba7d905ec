package stdio

import "os"

// canTry is false: a write to an anonymous pipe waits, so only the writer writes.
const canTry = false

type pipe struct {
	out  *outbox
	file *os.File
}

func (p *pipe) open(file *os.File, out *outbox) error {
	p.out, p.file = out, file
	return nil
}

func (p *pipe) tryOnce() error { panic("stdio: a Send must not write where writes wait") }

// writeQueue writes until nothing is left or a Sent is due. Each write waits for
// the server to read; the end of the job breaks the pipe and ends that.
func (p *pipe) writeQueue() error {
	for {
		chunk := p.out.compose()
		if chunk == nil {
			return nil
		}
		n, err := p.file.Write(chunk)
		due := p.out.wrote(n)
		if err != nil {
			return err
		}
		if due {
			return nil
		}
	}
}
