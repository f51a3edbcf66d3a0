// Package promise holds tests to times that are promised, on machines that do other things as
// well: time in which somebody waited for a processor, a disk or memory does not count.
package promise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// most is the longest time that does not count. A call that hangs fails on a busy machine too.
const most = 20 * time.Second

// tick is the unit of /proc/stat.
const tick = time.Second / 100

// Watch measures how long something takes.
type Watch struct {
	begun time.Time
	busy  time.Duration
}

// Begin starts a watch.
func Begin() Watch { return Watch{time.Now(), busy(os.ReadFile)} }

// Kept returns an error where more than the bound has passed since Begin.
func (w Watch) Kept(bound time.Duration) error {
	return kept(time.Since(w.begun), busy(os.ReadFile)-w.busy, bound)
}

// Await waits until something is done, and returns an error where the bound has passed before.
func (w Watch) Await(done <-chan struct{}, bound time.Duration) error {
	look := time.NewTicker(max(bound/8, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-done:
			return w.Kept(bound)
		case <-look.C:
			if err := w.Kept(bound); err != nil {
				return err
			}
		}
	}
}

func kept(took, busy, bound time.Duration) error {
	busy = max(0, min(busy, took, most))
	if took-busy <= bound {
		return nil
	}
	return fmt.Errorf("after %v, in %v of which the machine was busy: expected at most %v", took, busy, bound)
}

// busy is for how long, since the machine was started, some task has waited for what others
// used, and a virtual machine for its host. Without the kernel's accounts it is zero.
func busy(read func(string) ([]byte, error)) time.Duration {
	var sum time.Duration
	for _, of := range []string{"cpu", "io", "memory"} {
		text, err := read("/proc/pressure/" + of)
		if err != nil {
			continue
		}
		some, _, _ := strings.Cut(string(text), "\n")
		if _, total, found := strings.Cut(some, "total="); found {
			n, _ := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
			sum += time.Duration(n) * time.Microsecond
		}
	}
	if text, err := read("/proc/stat"); err == nil {
		all, _, _ := strings.Cut(string(text), "\n")
		if f := strings.Fields(all); len(f) > 8 && f[0] == "cpu" {
			n, _ := strconv.ParseInt(f[8], 10, 64) // stolen
			sum += time.Duration(n) * tick
		}
	}
	return sum
}
