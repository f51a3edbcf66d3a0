package nvls

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// registration is local memory that can be bound.
type registration struct{ offset, bytes uint64 }

func (registration) close() {}

// Register takes memory of a CUDA device behind a handle of the driver that has a descriptor.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := t.register(ctx, seg)
	if err != nil {
		return framework.Registration{}, failure("register", err)
	}
	return r, nil
}

func (t *Transport) register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if seg.Device.Type != deviceType {
		return none, fmt.Errorf("%w: memory of %s: expected memory of a CUDA device", framework.ErrUnsupported, seg.Device)
	}
	if err := checkRange(seg.Offset, seg.Bytes); err != nil {
		return none, err
	}
	if !slices.ContainsFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareVMM && s.FD != nil }) {
		return none, fmt.Errorf("%w: memory without a share of kind %s: expected memory from Alloc, since the driver's older memory and that of the host cannot be bound",
			framework.ErrUnsupported, framework.ShareVMM)
	}
	k := key{seg.Offset, seg.Bytes}
	return framework.Registration{ID: t.made.Keep(registration(k)), Key: framework.Parcel{Data: k.append(nil)}}, nil
}

// Attach returns the steps by which a member makes the window, in the order in which the hardware needs them. Each barrier
// is also where members hear of a step that has failed:
//
//	import       the object that the root made; the root has it
//	add          this rank's GPU
//	barrier      the driver waits in bind and map until all are added, and ends for nobody
//	bind         this rank's memory
//	barrier      a window with a hole is used by nobody
//	map          the window becomes an address
//
// Behind the last step the ranks meet once more, so that nobody stores to a window that another one has not got.
func (t *Transport) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := t.attach(ctx, conn, local, keys)
	if err != nil {
		return framework.Attachment{}, failure("attach", err)
	}
	return a, nil
}

func (t *Transport) attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	var none framework.Attachment
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c, err := ids.Find[*connection](&t.made, conn, "connection")
	if err != nil {
		return none, err
	}
	if local == 0 {
		return none, fmt.Errorf("%w: a switch group needs the rank's own registration", framework.ErrInvalid)
	}
	own, err := ids.Find[registration](&t.made, local, "registration")
	if err != nil {
		return none, err
	}
	if len(keys) != len(c.peers) {
		return none, fmt.Errorf("%w: %d keys for %d peers", framework.ErrInvalid, len(keys), len(c.peers))
	}
	if own.bytes < c.config.Bytes {
		return none, fmt.Errorf("%w: own memory of %d bytes: expected at least the window's %d", framework.ErrInvalid, own.bytes, c.config.Bytes)
	}
	for i, k := range keys {
		if err := checkKey(k, c.config.Bytes); err != nil {
			return none, fault.Of(c.peers[i], err)
		}
	}
	return c.recipe(own)
}

func (c *connection) recipe(own registration) (framework.Attachment, error) {
	window := framework.Mapping{Role: framework.RoleMulticast, Peer: -1, Bytes: c.config.Bytes}
	barrier := framework.Step{Op: framework.StepBarrier}
	var steps []framework.Step
	if !c.config.Root() {
		object, err := c.object.Dup()
		if err != nil {
			return framework.Attachment{}, err
		}
		window.Shares = []framework.Share{object}
		steps = append(steps, framework.Step{Op: framework.StepImport})
	}
	return framework.Attachment{Mappings: []framework.Mapping{window}, Steps: append(steps,
		framework.Step{Op: framework.StepAdd}, barrier,
		framework.Step{Op: framework.StepBind, Slot: slices.Index(c.config.Ranks, c.config.Rank), Offset: own.offset, Bytes: c.config.Bytes}, barrier,
		framework.Step{Op: framework.StepMap},
	)}, nil
}

// checkKey checks a peer's memory: it is bound by that peer, so its size is all that counts here.
func checkKey(p framework.Parcel, bytes uint64) error {
	k, err := decodeKey(p.Data)
	if err != nil {
		return err
	}
	if len(p.Shares) != 0 || k.bytes < bytes {
		return fmt.Errorf("%w: key of %d bytes with %d shares: expected at least the window's %d bytes, and no share", framework.ErrPeer, k.bytes, len(p.Shares), bytes)
	}
	return nil
}
