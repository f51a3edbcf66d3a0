package remote

import (
	"io"
	"testing"
	"time"
)

// The last line of ssh can be asked for while nobody reads the launcher's standard error.
func TestLastLineWhileNobodyReads(t *testing.T) {
	in, out := io.Pipe()
	w := &tail{to: out}
	if _, err := w.Write([]byte("before\nthe last\n")); err != nil {
		t.Fatal(err)
	}
	w.answered()
	wrote := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte("more"))
		wrote <- err
	}()
	if _, err := in.Read(make([]byte, 1)); err != nil { // three bytes are left to a writer that waits
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() { said <- w.last() }()
	select {
	case got := <-said:
		if got != ": the last" {
			t.Errorf("got %q", got)
		}
	case <-time.After(patience):
		t.Error("the last line waits for a reader")
	}
	in.Close()
	if err := <-wrote; err != io.ErrClosedPipe {
		t.Errorf("the write ended with %v", err)
	}
}
