package measure

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// emulatedQueue is the queue of a GPU, or of an emulated one.
func emulatedQueue(t *testing.T, failed func() error) *queue {
	t.Helper()
	if _, err := cuda.Count(); err != nil && os.Getenv(cuda.EnvLibrary) == "" {
		t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	}
	dev, err := cuda.Open(0)
	if err != nil {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	q, err := newQueue(measuredOn(dev), failed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func healthy() error { return nil }

// spend keeps the host busy.
func spend(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		runtime.Gosched()
	}
}

// The measured work begins when all of it is enqueued, and only then.
func TestHeldTimeWaitsForTheHost(t *testing.T) {
	q := emulatedQueue(t, healthy)
	m, err := q.dev.host(16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(m.HostBytes()[at:]) }
	const host = 100 * time.Millisecond
	least := time.Hour // of several times, whatever the machine does beside them
	for turn := uint64(1); turn <= 3; turn++ {
		took, err := q.Time(true,
			func() error { return q.dev.Write(q.stream, m.Addr(), turn) },
			func() error {
				spend(host) // time enough to begin too early
				if got := word(0); got != turn-1 {
					t.Errorf("turn %d began while it was being enqueued: %d", turn, got)
				}
				return q.dev.Write(q.stream, m.Addr()+8, turn)
			})
		if err != nil || word(0) != turn || word(8) != turn {
			t.Fatalf("turn %d: %d and %d, %v", turn, word(0), word(8), err)
		}
		least = min(least, took)
	}
	if least >= host {
		t.Errorf("%v, with the time of the host in it", least)
	}
}

func TestTimeThatIsNotHeldBeginsAtOnce(t *testing.T) {
	q := emulatedQueue(t, healthy)
	m, err := q.dev.host(8)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = q.Time(false,
		func() error { return q.dev.Write(q.stream, m.Addr(), 1) },
		func() error {
			for start := time.Now(); binary.LittleEndian.Uint64(m.HostBytes()) != 1; runtime.Gosched() {
				if time.Since(start) > 3*time.Minute {
					t.Fatal("the device waits for what is still to be enqueued")
				}
			}
			return nil
		})
	if err != nil {
		t.Error(err)
	}
}

// An error in between leaves no wait behind on the stream, and the failure of the job
// says more than that of the driver.
func TestErrorsOfAMeasurement(t *testing.T) {
	var end error
	q := emulatedQueue(t, func() error { return end })
	broken := errors.New("broken")
	if _, err := q.Time(true, func() error { return broken }, healthy); !errors.Is(err, broken) {
		t.Errorf("align: %v", err)
	}
	if _, err := q.Time(true, healthy, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("call: %v", err)
	}
	if err := q.Finish(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	end = errors.New("rank 3 is gone")
	if _, err := q.Time(true, healthy, healthy); !errors.Is(err, end) {
		t.Errorf("%v, want the end of the job", err)
	}
}

func TestGraphsAreTimed(t *testing.T) {
	q := emulatedQueue(t, healthy)
	m, err := q.dev.measurable.(*cuda.Device).Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, err := q.Capture(func() error { return q.dev.measurable.(*cuda.Device).Memset(q.stream, m.Addr(), 7, 4096) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	got := make([]byte, 4096)
	if err := errors.Join(q.dev.ReadAt(got, m.Addr())); err != nil || got[0] != 0 {
		t.Errorf("%d after a recording, %v", got[0], err)
	}
	if _, err := q.Time(true, healthy, g.Launch); err != nil {
		t.Fatal(err)
	}
	if err := q.dev.ReadAt(got, m.Addr()); err != nil || got[4095] != 7 {
		t.Errorf("%d after the launch, %v", got[4095], err)
	}
	broken := errors.New("broken")
	if _, err := q.Capture(func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
