package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const small = 1 << 10 // bytes of a call that takes as little as there is

// halves makes a call of all-reduce of f16, in place.
func halves(r *rank, addr uintptr, bytes int64) error {
	return r.AllReduce(pointer(addr), pointer(addr), int(bytes/2), kernel.Float16, kernel.Sum, &collectives.CallOptions{Stream: r.stream})
}

// The time that a call costs the host beyond the launch of an empty kernel with as many bytes of
// arguments: with one rank, which has the driver for itself, and with one for each GPU.
func TestCostOfACallForTheHost(t *testing.T) {
	size := argumentBytes(t)
	ptx := emptyImage(t, size)
	for _, n := range []int{1, gpusHere(t, 4)} {
		var call, empty slowest
		crowd(t, n, costly(), func(ctx context.Context, r *rank) error {
			m, err := r.memory(ctx, 1<<20)
			if err != nil {
				return err
			}
			k, err := loadEmpty(r, ptx, size)
			if err != nil {
				return err
			}
			o := &collectives.CallOptions{Stream: r.stream}
			p := pointer(m.Addr())
			calls := func() error { return r.AllReduce(p, p, small/2, kernel.Float16, kernel.Sum, o) }
			if err := errors.Join(r.Prepare(collectives.AllReduce, kernel.Float16), r.world.Barrier(ctx), calls(), r.settle(ctx)); err != nil {
				return err
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var times [2][]float64
			for range often(60, 3) {
				for i, f := range []func() error{calls, func() error { return k.launch(r) }} {
					took, err := hostTime(f, often(200, 10)) // a queue takes 1,024
					if err := errors.Join(err, r.settle(ctx)); err != nil {
						return err
					}
					times[i] = append(times[i], took)
				}
			}
			call.add(median(times[0]))
			empty.add(median(times[1]))
			return nil
		})
		if t.Failed() || call.most == 0 {
			return
		}
		goal := 0.4
		if n > 1 { // threads of one process wait for each other in the driver
			goal = 0
		}
		cost{Cost: "host time of a call", Ranks: n, Device: deviceOf(t), Bytes: small, TimeUS: call.most, AloneUS: empty.most, GoalUS: goal}.keep(t)
	}
}

func hostTime(f func() error, times int) (float64, error) {
	start := time.Now()
	for range times {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start)) / float64(times) / float64(time.Microsecond), nil
}

// lookStart is how the function begins that kernels call once in a while to see whether
// they have to leave.
var lookStart = regexp.MustCompile(`ld\.param\.u64 \t(%rd\d+), \[_ZN7mscclpp6detail4look\w*_param_0\];`)

// unlooked makes that function return at once, as it does without a word to look at.
func unlooked(ptx []byte) []byte {
	out := lookStart.ReplaceAll(ptx, []byte("$0\n\tmov.u64 \t$1, 0;"))
	if imageFolder == "" || bytes.Equal(out, ptx) {
		return out
	}
	for _, end := range []string{"", ".other"} { // the two endings are interchangeable
		from, to := filepath.Join(imageFolder, standIn(ptx)+end), filepath.Join(imageFolder, standIn(out)+end)
		_ = os.Link(from, to) // there already, or the load says so
	}
	return out
}

func standIn(ptx []byte) string {
	h := fnv.New64a()
	h.Write(ptx)
	return fmt.Sprintf("%016x.so", h.Sum64())
}

