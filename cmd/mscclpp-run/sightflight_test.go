package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A rank that is killed leaves a record that names it and the call.
func TestFlightRecordNamesTheDead(t *testing.T) {
	for name, over := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := observed(t, "calls=5 die=1", over, "--set", "observe.flight="+dir)
			code, _, errs := runs(c)
			if code != 128+9 {
				t.Fatalf("code %d: %s: expected that of SIGKILL", code, errs)
			}
			made, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(made) != 1 {
				t.Fatalf("%v, %v: expected one folder", made, err)
			}
			if !strings.Contains(errs, "what the ranks did last is in "+made[0]) {
				t.Errorf("%s: expected a line with %s", errs, made[0])
			}
			readme, err := os.ReadFile(filepath.Join(made[0], "README"))
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(readme), "\n")
			if !strings.HasPrefix(first, "rank 1 was killed by signal 9 (SIGKILL) after call 4 of world: allreduce of 3.906 KiB by ") {
				t.Errorf("%q: expected rank 1 and its last call", first)
			}
			code, out, errs := runs(command(t, "trace", made[0]))
			if code != 0 || !strings.Contains(out, "4 ranks") {
				t.Errorf("code %d: %s%s", code, out, errs)
			}
			perfettoAccepts(t, filepath.Join(made[0], "trace.perfetto"))
		})
	}
}

// A job that stands still and is asked to end leaves a record of the call, and of the rank that is missing in it. One that waits outside
// of calls leaves none.
func TestFlightRecordOfAHang(t *testing.T) {
	for name, hangs := range map[string]bool{"in a call": true, "between calls": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			what, dir, last := "calls=3 idle=0", t.TempDir(), uint64(2)
			if hangs {
				what, last = "calls=3 stop=0", 3
			}
			c := observed(t, what, layouts["4 over shm"], "--set", "observe.flight="+dir)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			for patience := patient(t, "the job does not come so far"); ; patience() {
				job := jobOf(t, c.Process.Pid)
				if job == "" {
					continue
				}
				comms := statusOf(t, job).Ranks[1].Comms
				if len(comms) > 0 && comms[0].Call == last && (hangs && comms[0].Age > 1.2e9 || !hangs && comms[0].Age == 0) {
					break
				}
			}
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // the signal has ended it
			made, err := filepath.Glob(filepath.Join(dir, "*", "README"))
			if err != nil || len(made) != map[bool]int{true: 1}[hangs] {
				t.Fatalf("%q, %v: expected one folder: %v", made, err, hangs)
			}
			if !hangs {
				return
			}
			text, err := os.ReadFile(made[0])
			first, _, _ := strings.Cut(string(text), "\n")
			const want = "the job was asked to end when call 3 of world, allreduce of 3.906 KiB, was begun by ranks 1-3; rank 0 has not begun it"
			if err != nil || first != want {
				t.Errorf("%q, %v: expected %q", first, err, want)
			}
		})
	}
}
