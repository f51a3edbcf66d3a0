package image

import (
	"os/exec"
	"runtime"
	"syscall"
)

// From linux/personality.h.
const (
	personalityQuery = 0xffffffff
	addrNoRandomize  = 0x0040000
)

// start starts a compiler at addresses that are the same each time, where the system lets a
// program ask for that: clang orders some of what it works with by address, and then makes
// other code for AMD from the same bytes.
func start(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the personality is that of a thread, and inherited
	defer runtime.UnlockOSThread()
	old, _, errno := syscall.Syscall(syscall.SYS_PERSONALITY, personalityQuery, 0, 0)
	if errno == 0 {
		if _, _, errno = syscall.Syscall(syscall.SYS_PERSONALITY, old|addrNoRandomize, 0, 0); errno == 0 {
			defer syscall.Syscall(syscall.SYS_PERSONALITY, old, 0, 0)
		}
	}
	return cmd.Start() // forks this thread
}
