package launch

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stdin is the launcher's standard input on its way to the first rank.
//
// A file or pipe is handed over as it is. A terminal is not: a rank is not in the
// terminal's foreground group, so reading would stop it. Then the launcher reads
// and passes on.
type stdin struct {
	source *os.File
	child  *os.File // the rank's end
	write  *os.File // ours, for a terminal
}

func newStdin(source *os.File) *stdin {
	s := &stdin{source: source}
	if source == nil {
		return s
	}
	fd := int(source.Fd())
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		s.child = source
		return s
	}
	// In the background not even the launcher may read.
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || front != unix.Getpgrp() {
		return s
	}
	read, write, err := os.Pipe()
	if err == nil {
		s.child, s.write = read, write
	}
	return s
}

// file returns what the first rank gets, or nil for nothing.
func (s *stdin) file() *os.File { return s.child }

func (s *stdin) closeChildEnd() {
	if s.child != nil && s.child != s.source {
		s.child.Close()
	}
}

// copy passes on what is typed. The goroutine may outlive the job, blocked in the read; a caller of
// Run with a terminal is about to exit.
func (s *stdin) copy() {
	if s.write != nil {
		go func() {
			_, _ = io.Copy(s.write, s.source) // ends when either side does
			s.write.Close()
		}()
	}
}
