package promise

import (
	"os"
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	for _, c := range []struct {
		took, busy, bound time.Duration
		ok                bool
	}{
		{time.Second, 0, 2 * time.Second, true},
		{3 * time.Second, 0, 2 * time.Second, false},
		{3 * time.Second, 1500 * time.Millisecond, 2 * time.Second, true},
		{3 * time.Second, 900 * time.Millisecond, 2 * time.Second, false},
		{most + 3*time.Second, time.Minute, 2 * time.Second, false}, // it hangs
		{time.Second, -time.Second, 2 * time.Second, true},          // the kernel's accounts are of several processors
	} {
		if err := kept(c.took, c.busy, c.bound); (err == nil) != c.ok {
			t.Errorf("%v, busy for %v, of %v: %v", c.took, c.busy, c.bound, err)
		}
	}
	if err := Begin().Kept(-time.Hour); err == nil {
		t.Error("a bound that has passed is kept")
	}
}

func TestAwait(t *testing.T) {
	done := make(chan struct{})
	if err := Begin().Await(done, 10*time.Millisecond); err == nil {
		t.Error("what is not done is in time")
	}
	close(done)
	if err := Begin().Await(done, time.Minute); err != nil {
		t.Error(err)
	}
	if err := Begin().Await(done, -time.Hour); err == nil {
		t.Error("what is done too late is in time")
	}
}

func TestBusy(t *testing.T) {
	files := map[string]string{
		"/proc/pressure/cpu":    "some avg10=99.18 avg60=98.26 avg300=87.65 total=7000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
		"/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\n",
		"/proc/stat":            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 800 9 10\n",
	}
	read := func(path string) ([]byte, error) {
		text, found := files[path]
		if !found {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}
	if got, want := busy(read), 7020*time.Microsecond+8*tick; got != want {
		t.Errorf("%v, expected %v", got, want)
	}
	if got := busy(func(string) ([]byte, error) { return nil, os.ErrNotExist }); got != 0 {
		t.Errorf("without accounts %v", got)
	}
}
