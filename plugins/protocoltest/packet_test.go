package protocoltest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A signal does not end the wait for a packet: the suite would say that the plugin sent none.
func TestAwaitInputAmongSignals(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	runtime.LockOSThread() // the signals are for this thread
	defer runtime.UnlockOSThread()
	self, thread := os.Getpid(), unix.Gettid()
	sent := make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range 50 {
			<-tick.C
			if err := unix.Tgkill(self, thread, unix.SIGURG); err != nil {
				sent <- err
				return
			}
		}
		_, err := unix.Write(pair[1], []byte{1})
		sent <- err
	}()
	came := awaitInput(pair[0], 30*time.Second)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !came {
		t.Error("a packet came, and the wait for it ended before")
	}
	if _, err := unix.Read(pair[0], make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if awaitInput(pair[0], time.Millisecond) {
		t.Error("nothing came, and the wait found something")
	}
}
