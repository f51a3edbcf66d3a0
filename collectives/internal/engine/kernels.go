package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernel is a kernel that a transport carries, and what of it is loaded.
type Kernel struct {
	comm.Kernel
	Kind   collective.Kind // SendRecv for messages; 0: a step of an algorithm
	loaded [kernel.DataTypes]device.Kernel
}

// Kernels are those of all transports.
type Kernels struct {
	Collectives []*Kernel
	Messages    map[string]*Kernel // by name
	Steps       map[string]*Kernel // between copies, and between hosts, by name
	Unplaced    []Unplaced         // kernels of collectives that are for fewer ranks
}

// Discover lists the kernels for so many ranks that need no channels but those which engines set up. Of two
// kernels with one name the transport that is preferred wins.
func Discover(kernels []comm.Kernel, ranks int) Kernels {
	o := Kernels{Messages: map[string]*Kernel{}, Steps: map[string]*Kernel{}}
	for _, k := range kernels {
		k.Layout = kernelargs.Layout()
		if k.Collective == "steps" && (k.Algorithm == "exchange" || k.Algorithm == "sendrecv") {
			k.Layout = kernelargs.ExchangeLayout()
		}
		if k.MaxRanks != 0 && k.MaxRanks < ranks {
			if kind, err := collective.Parse(k.Collective); err == nil {
				o.Unplaced = append(o.Unplaced, Unplaced{kind, k.Algorithm, fmt.Errorf("%w: its kernel is for at most %d ranks that share memory, and there are %d", framework.ErrUnsupported, k.MaxRanks, ranks)})
			}
			continue
		}
		if slices.Contains(k.Channels, framework.KindPort) {
			continue
		}
		switch k.Collective {
		case "transfers":
			if o.Messages[k.Algorithm] == nil {
				o.Messages[k.Algorithm] = &Kernel{Kernel: k, Kind: collective.SendRecv}
			}
			continue
		case "steps":
			if o.Steps[k.Algorithm] == nil {
				o.Steps[k.Algorithm] = &Kernel{Kernel: k}
			}
			continue
		}
		kind, err := collective.Parse(k.Collective)
		known := func(other *Kernel) bool { return other.Kind == kind && other.Algorithm == k.Algorithm }
		if err != nil || slices.ContainsFunc(o.Collectives, known) {
			continue
		}
		o.Collectives = append(o.Collectives, &Kernel{Kernel: k, Kind: kind})
	}
	return o
}

// For returns what is loaded for elements of a type, or nil.
func (k *Kernel) For(t kernel.DataType) device.Kernel { return k.loaded[t] }

// Load makes the kernel callable for elements of a type.
func (k *Kernel) Load(ctx context.Context, c *comm.Communicator, t kernel.DataType) (device.Kernel, error) {
	if k.loaded[t] == nil {
		loaded, err := c.Load(ctx, k.Kernel, t)
		if err != nil {
			return nil, err
		}
		k.keep(t, loaded)
	}
	return k.loaded[t], nil
}

// keep remembers the kernel for a type, and for all where bytes are bytes.
func (k *Kernel) keep(t kernel.DataType, loaded device.Kernel) {
	k.loaded[t] = loaded
	if k.Kind == 0 || k.Kind.Reduces() {
		return
	}
	for i := range k.loaded {
		k.loaded[i] = loaded
	}
}

// leastListBytes is the size of the first memory for lists: 2,730 messages.
const leastListBytes = 64 << 10

// Lists is memory for lists of messages. Memory that was given out before stays until the engine is closed:
// kernels that are still to run, and captured graphs, read it. It may be made while a stream is captured.
type Lists []device.Memory

// Room returns memory for a list of so many messages.
func (l *Lists) Room(d device.Device, messages int) (device.Memory, error) {
	bytes := uint64(messages) * kernelargs.TransferBytes
	if n := len(*l); n > 0 && (*l)[n-1].Bytes() >= bytes {
		return (*l)[n-1], nil
	}
	m, err := d.Alloc(max(leastListBytes, 2*bytes))
	if err != nil {
		return nil, fmt.Errorf("memory for a group of %d messages: %w", messages, err)
	}
	*l = append(*l, m)
	return m, nil
}
