package devicetest

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// The kernels of examples/fused, which multiply by tensor cores.
const (
	productPacked = "fused" // beside the test program
	productTree   = "../../examples/fused/image"
	productSpec   = "../../examples/fused/kernel/kernels.json"
)

// product is a multiplication of square matrices of f16 on one GPU: what a program
// computes while it communicates.
type product struct {
	r      *rank
	kernel device.Kernel
	args   productArgs
	memory []*comm.Memory
	tiles  uint32
}

// productArgs mirrors FusedArgs in examples/fused/kernel/fused.h. There are no
// peers.
type productArgs struct {
	A, B, C, Done     uintptr
	First             uint64
	Rows, N, K, Peers uint32
	Tiles, Ready      [7]kernel.MemoryChannelHandle
}

// newProduct makes one of n x n times k. Its numbers do not matter, but are none that
// would be faster to multiply than others.
func newProduct(ctx context.Context, r *rank, n, k int) (p *product, err error) {
	const tile = 128
	if imageFolder != "" {
		n, k = tile, 32 // without tensor cores
	}
	p = &product{r: r, tiles: uint32(n / tile * (n / tile))}
	code, err := productImage(r)
	if err != nil {
		return nil, err
	}
	m, err := r.world.LoadImage(code)
	if err != nil {
		return nil, err
	}
	r.modules = append(r.modules, m)
	if p.kernel, err = m.Kernel("fused_gemm"); err != nil {
		return nil, err
	}
	p.args = productArgs{Rows: uint32(n), N: uint32(n), K: uint32(k)}
	for _, x := range []struct {
		to    *uintptr
		bytes int
	}{{&p.args.A, n * k * 2}, {&p.args.B, n * k * 2}, {&p.args.C, n * n * 2}, {&p.args.Done, n / tile * 4}} {
		memory, err := r.world.Alloc(uint64(x.bytes))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.memory = append(p.memory, memory)
		*x.to = memory.Addr()
	}
	numbers := make([]byte, n*k*2)
	state := uint32(r.Rank() + 1)
	for i := 0; i < len(numbers); i += 2 {
		state = state*1664525 + 1013904223
		numbers[i], numbers[i+1] = byte(state>>24), 0x30|byte(state>>16&0x83) // of both signs, near 1
	}
	if err := errors.Join(r.dev.WriteAt(numbers, p.args.A), r.dev.WriteAt(numbers, p.args.B)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, ctx.Err()
}

func productImage(r *rank) ([]byte, error) {
	dir, err := folders(productPacked, productTree)
	if err != nil {
		return nil, err
	}
	set, err := deviceimage.Open(dir)
	if err != nil {
		return nil, err
	}
	for _, arch := range r.dev.Info().Archs {
		for _, info := range set.Infos() {
			if info.Arch == arch {
				return set.Read(info.ID)
			}
		}
	}
	return nil, fmt.Errorf("no multiplication for %v", r.dev.Info().Archs)
}

func (p *product) launch(s device.Stream) error {
	return p.kernel.Launch(device.Launch{Grid: p.tiles, Block: 256, Stream: s}, unsafe.Pointer(&p.args), unsafe.Sizeof(p.args))
}

func (p *product) close() error {
	var all []error
	for _, m := range p.memory {
		all = append(all, m.Close())
	}
	p.memory = nil
	return errors.Join(all...)
}
