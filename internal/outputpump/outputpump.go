// Package outputpump writes to pipes that may have no active reader: a pager that the user does
// not scroll keeps a pipe full for hours, and a process that waits in a write hears no signal
// meanwhile.
package outputpump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// room is how much may be queued before an Pump is full.
const room = 64 << 10

// step is how much InSteps writes at once.
const step = 4 << 10

// InSteps writes b to w in parts of 4 KiB, to the end of a line where there is one, and calls wrote behind each: a slow
// reader that has taken so much has taken something.
func InSteps(w io.Writer, b []byte, wrote func(n int, err error)) {
	for len(b) > 0 {
		part := b[:min(len(b), step)]
		if end := bytes.LastIndexByte(part, '\n'); len(part) < len(b) && end >= 0 {
			part = part[:end+1]
		}
		b = b[len(part):]
		_, err := w.Write(part)
		wrote(len(part), err)
	}
}

// ErrNotTaken is the error for output that is not read until the job has to end.
var ErrNotTaken = errors.New("nobody has read it")

// Pump writes in the background, in order, what it is given. Its methods may be called
// from any goroutine.
type Pump struct {
	mu      sync.Mutex
	queue   []piece
	bytes   int
	writing bool
	idle    chan struct{} // closed when all is written; nil before the first write
	took    chan struct{}
	err     error
}

type piece struct {
	to   io.Writer
	data []byte
}

// New returns an Pump with nothing to write.
func New() *Pump { return &Pump{took: make(chan struct{}, 1)} }

// To returns a writer whose writes do not wait: w is written to in the background.
func (o *Pump) To(w io.Writer) io.Writer { return end{o, w} }

type end struct {
	o  *Pump
	to io.Writer
}

// Write implements io.Writer.
func (e end) Write(b []byte) (int, error) {
	o := e.o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, piece{e.to, append([]byte(nil), b...)})
	o.bytes += len(b)
	if !o.writing {
		o.writing, o.idle = true, make(chan struct{})
		go o.write()
	}
	return len(b), nil
}

// write writes until nothing is left.
func (o *Pump) write() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.writing, o.queue = false, nil
			close(o.idle)
			o.mu.Unlock()
			return
		}
		p := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		InSteps(p.to, p.data, func(n int, err error) {
			o.mu.Lock()
			o.bytes -= n
			if o.err == nil && Lost(err) {
				o.err = err
			}
			o.mu.Unlock()
			select {
			case o.took <- struct{}{}:
			default:
			}
		})
	}
}

// Full says that so much is queued that a caller with more should wait for Took.
func (o *Pump) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes >= room
}

// Took gets a value when something has been written since the last one.
func (o *Pump) Took() <-chan struct{} { return o.took }

// Flush waits until all is written, or until over is closed. The error is that of the
// first write that lost something, else ErrNotTaken if something is still queued.
func (o *Pump) Flush(over <-chan struct{}) error {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	var err error
	if idle != nil {
		select {
		case <-idle:
		case <-over:
			select {
			case <-idle: // both: nothing is queued
			default:
				err = ErrNotTaken
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return err
}

// Lost reports whether the error of a write means that output is not where it was to
// go. A reader that closes a pipe has read enough.
func Lost(err error) bool {
	return err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed)
}

// ReaderBound is how long output may wait for a reader once a job has to end.
const ReaderBound = time.Second

// stopSelf stops the process until a signal continues it.
var stopSelf = supervise.StopSelf

// Patience returns a channel that is closed when the launcher waits no longer for the readers
// of a job's output: ReaderBound after a request to end, and ReaderBound after they last took
// some of it. endRequested says that the request came before. Without one a pager may take its time.
func Patience(ctx context.Context, endRequested bool, signals <-chan os.Signal, took <-chan struct{}) (over <-chan struct{}, enough func()) {
	life, enough := context.WithCancel(context.Background())
	go func() {
		for !endRequested {
			select {
			case s := <-signals:
				if s == syscall.SIGTSTP {
					stopSelf() // the reader stops as well, and a shell waits for both
				}
				endRequested = Ends(s)
			case <-ctx.Done():
				endRequested = true
			case <-life.Done():
				return
			}
		}
		timer := time.NewTimer(ReaderBound)
		defer timer.Stop()
		for waits(timer, took, life.Done()) {
		}
		enough()
	}()
	return life.Done(), enough
}

// waits waits until the reader has taken something, and reports whether it has done so in time.
func waits(timer *time.Timer, took, done <-chan struct{}) bool {
	select {
	case <-took:
	case <-done:
		return false
	case <-timer.C:
		select {
		case <-took: // this process is late, and not the reader
		default:
			return false
		}
	}
	timer.Reset(ReaderBound)
	return true
}

// WriteLast writes a last word, and waits at most ReaderBound until it was taken.
func WriteLast(to io.Writer, format string, args ...any) {
	o := New()
	fmt.Fprintf(o.To(to), format, args...)
	over, enough := context.WithTimeout(context.Background(), ReaderBound)
	defer enough()
	_ = o.Flush(over.Done())
}

// Ends reports whether a signal asks a job to end.
func Ends(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
