package outputpump

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllIsWrittenInOrder(t *testing.T) {
	var out strings.Builder
	var want strings.Builder
	o := New()
	a, b := o.To(&out), o.To(&out)
	for i := range 100 {
		fmt.Fprintf(a, "a%d ", i)
		fmt.Fprintf(b, "b%d ", i)
		fmt.Fprintf(&want, "a%d b%d ", i, i)
	}
	if err := o.Flush(nil); err != nil || out.String() != want.String() {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := o.Flush(nil); err != nil || o.Full() {
		t.Errorf("with nothing left: %v, full %v", err, o.Full())
	}
}

// Output without a reader keeps no caller waiting, and is not lost once there is a reader.
func TestNobodyReads(t *testing.T) {
	read, write := io.Pipe()
	o := New()
	w := o.To(write)
	for range room / 1024 {
		if n, err := w.Write(make([]byte, 1024)); n != 1024 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !o.Full() {
		t.Error("there is room")
	}
	over := make(chan struct{})
	close(over)
	if err := o.Flush(over); !errors.Is(err, ErrNotTaken) {
		t.Errorf("%v, expected ErrNotTaken", err)
	}
	if n, err := io.ReadFull(read, make([]byte, room)); n != room || err != nil {
		t.Fatal(n, err)
	}
	if err := o.Flush(nil); err != nil || o.Full() {
		t.Errorf("read to the end: %v, full %v", err, o.Full())
	}
	select {
	case <-o.Took():
	default:
		t.Error("nothing was taken")
	}
}

func TestLostWritesAreKept(t *testing.T) {
	for want, err := range map[error]error{
		syscall.ENOSPC: fmt.Errorf("write: %w", syscall.ENOSPC), nil: &os.PathError{Op: "write", Err: syscall.EPIPE},
	} {
		o := New()
		_, _ = o.To(failing{err}).Write([]byte("x"))
		if got := o.Flush(nil); !errors.Is(got, want) {
			t.Errorf("%v, expected %v", got, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A process that waits for a reader stops with it at Ctrl-Z, and waits on.
func TestPatienceStops(t *testing.T) {
	stopped := make(chan struct{})
	before := stopSelf
	defer func() { stopSelf = before }()
	stopSelf = func() { close(stopped) }
	signals := make(chan os.Signal, 1)
	over, enough := Patience(t.Context(), false, signals, nil)
	defer enough()
	signals <- syscall.SIGTSTP
	<-stopped
	select {
	case <-over:
		t.Error("the job was not asked to end")
	default:
	}
	signals <- syscall.SIGTERM
	<-over
}

// The pump waits for a reader that takes something from time to time, also when the job is to end.
func TestPatienceWithReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan struct{})
		over, enough := Patience(t.Context(), true, nil, took)
		defer enough()
		for range 5 {
			select {
			case <-over:
				t.Fatal("the reader was not waited for")
			case <-time.After(ReaderBound - time.Millisecond):
				took <- struct{}{}
			}
		}
		last := time.Now()
		<-over
		if waited := time.Since(last); waited != ReaderBound {
			t.Errorf("waited %v, expected %v", waited, ReaderBound)
		}
	})
}

// A reader of a long piece takes something before it has taken all.
func TestPartsOfAPieceAreTaken(t *testing.T) {
	read, write := io.Pipe()
	o := New()
	if _, err := o.To(write).Write(make([]byte, 3*step)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := io.ReadFull(read, make([]byte, step)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-o.Took():
		case <-time.After(time.Minute):
			t.Fatal("the part does not count")
		}
	}
	if _, err := io.ReadFull(read, make([]byte, step)); err != nil {
		t.Fatal(err)
	}
	if err := o.Flush(nil); err != nil {
		t.Error(err)
	}
}

// A process that gets no processor until the time is up has not waited in vain for a reader that took something meanwhile.
func TestPatienceOfALateProcess(t *testing.T) {
	for range 100 {
		timer, took := time.NewTimer(0), make(chan struct{}, 1)
		took <- struct{}{}
		if !waits(timer, took, nil) {
			t.Fatal("a reader that has taken something was not waited for")
		}
		timer.Stop()
	}
	if waits(time.NewTimer(0), nil, nil) {
		t.Error("a reader that takes nothing is waited for")
	}
}

// Bytes that were written count as written, also if that was noticed late.
func TestFlushOfNothing(t *testing.T) {
	over := make(chan struct{})
	close(over)
	for range 50 {
		o := New()
		_, _ = o.To(io.Discard).Write([]byte("x"))
		if err := errors.Join(o.Flush(nil), o.Flush(over)); err != nil {
			t.Fatal(err)
		}
	}
}
