// Command mscclpp-run starts the ranks of a job, and has the verbs with which a
// system is looked at and measured.
package main

import (
	"errors"
	"fmt"
	"os"

	_ "github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/early" // may not return

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
)

func main() {
	a := &app{stdout: verb.NewOutput(os.Stdout), stderr: os.Stderr}
	os.Exit(a.exitCode(verb.Printed(a.stdout, a.run(os.Args[1:]))))
}

// exitCode reports err and returns the code with which the program is to end.
func (a *app) exitCode(err error) int {
	if err == nil {
		return 0
	}
	var c *verb.Error
	if !errors.As(err, &c) {
		c = &verb.Error{Code: 1, Err: err}
	}
	if c.Err != nil {
		fmt.Fprintf(a.stderr, "mscclpp-run: %v\n", err)
		if c.Code == 2 {
			fmt.Fprintln(a.stderr, "See mscclpp-run --help.")
		}
	}
	return c.Code
}
