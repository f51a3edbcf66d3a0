// Package early turns the program into a supervisor before the packages that only
// other verbs need are initialized: that takes longer than many jobs. It has to be an
// init function, because main runs after all of them; it depends on little, so the
// order of initialization puts it among the first.
package early

import (
	"os"

	"github.com/mscclpp-go/mscclpp/internal/socketdir"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

func init() {
	if len(os.Args) == 3 && os.Args[1] == supervise.Arg {
		supervise.Run(os.Stdin, os.Args[2])
		socketdir.Sweep() // of ranks that were killed while they started a plugin
		os.Exit(0)
	}
}
