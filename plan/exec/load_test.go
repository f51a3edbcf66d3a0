package exec

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// largest writes one of the largest plans of 16 ranks to a file of 4.4 MB.
func largest(t testing.TB) string {
	t.Helper()
	p, err := library.Compile("allreduce-2pa-packets", library.Shape{Ranks: 16, Blocks: 16})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := p.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// load does what a rank computes to load a plan and to upload it: it reads the file, compares its hash with those of other ranks, resolves
// the operations of all ranks, and lays out its own tables.
func load(t testing.TB, file string) (operations int) {
	p, err := schema.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	_ = p.Sum()
	u, all, err := inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{shape: newShape(p, &u, 1<<10, false)}
	var b builder
	slots := a.slots(make([]uint64, len(all)))
	put(&b, all[0].blocks)
	put(&b, all[0].ops)
	put(&b, based(all[0].operands, slots))
	put(&b, all[0].ids)
	put(&b, slots)
	_ = append([]byte(nil), b.bytes...) // as the copy to the device
	return len(all[0].ops)
}

func BenchmarkLoad(b *testing.B) {
	file := largest(b)
	for b.Loop() {
		load(b, file)
	}
}

// Time of the processor, not of the clock: other tests run beside this one. docs/plans.md has the figure; the bound is several times that.
func TestLoadIsQuick(t *testing.T) {
	file := largest(t)
	best := time.Hour
	for range 3 {
		before := processorTime(t)
		if n := load(t, file); n < 100 {
			t.Fatalf("%d operations, expected those of 16 blocks", n)
		}
		best = min(best, processorTime(t)-before)
	}
	const bound = 400 * time.Millisecond
	if best > bound {
		t.Errorf("a plan of 16 ranks took %v to load: expected %v at most", best, bound)
	}
	t.Logf("%v", best)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
