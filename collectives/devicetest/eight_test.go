package devicetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Eight ranks, as machines have GPUs: every algorithm at a small size and at one of
// several pieces. The emulated driver reads once how many GPUs there are, and the other
// tests are for four, so a process of its own has eight.
func TestEightRanks(t *testing.T) {
	const n = 8
	if raceEnabled {
		t.Skip("needs the speed of a build without the race detector, which sees the same threads in four ranks")
	}
	gpus, err := machine()
	if err == nil && len(gpus) < n && imageFolder != "" {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestEightRanks$", "-test.v")
		c.Env = append(os.Environ(), fmt.Sprint(emulated.EnvGPUs, "=", n))
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestEightRanks") {
			t.Fatalf("on %d emulated GPUs: %v: %s", n, err, out)
		}
		return
	}
	var mu sync.Mutex
	ran := map[string]int{}
	job(t, n, collectives.Options{Scratch: 48 << 20}, func(ctx context.Context, r *rank) error {
		const half = 1 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		i := 0
		for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Reduce, collectives.Broadcast} {
			for _, algorithm := range r.Algorithms(kind) {
				for _, count := range []int{257, 10_000} {
					i++
					x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: kernel.Float32, Op: kernel.Sum, Root: i % n, Graph: i%3 == 0}
					took, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i))
					if !took {
						continue
					}
					if err != nil {
						return fmt.Errorf("%v: %w", x, err)
					}
					mu.Lock()
					ran[kind.String()+" "+algorithm]++
					mu.Unlock()
				}
			}
		}
		return nil
	})
	for _, want := range []string{"allreduce oneshot_ll8", "allreduce oneshot_ll128", "allreduce twoshot_ll128", "allreduce zerocopy",
		"allgather push", "reduce direct_ll8", "broadcast push"} {
		if ran[want] != 2*n {
			t.Errorf("%s ran %d times, expected %d: %v", want, ran[want], 2*n, ran)
		}
	}
}
