package observe

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity tells a file from all others.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(s.Dev, ".", s.Ino)
	}
	return info.Name()
}
