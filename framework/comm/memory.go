package comm

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is local memory that can take part in channels. It is registered with a transport when a link of that transport first needs it.
type Memory = memory.Memory

// allocator is what makes memory of a device part of a communicator.
type allocator struct {
	name string
	dev  device.Device
	life *life.Life
}

// Alloc returns zeroed device memory that peers can be given access to, and that kernels may poll. It is freed by its Close, or by
// that of the communicator.
func (c *allocator) Alloc(bytes uint64) (*Memory, error) { return c.alloc(bytes, device.Device.Alloc) }

// AllocData is Alloc for data, as buffers of collectives: no kernel polls it, and what peers write there is read by kernels that
// begin later. Caches of the device keep it, which on AMD's GPUs they do not with memory of Alloc.
func (c *allocator) AllocData(bytes uint64) (*Memory, error) { return c.alloc(bytes, device.AllocData) }

func (c *allocator) alloc(bytes uint64, of func(device.Device, uint64) (device.Memory, error)) (*Memory, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, fmt.Errorf("%w: comm %s: allocation of 0 bytes", framework.ErrInvalid, c.name)
	}
	inner, err := of(c.dev, bytes)
	if err != nil {
		return nil, fmt.Errorf("comm %s: %w", c.name, err)
	}
	m := memory.New(inner, true)
	if err := memory.Begin(m, c.life); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return m, nil
}

// Register offers memory that the device allocated elsewhere. The result is closed before that memory is freed, and does not free it.
func (c *allocator) Register(inner device.Memory) (*Memory, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	if inner == nil {
		return nil, fmt.Errorf("%w: comm %s: register: no memory", framework.ErrInvalid, c.name)
	}
	m := memory.New(inner, false)
	if err := memory.Begin(m, c.life); err != nil {
		return nil, err
	}
	return m, nil
}
