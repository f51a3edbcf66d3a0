// Package scaling multiplies the input of a rank by the rank's own factor, before it is summed: the two together are
// PreMulSum. It is a pass of its own over memory of this rank, which no peer takes part in, so that the ranks' factors
// may differ, whatever algorithm performs the sum.
package scaling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Scaler multiplies on one device. One call at a time uses it.
type Scaler struct {
	device  device.Device
	carried func(kernel.DataType) (device.Kernel, error) // kernels of the job's transports; nil without any
	gpu     bool                                         // work is enqueued on streams
	modules []device.Module
	kernels [kernel.DataTypes]device.Kernel
	args    args // of the launch in progress, which allocates none
	rooms   []*Room
	out     int // rooms that are in use: the first ones
}

// New makes a scaler. Kernels and memory come with the first call that needs them.
func New(d device.Device) *Scaler {
	_, gpu := d.(device.Engine)
	return &Scaler{device: d, gpu: gpu}
}

// For makes a scaler for the device of a communicator. On one for which there are no images here, it takes the kernel that a
// transport of the job carries for the device.
func For(c *comm.Communicator) *Scaler {
	s := New(c.Device())
	s.carried = func(t kernel.DataType) (device.Kernel, error) {
		for _, k := range c.Kernels() {
			if k.Symbol == symbol && slices.Contains(k.Types, t.String()) {
				k.Layout = layout()
				return c.Load(context.Background(), k, t)
			}
		}
		return nil, nil
	}
	return s
}

// Slices are the parts of a buffer that one pass multiplies: so many elements each, at distances in bytes.
type Slices struct {
	In, Out             unsafe.Pointer
	InStride, OutStride uint64
	Number, Count       uint64
	Type                kernel.DataType
}

// Scale multiplies: at once on the host, in the order of the stream on a GPU, where a capture records it. It does not
// allocate once the type was multiplied before.
func (s *Scaler) Scale(x Slices, f Factor, stream device.Stream) error {
	if x.Count == 0 {
		return nil
	}
	if !s.gpu {
		if f.At != nil {
			f = Read(x.Type, f.At)
		}
		bytes := x.Count * uint64(x.Type.Size())
		for i := range x.Number {
			in, out := unsafe.Add(x.In, i*x.InStride), unsafe.Add(x.Out, i*x.OutStride)
			hostreduce.Scale(unsafe.Slice((*byte)(out), bytes), unsafe.Slice((*byte)(in), bytes), x.Type, f.Bits)
		}
		return nil
	}
	k, err := s.kernel(x.Type)
	if err != nil {
		return fmt.Errorf("%v: %w", kernel.PreMulSum, err)
	}
	s.args = args{
		input: uintptr(x.In), output: uintptr(x.Out), at: uintptr(f.At), factor: f.Bits,
		count: x.Count, inputStride: x.InStride, outputStride: x.OutStride, slices: x.Number,
	}
	return launch(k, stream, s.blocks(&x), &s.args)
}

// blocks is as many as have a word for each thread, and no more than the device holds at once: memory is the limit, and
// four blocks of a multiprocessor keep it busy.
func (s *Scaler) blocks(x *Slices) uint32 {
	words := (x.Count*uint64(x.Type.Size()) + 15) / 16
	return uint32(max(1, min((words+threads-1)/threads, uint64(4*s.device.Info().SMs))))
}

func (s *Scaler) kernel(t kernel.DataType) (device.Kernel, error) {
	if s.kernels[t] == nil {
		if err := s.load(t, false); err != nil {
			return nil, err
		}
	}
	return s.kernels[t], nil
}

func (s *Scaler) load(t kernel.DataType, onlyAssembled bool) error {
	m, k, err := load(s.device, t, onlyAssembled)
	if err == nil && m != nil {
		s.modules, s.kernels[t] = append(s.modules, m), k
	}
	if errors.Is(err, framework.ErrUnsupported) && s.carried != nil && !onlyAssembled {
		if k, carried := s.carried(t); k != nil || carried != nil {
			s.kernels[t] = k
			return carried
		}
	}
	return err
}

// Prepare loads the kernel for a type. A device for which there is none is no error: only a PreMulSum needs it.
func (s *Scaler) Prepare(t kernel.DataType) error {
	if !s.gpu {
		return nil
	}
	if _, err := s.kernel(t); !errors.Is(err, framework.ErrUnsupported) {
		return err
	}
	return nil
}

// Preload loads the kernels of all types that the device has machine code of, so that none is loaded beside kernels that
// wait. The others are left to the first call that needs them.
func (s *Scaler) Preload() error {
	if _, ok := s.device.(device.Assembled); !ok || !s.gpu {
		return nil
	}
	for t := range kernel.DataType(kernel.DataTypes) {
		if err := s.load(t, true); err != nil && !errors.Is(err, framework.ErrUnsupported) {
			return fmt.Errorf("preload: %w", err)
		}
	}
	return nil
}

// Close releases everything. Nothing may be in progress.
func (s *Scaler) Close() error {
	var all []error
	for _, r := range s.rooms {
		all = append(all, r.close())
	}
	for _, m := range s.modules {
		all = append(all, m.Close())
	}
	s.rooms, s.modules = nil, nil
	return errors.Join(all...)
}
