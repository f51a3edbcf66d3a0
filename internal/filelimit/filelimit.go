// Package filelimit asks how large a file this process may make. A limit holds for files in memory, too, and the system
// does not refuse what is beyond it: it ends the process by SIGXFSZ. So the question has to be asked before.
package filelimit

import (
	"fmt"
	"syscall"
)

// Check refuses a file that RLIMIT_FSIZE does not allow.
func Check(bytes uint64) error {
	var most syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &most) == nil && bytes > most.Cur {
		return fmt.Errorf("a file of %d bytes, on disk or in memory: this process may make files of %d: see RLIMIT_FSIZE (ulimit -f)", bytes, most.Cur)
	}
	return nil
}
