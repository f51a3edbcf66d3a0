// Command mscclpp-run starts the ranks of a job, and has the verbs with which a
// system is looked at and measured.
package main

import (
	"errors"
	"fmt"
	"os"

	_ "github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/early" // may not return
)

func main() {
	a := &app{stdout: &output{w: os.Stdout}, stderr: os.Stderr}
	os.Exit(a.exitCode(a.printed(a.run(os.Args[1:]))))
}

// codeError ends the program with a code and, when err is nil, without a word:
// everything was said already.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// usage wraps a mistake on the command line.
func usage(format string, args ...any) error {
	return &codeError{code: 2, err: fmt.Errorf(format, args...)}
}

// exitCode reports err and returns the code with which the program is to end.
func (a *app) exitCode(err error) int {
	if err == nil {
		return 0
	}
	var c *codeError
	if !errors.As(err, &c) {
		c = &codeError{code: 1, err: err}
	}
	if c.err != nil {
		fmt.Fprintf(a.stderr, "mscclpp-run: %v\n", err)
		if c.code == 2 {
			fmt.Fprintln(a.stderr, "See mscclpp-run --help.")
		}
	}
	return c.code
}
