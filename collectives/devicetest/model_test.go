package devicetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Ranks whose GPUs are joined in a way without measurements choose by the model, and all alike: results are
// right at sizes on both sides of its thresholds, and a dump says what it went by. One rank's word
// counts for all.
func TestChoicesOfTheModel(t *testing.T) {
	slow := collectives.Options{NoLines: true, Links: collectives.Links{Known: true, PCIe: 15.75}}
	job(t, 3, slow, func(ctx context.Context, r *rank) error {
		var text bytes.Buffer
		r.Dump(&text)
		if !strings.Contains(text.String(), "algorithms are chosen by a model of 3 ranks over PCIe: latency 1.30 µs, stores 13 GB/s") {
			return fmt.Errorf("dump: %s", text.String())
		}
		const half = 2 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		used := map[string]bool{}
		for i, kind := range []collectives.Collective{collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Reduce, collectives.Broadcast, collectives.AllToAll} {
			for j, count := range []int{5, 3_000, 100_000} {
				x := trial{Kind: kind, Count: count, Type: kernel.Float32, Op: kernel.Sum, Root: 1, Graph: (i+j)%2 == 0}
				request := x.Request(r.Size())
				request.Registered = true
				name, err := r.Choice(request, "")
				if err != nil {
					return fmt.Errorf("%v: %w", x, err)
				}
				used[name] = true
				if _, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(10*i+j)); err != nil {
					return fmt.Errorf("%v by %s: %w", x, name, err)
				}
			}
		}
		for name := range used {
			if strings.HasSuffix(name, "ll128") {
				return fmt.Errorf("chosen were %v: no lines were allowed", used)
			}
		}
		if len(used) < 3 {
			return fmt.Errorf("chosen were %v: expected at least three ways for sizes so different", used)
		}
		return nil
	})
}

// Where links are unknown, or the links are those that were measured, the rows that were measured count,
// unless a rank says otherwise.
func TestRowsThatWereMeasured(t *testing.T) {
	job(t, 2, collectives.Options{}, func(_ context.Context, r *rank) error {
		var text bytes.Buffer
		r.Dump(&text)
		major, _ := r.dev.Capability()
		if want := "rows measured on H200s, for 2 ranks"; major == 9 && !strings.Contains(text.String(), want) {
			return fmt.Errorf("dump: %s: want %q", text.String(), want)
		}
		return nil
	})
}
