package verb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxInput bounds what is read: a data file that is named by mistake gives an error instead of an
// exhausted machine.
const maxInput = 64 << 20

// ReadInput reads a file that a flag names, or a pipe, as a shell has it in <(COMMAND). A
// pipe that nobody fills would otherwise be waited for without end: opening it as well.
func ReadInput(name string, patience time.Duration) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
	case mode.Type() == os.ModeNamedPipe:
		end := time.Now().Add(patience)
		if err := errors.Join(f.SetReadDeadline(end), awaitWriter(f, end)); err != nil {
			return nil, unfilled(name, patience, err)
		}
	default:
		return nil, fmt.Errorf("%s: expected a regular file or a pipe", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err != nil {
		return nil, unfilled(name, patience, err)
	}
	if len(text) > maxInput {
		return nil, fmt.Errorf("%s: expected at most %d bytes", name, maxInput)
	}
	return text, nil
}

// awaitWriter waits until something came through a pipe, or its writer has closed it. A read does
// not tell a pipe that nobody has opened yet from one that has ended.
func awaitWriter(f *os.File, end time.Time) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	came := 0
	for came == 0 && (err == nil || errors.Is(err, syscall.EINTR)) {
		left := time.Until(end)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		if e := raw.Control(func(fd uintptr) { // unlike Fd, it leaves the pipe without waits
			came, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		}); e != nil {
			return e
		}
	}
	return err
}

func unfilled(name string, patience time.Duration, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s: expected somebody to write into the pipe, and to close it, within %v", name, patience)
	}
	return err
}
