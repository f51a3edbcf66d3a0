package verb

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe without a writer, or one that is never closed, is an error in time; one that a writer
// fills is read to its end, whether it is opened before or after.
func TestReadInput(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const soon = 30 * time.Millisecond
	refused := func(what, name string, words ...string) {
		t.Helper()
		_, err := ReadInput(name, soon)
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		for _, w := range append(words, name) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, expected it to say %q", what, err, w)
			}
		}
	}
	refused("nobody writes", pipe, "expected somebody to write into the pipe", soon.String())
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused("somebody has it open", pipe, "expected somebody to write into the pipe")
	if _, err := writer.WriteString("half of"); err != nil {
		t.Fatal(err)
	}
	refused("it stays open", pipe, "and to close it")
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	refused("a folder", folder, "expected a regular file or a pipe")
	refused("a device", "/dev/zero", "expected a regular file or a pipe")
	refused("nothing", filepath.Join(folder, "none"), "no such file")

	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte("later"), 0) }()
	if text, err := ReadInput(pipe, 3*time.Minute); err != nil || string(text) != "later" {
		t.Errorf("%q, %v: expected what is written later", text, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadInput(file, 0); err != nil || string(text) != "all" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Truncate(file, maxInput+1); err != nil {
		t.Fatal(err)
	}
	refused("too long", file, "expected at most")
}

// The output of a shell's <(COMMAND) is read to its end, also where the command has ended before,
// and has printed nothing.
func TestReadInputOfAShell(t *testing.T) {
	for _, text := range []string{"node1\nnode2\n", ""} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		_, err = write.WriteString(text)
		if err := errors.Join(err, write.Close()); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("/dev/fd", fdOf(t, read))
		if got, err := ReadInput(name, 3*time.Minute); err != nil || string(got) != text {
			t.Errorf("%q, %v: expected %q", got, err, text)
		}
	}
}

func fdOf(t *testing.T, f *os.File) (number string) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { number = strconv.Itoa(int(fd)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return number
}
