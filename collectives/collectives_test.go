package collectives_test

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

var reference collectivetest.Reference

type trial = collectivetest.Trial

// buffers are two pieces of memory.
type buffers struct{ in, out []byte }

func (b buffers) of(c *collectives.Comm) collectivetest.Rig {
	return collectivetest.OnHost(c, b.in, b.out)
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

var counts = []int{1, 2, 3, 5, 16, 63, 64, 65, 257, 1000, 4097, 20011}

// Every algorithm of every collective, with types, reductions, sizes, alignments and
// placements that vary together: each value of each meets each algorithm.
func TestResults(t *testing.T) {
	const most = 20011 + 8
	for _, n := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			o := collectives.Options{Scratch: uint64(n) * 96 << 10, Signatures: collectives.SignaturesAlways}
			job(t, n, o, func(ctx context.Context, c *collectives.Comm) error {
				own, err := c.Communicator().Alloc(uint64(2 * (most*8*n + 4096)))
				if err != nil {
					return err
				}
				defer own.Close()
				if _, err := c.Communicator().Exchange(ctx, own); err != nil {
					return err
				}
				half := int(own.Bytes() / 2)
				memory := unsafe.Slice((*byte)(address(own.Addr())), own.Bytes())
				registered := buffers{memory[:half], memory[half:]}
				heap := buffers{make([]byte, half), make([]byte, half)}
				i := 0
				for _, kind := range collectivetest.Kinds() {
					for _, algorithm := range append(c.Algorithms(kind), "") {
						for range max(4, 24/n) {
							x := trial{
								Kind: kind, Algorithm: algorithm, Count: counts[i%len(counts)], Type: kernel.DataType(i % kernel.DataTypes),
								Op: kernel.Op(i / 2 % kernel.Ops), Root: i % n, InPlace: i/3%2 == 0, Shift: i / 5 % 4,
							}
							if x.Count*n > most*2 {
								x.Count /= 8
							}
							i += 7
							b := heap
							if algorithm == "zerocopy" || algorithm == "" && i%3 == 0 {
								b = registered
							}
							if (algorithm == "zerocopy" || algorithm == "pull") && kind == collectives.AllToAll {
								x.InPlace = false
							}
							if algorithm == "zerocopy" && kind != collectives.AllReduce && x.Op == kernel.PreMulSum {
								x.Op = kernel.Sum // products are not in exchanged memory
							}
							if err := x.Run(b.of(c), uint64(i)); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

func address(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// Data movement changes no bit, whatever the pattern.
func TestEveryPatternIsMoved(t *testing.T) {
	job(t, 3, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		own, err := c.Communicator().Alloc(1 << 20)
		if err != nil {
			return err
		}
		defer own.Close()
		if _, err := c.Communicator().Exchange(ctx, own); err != nil {
			return err
		}
		memory := unsafe.Slice((*byte)(address(own.Addr())), own.Bytes())
		moved, err := collectivetest.EveryPattern(c, collectivetest.OnHost(c, memory[:1<<19], memory[1<<19:]))
		if err == nil && moved < 15 {
			err = fmt.Errorf("%d algorithms moved the patterns, expected at least 15", moved)
		}
		return err
	})
}
