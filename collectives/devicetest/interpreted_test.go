package devicetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// childDigests is the value of childMode for ranks that make calls and print digests of what these give.
const childDigests = "digests"

// digests makes a call by each algorithm, launched and, where it can be, from a graph.
func digests(ctx context.Context, r *rank) error {
	const half = 1 << 20
	m, err := r.memory(ctx, 2*half)
	if err != nil {
		return err
	}
	rig, out, i := r.rig(ctx, m.Addr(), half), make([]byte, half), 0
	for _, kind := range collectivetest.Kinds() {
		for _, algorithm := range r.Algorithms(kind) {
			i++
			x := trial{Kind: kind, Algorithm: algorithm, Count: 1027, Type: kernel.Float32, Op: []kernel.Op{kernel.Sum, kernel.Avg}[i%2], Graph: i%4 == 3}
			took, err := attempt(r, rig, x, uint64(i))
			if !took {
				continue
			}
			if err == nil {
				err = r.dev.ReadAt(out, m.Addr()+half)
			}
			if err != nil {
				return fmt.Errorf("%v: %w", x, err)
			}
			fmt.Printf("%v %v %x\n", kind, algorithm, sha256.Sum256(out))
		}
	}
	return nil
}

// said is what two ranks print, each a process.
func said(t *testing.T, mode string, env ...string) (said [2][]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, lines := processes(ctx, t, 2, mode, "", env...)
	var ranks sync.WaitGroup
	for r := range all {
		ranks.Go(func() {
			for lines[r].Scan() {
				said[r] = append(said[r], lines[r].Text())
			}
		})
	}
	ranks.Wait()
	for r, c := range all {
		if err := c.Wait(); err != nil {
			t.Fatalf("rank %d: %v: %q", r, err, said[r][max(0, len(said[r])-3):])
		}
	}
	return said
}

// A job of two processes executes the committed PTX over the transport of GPUs, and gives the bits that the images for
// processors give.
func TestJobExecutesPTX(t *testing.T) {
	if gpus := needsGPU(t); len(gpus) < 2 || imageFolder == "" {
		t.Skip("needs two GPUs of the emulated driver")
	}
	perform := func(env ...string) [2][]string { return said(t, childDigests, env...) }
	want, got := perform(), perform(emulated.EnvRun+"=ptx", emulated.EnvImages+"="+t.TempDir()) // without images for processors
	for r := range want {
		if len(want[r]) < 40 {
			t.Errorf("rank %d made %d calls, expected one by each of at least 40 algorithms: %q", r, len(want[r]), want[r])
		}
		if !slices.Equal(got[r], want[r]) {
			t.Errorf("rank %d:\n%s\nexpected, as by images for processors:\n%s", r, strings.Join(got[r], "\n"), strings.Join(want[r], "\n"))
		}
	}
}