// The change is made in every image whose kernels wait, and nowhere else.
func TestUnlooked(t *testing.T) {
	const call = "call.uni (retval0), \n\t_ZN7mscclpp6detail4lookEPNS_11WaitControlEmjjjm, \n"
	before := "ld.param.u64 \t%rd10, [_ZN7mscclpp6detail4lookEPNS_11WaitControlEmjjjm_param_0];\n" + call + "ld.param.u64 \t%rd10, [other_param_0];\n"
	want := strings.Replace(before, ";\n", ";\n\tmov.u64 \t%rd10, 0;\n", 1)
	if got := unlooked([]byte(before)); string(got) != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// The time that a small call gains if its kernels never look whether they have to leave. Both kinds
// of kernels run by turns, from graphs; and each kind in the first and in the second of two
// communicators, which are not equally fast, whatever they run.
func TestCostOfTheAbortCheck(t *testing.T) {
	n := gpusHere(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var looking, not float64
	for changed := range 2 {
		times := timesOfLooks(ctx, t, n, changed)
		if t.Failed() {
			return
		}
		looking += times[1-changed] / 2
		not += times[changed] / 2
	}
	cost{Cost: "abort check", Ranks: n, Device: deviceOf(t), Bytes: small, TimeUS: looking, AloneUS: not, GoalUS: not / 100}.keep(t)
}

// timesOfLooks are those of the slowest rank, in two communicators. In one of them kernels never look.
func timesOfLooks(ctx context.Context, t *testing.T, n, changed int) [2]float64 {
	t.Helper()
	gpus := needsGPU(t)
	var times [2]slowest
	var ranks sync.WaitGroup
	images := make([]int, n)
	boots := [2][]*bootstrap.Local{bootstrap.InProcess(n), bootstrap.InProcess(n)}
	for i := range n {
		ranks.Go(func() {
			o := costly()
			o.Sharing = sharing(n, len(gpus))
			if o.Scratch == 0 {
				o.Scratch, o.CopyScratch = 24<<20, 2<<20
			}
			var pair [2]*rank
			for k := range pair {
				defer boots[k][i].Close()
				pair[k] = &rank{boot: boots[k][i]}
			}
			pair[changed].patch = func(ptx []byte) []byte {
				out := unlooked(ptx)
				if len(out) > len(ptx) {
					images[i]++
				}
				return out
			}
			var medians [2]float64
			err := errors.Join(pair[0].open(ctx, gpus, i, o), pair[1].open(ctx, gpus, i, o))
			if err == nil {
				medians, err = alternate(ctx, pair)
			}
			for k, r := range pair {
				if err != nil && r.world != nil {
					r.world.Abort(err)
				}
				err = errors.Join(err, r.close())
				times[k].add(medians[k])
			}
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	ranks.Wait()
	for i, c := range images {
		if c == 0 && !t.Failed() {
			t.Errorf("rank %d: no image was changed: both kinds of kernels look", i)
		}
	}
	return [2]float64{times[0].most, times[1].most}
}

// alternate times calls of both, from graphs of many.
func alternate(ctx context.Context, pair [2]*rank) (medians [2]float64, err error) {
	calls := often(100, 4)
	var graphs [2]func() error
	var clocks [2]clock
	for i, r := range pair {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return medians, err
		}
		defer m.Close()
		if clocks[i], err = newClock(r.dev); err != nil {
			return medians, err
		}
		defer clocks[i].close()
		if err := errors.Join(r.Prepare(collectives.AllReduce, kernel.Float16), r.world.Barrier(ctx), halves(r, m.Addr(), small), r.settle(ctx)); err != nil {
			return medians, err
		}
		g, err := capture(r, func() error {
			for range calls {
				if err := halves(r, m.Addr(), small); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return medians, err
		}
		defer g.Close()
		graphs[i] = func() error { return g.Launch(r.stream) }
	}
	var times [2][]float64
	for range often(200, 3) {
		for i, r := range pair {
			us, err := clocks[i].time(ctx, r, r.stream, graphs[i])
			if err != nil {
				return medians, err
			}
			times[i] = append(times[i], us/float64(calls))
		}
	}
	return [2]float64{median(times[0]), median(times[1])}, nil
}

// The time of a call between two kernels that compute, and not behind its like: the kernel before
// it ends, it begins and ends, and the next one begins.
func TestCostBetweenKernels(t *testing.T) {
	n := gpusHere(t, 4)
	for _, bytes := range []int64{small, 64 << 10} {
		var with, alone slowest
		crowd(t, n, costly(), func(ctx context.Context, r *rank) error {
			m, err := r.memory(ctx, 1<<20)
			if err != nil {
				return err
			}
			p, err := newProduct(ctx, r, 1024, 256)
			if err != nil {
				return err
			}
			defer p.close()
			c, err := newClock(r.dev)
			if err != nil {
				return err
			}
			defer c.close()
			call := func() error { return halves(r, m.Addr(), bytes) }
			if err := errors.Join(r.Prepare(collectives.AllReduce, kernel.Float16), r.world.Barrier(ctx), call(), p.launch(r.stream), r.settle(ctx)); err != nil {
				return err
			}
			pairs := often(20, 2)
			var graphs [2]func() error
			for i, between := range []func() error{call, func() error { return nil }} {
				g, err := capture(r, func() error {
					for range pairs {
						if err := errors.Join(p.launch(r.stream), between()); err != nil {
							return err
						}
					}
					return p.launch(r.stream)
				})
				if err != nil {
					return err
				}
				defer g.Close()
				graphs[i] = func() error { return g.Launch(r.stream) }
			}
			var times [2][]float64
			for range often(60, 2) {
				for i := range graphs {
					us, err := c.time(ctx, r, r.stream, graphs[i])
					if err != nil {
						return err
					}
					times[i] = append(times[i], us/float64(pairs))
				}
			}
			with.add(median(times[0]))
			alone.add(median(times[1]))
			return nil
		})
		if t.Failed() || with.most == 0 {
			return
		}
		cost{Cost: "call between kernels", Ranks: n, Device: deviceOf(t), Bytes: bytes, TimeUS: with.most, AloneUS: alone.most}.keep(t)
	}
}
