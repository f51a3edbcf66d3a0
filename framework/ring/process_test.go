package ring

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// child is the proxy of the tests with two processes: it opens the ring that it
// inherits as descriptor 3, and completes each trigger, until one asks it to end. It polls, or
// sleeps at once where there is none.
func child(sleeps bool) error {
	r, err := Open(framework.Share{Kind: framework.ShareMemFD, FD: os.NewFile(3, "ring")})
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	idle := time.Now()
	for {
		t, pos, ok := r.Poll()
		if !ok {
			if time.Since(idle) > 4*time.Minute {
				return errors.New("no trigger for 4 minutes")
			}
			if sleeps {
				r.Park(time.Second)
			}
			continue
		}
		r.Pop()
		r.Complete(0, pos)
		if t.Fst == lastTrigger {
			return nil
		}
		if t.Fst == failTrigger {
			r.Fail(framework.ErrInvalid)
			return nil
		}
		idle = time.Now()
	}
}

const lastTrigger, failTrigger = ^uint64(0), ^uint64(1)

func TestMain(m *testing.M) {
	if how := os.Getenv("RING_CHILD"); how != "" {
		if err := child(how == "sleeps"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// spawn starts the proxy process of a ring.
func spawn(t testing.TB, r *Ring) *exec.Cmd { return spawnThat(t, r, "polls") }

func spawnThat(t testing.TB, r *Ring, how string) *exec.Cmd {
	t.Helper()
	s, err := r.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RING_CHILD="+how)
	cmd.ExtraFiles = []*os.File{s.FD}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestTwoProcesses(t *testing.T) {
	r, _ := pair(t, 32)
	cmd := spawn(t, r)
	ctx := deadline(t, 4*time.Minute)
	for i := range uint64(5000) {
		pos, err := r.PushContext(ctx, kernel.Trigger{Fst: i})
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := r.WaitFlushed(ctx, 0, pos); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.PushContext(ctx, kernel.Trigger{Fst: failTrigger}); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitFlushed(ctx, 1, 0); framework.Class(err) != framework.ErrInvalid {
		t.Errorf("%v: expected the class that the other process set", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func BenchmarkPush(b *testing.B) {
	for _, slots := range []int{512} {
		b.Run(strconv.Itoa(slots), func(b *testing.B) {
			p, c := pair(b, slots)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Push(kernel.Trigger{Fst: 1}); err != nil {
					b.Fatal(err)
				}
				_, _, _ = c.Poll()
				c.Pop()
			}
		})
	}
}
