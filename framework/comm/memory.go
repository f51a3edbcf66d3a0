package comm

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is local memory that can take part in channels. It is registered with a
// transport when a link of that transport first needs it.
type Memory = memory.Memory

// allocator is what makes memory of a device part of a communicator.
type allocator struct {
	name string
	dev  device.Device
	life *life.Life
}

// Alloc returns zeroed device memory that peers can be given access to. It is freed by
// its Close, or by that of the communicator.
func (c *allocator) Alloc(bytes uint64) (*Memory, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, fmt.Errorf("%w: comm %s: allocation of 0 bytes", framework.ErrInvalid, c.name)
	}
	inner, err := c.dev.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("comm %s: %w", c.name, err)
	}
	m := memory.New(inner, true)
	if err := memory.Begin(m, c.life); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return m, nil
}

// Register offers memory that the device allocated elsewhere. Closing the result does
// not free the memory. It has to be closed before the memory is freed.
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
