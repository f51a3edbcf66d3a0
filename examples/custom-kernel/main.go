// Command custom-kernel runs a kernel of its own on the channels of a job: every
// rank adds what the rank before it has. README.md says how to build the kernel.
//
//	mscclpp-run -n 4 custom-kernel
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

const count = 1000

// args mirrors NeighborArgs in kernel/neighbor.h.
type args struct {
	Next, Previous kernel.MemoryChannelHandle
	Count          uint64
	Inbox, Result  uint64
}

func main() {
	dir := flag.String("kernels", "custom-kernel.kernels", "folder of the kernel's images")
	flag.Parse()
	ctx := context.Background()
	job, err := mscclpp.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer job.Close()
	if d := job.Device().Info().Device; d != framework.Host {
		log.Fatalf("device %v: this program looks at the kernel's memory itself, and so runs on the host; examples/fused runs on GPUs", d)
	}
	images, err := image.Open(os.DirFS(*dir))
	if err != nil {
		log.Fatal(err)
	}
	sums, err := addNeighbor(ctx, job.World, images)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d: first %g, last %g\n", job.Rank(), sums[0], sums[count-1])
}

// addNeighbor runs the kernel once. Rank r has the values 1000r, 1000r+1, ….
func addNeighbor(ctx context.Context, c *comm.Communicator, images *image.Set) ([]float32, error) {
	data, err := pick(c.Device().Info().Archs, images)
	if err != nil {
		return nil, err
	}
	module, err := c.LoadImage(data)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	kernel, err := module.Kernel("add_neighbor")
	if err != nil {
		return nil, err
	}

	const bytes = count * 4
	memory, err := c.Alloc(3 * bytes)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	shared, err := c.Exchange(ctx, memory)
	if err != nil {
		return nil, err
	}
	channels, err := c.MemoryChannels(ctx, shared)
	if err != nil {
		return nil, err
	}
	values := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(device.Bytes(memory)))), 3*count)
	for i := range count {
		values[i] = float32(1000*c.Rank() + i)
	}
	a := args{
		Next:     channels[(c.Rank()+1)%c.Size()],
		Previous: channels[(c.Rank()+c.Size()-1)%c.Size()],
		Count:    count, Inbox: bytes, Result: 2 * bytes,
	}
	if err := kernel.Launch(device.Launch{Grid: 1, Block: 256}, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		return nil, err
	}
	// A kernel that has left a wait is reported here, with the rank at fault.
	if err := c.Check(); err != nil {
		return nil, err
	}
	sums := slices.Clone(values[2*count:])
	return sums, c.Barrier(ctx) // no rank frees memory that a neighbor may still write
}

// pick reads the image for the best architecture that the device knows.
func pick(archs []string, images *image.Set) ([]byte, error) {
	for _, arch := range archs {
		for _, info := range images.Infos() {
			if info.Arch == arch {
				return images.Read(info.ID)
			}
		}
	}
	return nil, fmt.Errorf("no image for %v: build one with mscclpp-kernels", archs)
}
