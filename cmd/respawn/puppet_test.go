//go:build unix

package main

import (
	"bufio"
	"encoding/gob"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is the server of these tests. It does nothing by itself: it tells
// the test what it reads and does what the test orders, over a socket, so that a
// test reads as a dialog of three and no timing decides what happens.
const (
	puppetVar = "RESPAWN_TEST_PUPPET" // the socket; its presence makes a puppet
	markVar   = "RESPAWN_TEST_MARK"   // names a test's processes
)

// report is what a puppet says.
type report struct {
	PID  int
	Took []byte // a line of its stdin
	EOF  bool
	Half bool // the beginning of a line came, to a deaf one
	Done bool // an order was carried out
}

// order is what a puppet does, in the order of the fields.
type order struct {
	Stubborn bool // ignore the end of stdin, SIGTERM, SIGINT and SIGHUP from now on
	Fork     bool // leave a stubborn child behind that holds stdout and stderr
	Words    []byte
	Say      []byte // to stdout, as it is
	Shut     bool   // close stdout and stderr, and stay
	Deaf     bool   // read no more than the beginning of the next line
	Exit     bool   // with Code
	Code     int
}

func TestMain(m *testing.M) {
	switch socket := os.Getenv(puppetVar); {
	case socket == "":
		code := m.Run()
		if err := os.RemoveAll(builtDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	case socket == "echo":
		echo()
	case len(os.Args) > 1 && os.Args[1] == "leftover":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Fprintln(os.NewFile(3, "ready"))
		forever()
	default:
		if err := puppet(socket); err != nil {
			fmt.Fprintln(os.Stderr, "puppet:", err)
			os.Exit(99)
		}
	}
}

// forever is no empty select: without cgo the runtime would call that a deadlock
// and exit.
func forever() { time.Sleep(math.MaxInt64) }

// echo answers each request at once, and its opening as the tests' server does.
func echo() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriterSize(os.Stdout, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		id, answer := "", "{}"
		if _, rest, ok := strings.Cut(string(line), `"id":`); ok {
			id, _, _ = strings.Cut(rest, ",")
		}
		if strings.Contains(string(line), `"initialize"`) {
			answer = ofServer
		}
		if id != "" {
			fmt.Fprintln(out, result(id, answer))
		}
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

func puppet(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := gob.NewEncoder(conn)
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // a test that is over does not listen
	}
	tell(report{PID: os.Getpid()})
	stubborn, deaf := make(chan struct{}), make(chan struct{})
	go func() {
		in := bufio.NewReaderSize(os.Stdin, 1<<16)
		for {
			_, _ = in.Peek(1) // it waits; what it found is read below
			select {
			case <-deaf:
				tell(report{Half: true})
				forever()
			default:
			}
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				tell(report{Took: line[:len(line)-1]})
			}
			if err != nil {
				break
			}
		}
		tell(report{EOF: true})
		select {
		case <-stubborn:
			forever()
		default:
			os.Exit(0)
		}
	}()
	orders := gob.NewDecoder(conn)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return fmt.Errorf("no more orders: %w", err)
		}
		if err := obey(o, stubborn, deaf); err != nil {
			return err
		}
		tell(report{Done: true})
		if o.Exit {
			os.Exit(o.Code)
		}
	}
}

func obey(o order, stubborn, deaf chan struct{}) error {
	if o.Stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		close(stubborn)
	}
	if o.Fork {
		if err := leaveBehind(); err != nil {
			return err
		}
	}
	if _, err := os.Stderr.Write(o.Words); err != nil {
		return err
	}
	if _, err := os.Stdout.Write(o.Say); err != nil {
		return err
	}
	if o.Shut {
		os.Stdout.Close()
		os.Stderr.Close()
	}
	if o.Deaf {
		close(deaf)
	}
	return nil
}

// leaveBehind starts a child that holds our stdout and stderr, and waits until it
// ignores what can be ignored.
func leaveBehind() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0], "leftover")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{w}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.Close()
	_, err = io.ReadFull(r, make([]byte, 1))
	return err
}
