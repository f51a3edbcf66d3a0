package verb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/mattn/go-isatty"
)

// Output is standard output. It remembers what became of it, for code that prints without a look at
// errors, and for work that would go on for a closed pipe.
type Output struct {
	w      io.Writer
	closed bool  // the reader of the pipe has read enough
	lost   error // the first write that failed for another reason
}

// Write implements io.Writer. A closed pipe is no error: its
// reader has seen enough.
func (o *Output) Write(b []byte) (int, error) {
	if o.closed {
		return len(b), nil
	}
	n, err := o.w.Write(b)
	switch {
	case errors.Is(err, syscall.EPIPE):
		o.closed = true
		return len(b), nil
	case err != nil && o.lost == nil:
		o.lost = err
	}
	return n, err
}

// NewOutput returns the output that goes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// OutputClosed reports whether nobody reads standard output any more.
func (e *Env) OutputClosed() bool {
	o, ok := e.Stdout.(*Output)
	return ok && o.closed
}

// Terminal reports whether standard output is one.
func (e *Env) Terminal() bool {
	w := e.Stdout
	if o, ok := w.(*Output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Printed turns success into an error where not all of it could be printed.
func Printed(stdout io.Writer, err error) error {
	if o, ok := stdout.(*Output); ok && err == nil && o.lost != nil {
		return fmt.Errorf("standard output: %w", o.lost)
	}
	return err
}
