package collectives_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Two ranks try pull and stages once, decide alike, and leave rows of the caller alone.
func TestTwoRanksTryBothAlgorithms(t *testing.T) {
	const count = 64 << 10
	large := collectives.Request{Collective: collectives.AllReduce, Bytes: 4 * count, Count: count, Type: kernel.Float32, Op: kernel.Sum}
	want := map[string]bool{"pull": true, "twophase_chunk": true}
	var mu sync.Mutex
	chosen := map[string]int{}
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		if name, err := c.Choice(large, ""); name != "pull" || err != nil {
			return fmt.Errorf("before the first call: %q, %v, expected pull", name, err)
		}
		b := make([]float32, count)
		p := unsafe.Pointer(unsafe.SliceData(b))
		for i := range b {
			b[i] = float32(i%7 + c.Rank())
		}
		if err := c.AllReduce(p, p, count, kernel.Float32, kernel.Sum, nil); err != nil {
			return err
		}
		for i := range b {
			if b[i] != float32(2*(i%7)+1) {
				return fmt.Errorf("element %d of the call that tried is %v, expected %v", i, b[i], 2*(i%7)+1)
			}
		}
		name, err := c.Choice(large, "")
		if err != nil || !want[name] {
			return fmt.Errorf("after the first call: %q, %v, expected pull or twophase_chunk", name, err)
		}
		mu.Lock()
		chosen[name]++
		mu.Unlock()
		if err := c.UseTable([]collectives.Row{{Collective: collectives.AllReduce, Algorithm: "pull"}}); err != nil {
			return err
		}
		if name, err := c.Choice(large, ""); name != "pull" || err != nil {
			return fmt.Errorf("with a row of the caller: %q, %v, expected pull", name, err)
		}
		return nil
	})
	if len(chosen) != 1 {
		t.Errorf("the ranks chose %v, expected all of them the same", chosen)
	}
}
