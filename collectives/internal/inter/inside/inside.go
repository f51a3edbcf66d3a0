// Package inside performs the part of collectives in two levels that stays on a host.
package inside

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Call is one call of the ranks of a host. Root is an index on the host.
type Call struct {
	Kind   collective.Kind
	In     unsafe.Pointer
	Out    unsafe.Pointer
	Count  int
	Type   kernel.DataType
	Op     kernel.Op
	Root   int
	Stream device.Stream
	Scale  float64
}

// Ranks are those of a host, which share memory. Package collectives implements it by itself.
type Ranks interface {
	// Perform performs a call.
	Perform(Call) error

	// Messages performs a group of messages; peers are indices on the host.
	Messages(s device.Stream, list []kernelargs.Transfer) error

	// Prepare loads what calls may need.
	Prepare(k collective.Kind, t kernel.DataType) error

	Close() error
}

// Maker makes collectives of the ranks of a host, with so many blocks of a launch at most; 0: as many as without
// hosts.
type Maker func(ctx context.Context, group *comm.Communicator, blocks int) (Ranks, error)

// Host is the ranks of this rank's host.
type Host struct {
	*placement.Placement
	World  *comm.Communicator // on whose device the kernels run
	Blocks int                // see Maker

	make   Maker
	ranks  Ranks
	group  *comm.Communicator
	closed chan struct{}
}

// New prepares the ranks of a host.
func New(world *comm.Communicator, p *placement.Placement, make_ Maker) *Host {
	return &Host{Placement: p, World: world, make: make_, closed: make(chan struct{})}
}

// Open makes the communicator of the host. It is collective over all hosts. On GPUs, which streams stands for, what
// kernels have met is known to that communicator alone; on the host a call returns it.
func (h *Host) Open(ctx context.Context, streams bool) error {
	if h.Most == 1 {
		return nil
	}
	var err error
	if h.group, err = h.World.Split(ctx, h.Placement.Host, h.Index); err != nil {
		return fmt.Errorf("ranks of the host: %w", err)
	}
	if h.ranks, err = h.make(ctx, h.group, h.Blocks); err != nil {
		return fmt.Errorf("ranks of the host: %w", err)
	}
	if streams {
		go lifetime.Bind(h.World, h.group, h.closed, h.named)
		return nil
	}
	go func() { // a wait inside ends with what the host waits for
		select {
		case <-h.World.Done():
			h.group.Abort(h.World.Err())
		case <-h.closed:
		}
	}()
	return nil
}

// Alone reports whether there is nothing inside: each rank has a host of its own.
func (h *Host) Alone() bool { return h.ranks == nil }

// Group is the communicator of the host, or nil.
func (h *Host) Group() *comm.Communicator { return h.group }

// Perform performs a call.
func (h *Host) Perform(c Call) error { return h.named(h.ranks.Perform(c)) }

// Messages performs a group of messages; peers are indices on the host.
func (h *Host) Messages(s device.Stream, list []kernelargs.Transfer) error {
	return h.named(h.ranks.Messages(s, list))
}

// Prepare loads what calls may need.
func (h *Host) Prepare(k collective.Kind, t kernel.DataType) error {
	if h.ranks == nil {
		return nil
	}
	return h.ranks.Prepare(k, t)
}

// Close releases everything.
func (h *Host) Close() error {
	close(h.closed)
	var all []error
	if h.ranks != nil {
		all = append(all, h.ranks.Close())
	}
	if h.group != nil {
		all = append(all, h.group.Close())
	}
	return errors.Join(all...)
}

// named says of an error inside the host which rank of the job it is about. The ranks of
// the host may have heard of a failure on another one before the job has: its number
// means nothing among them, so the job is given time to hear of it as well.
func (h *Host) named(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, framework.ErrPeer) && framework.PeerOf(err) == framework.NoPeer {
		select {
		case <-h.World.Done():
		case <-time.After(lifetime.Patience):
		}
	}
	if cause := h.World.Err(); cause != nil {
		return cause // the same, or what it comes from
	}
	if peer := framework.PeerOf(err); peer >= 0 && peer < h.Size() {
		return &framework.Error{Op: "ranks of the host", Peer: h.Hosts[h.Placement.Host][peer], Err: err}
	}
	return err
}
