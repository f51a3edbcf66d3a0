package processors

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread that binds itself to one of its processors gets that one as the answer.
func TestAllowed(t *testing.T) {
	all, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != runtime.NumCPU() || !slices.IsSorted(all) {
		t.Fatalf("processors %v: expected %d, ascending", all, runtime.NumCPU())
	}
	for _, cpu := range []int{all[0], all[len(all)-1]} {
		got := make(chan []int, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the others stay as they are
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			list, err := Allowed()
			if err != nil {
				t.Error(err)
			}
			got <- list
		}()
		if list := <-got; !slices.Equal(list, []int{cpu}) {
			t.Errorf("processors %v: expected %d alone", list, cpu)
		}
	}
}
