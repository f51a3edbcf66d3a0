package collectives

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// courier performs collectives of ranks on GPUs that do not all share memory. What has
// to cross a network goes through memory of the host that the GPU maps, and is carried
// by the host, over port channels of a twin of the communicator: so it takes whatever
// transport the host can use, and the plugins need to know nothing of GPUs.
//
// A call enqueues all of its work on the caller's stream and returns: kernels of the
// ranks of a host, copies to and from the host, and in between the two sides of a gate.
type courier struct {
	world  *comm.Communicator
	ports  *ports
	device streamgate.Device

	host    device.Device
	twin    *comm.Communicator
	gate    *streamgate.Gate
	stage   streamgate.Mapped
	regions [2 * regions]region
	turns   [2]int
	rooms   []*room       // for groups of messages
	scratch device.Memory // of the device, where there are two levels
	closed  chan struct{}

	mark device.Mark // behind the last call
	any  bool        // there was one
	last device.Stream
}

// The memory of the host that everything passes through: regions for what is sent, and
// for results, each used by turns. A call has up to three results under way.
const (
	regions = 3

	forSending = 0
	forResults = 1
)

// region is a part of that memory.
type region struct {
	bytes []byte  // as the host sees it
	addr  uintptr // as the device does
	last  uint64  // work that reads or writes it
}

// newCourier is nil where streams cannot wait for the host.
func newCourier(c *comm.Communicator) *courier {
	d, ok := c.Device().(streamgate.Device)
	if !ok {
		return nil
	}
	return &courier{world: c, device: d, closed: make(chan struct{})}
}

// start makes the twin and the memory. It is collective.
func (k *courier) start(ctx context.Context) (err error) {
	if k == nil {
		return nil
	}
	if k.host, err = host.Open(); err != nil {
		return err
	}
	if k.twin, err = k.world.Twin(ctx, k.host); err != nil {
		return err
	}
	k.ports.Comm = k.twin
	go lifetime.Bind(k.world, k.twin, k.closed, func(err error) error { return err })
	if k.mark, err = k.device.NewMark(); err != nil {
		return err
	}
	if k.stage, err = streamgate.Map(k.device, k.host, uint64(len(k.regions))*crosshost.RegionBytes); err != nil {
		return fmt.Errorf("memory between device and host: %w", err)
	}
	all := device.Bytes(k.stage.Host)
	for i := range k.regions {
		k.regions[i] = region{bytes: all[i*crosshost.RegionBytes:][:crosshost.RegionBytes], addr: k.stage.Device.Addr() + uintptr(i*crosshost.RegionBytes)}
	}
	k.gate, err = streamgate.Open(k.device, k.host, k.world)
	return err
}

// close is for when the streams with calls on them have ended. What comes before the
// ports, which the thread works with.
func (k *courier) close() error {
	if k == nil {
		return nil
	}
	all := []error{k.gate.Close(), k.stage.Close()}
	if k.mark != nil {
		all = append(all, k.mark.Close())
	}
	if k.scratch != nil {
		all = append(all, k.scratch.Close())
	}
	for _, r := range k.rooms {
		all = append(all, r.Close())
	}
	return errors.Join(all...)
}

// leave is for when nothing uses the twin any more.
func (k *courier) leave() error {
	if k == nil {
		return nil
	}
	close(k.closed)
	var all []error
	if k.twin != nil {
		all = append(all, k.twin.Close())
	}
	if k.host != nil {
		all = append(all, k.host.Close())
	}
	return errors.Join(all...)
}

// trip is one call that is being enqueued, until something fails.
type trip struct {
	*courier
	call   *Call
	stream device.Stream
	sign   signature
	err    error

	direct   bool // the host takes no part
	captured bool // the stream is, into a graph
}

// enqueue enqueues one call of all ranks.
func (p *ports) enqueue(c *Call, algorithm string, f func(t *trip)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.begin(c, algorithm)
	return t.perform(func() {
		p.calls++
		t.greet()
		f(t)
	})
}

func (p *ports) begin(c *Call, algorithm string) *trip {
	return &trip{courier: p.courier, call: c, stream: c.Stream, sign: signature{
		Sequence: p.calls + 1, Count: c.Count, Collective: uint32(c.Collective), Algorithm: nameID(algorithm),
		Type: uint32(c.Type), Op: uint32(c.Op), Root: uint32(c.Root),
	}}
}

// perform enqueues what f says; p.mu is held. Work that fails half-way cannot be taken
// back, and the other ranks would wait for it. What was to be captured has not begun.
func (t *trip) perform(f func()) error {
	if err := t.world.Check(); err != nil {
		return err
	}
	if !t.direct {
		if err := t.eager(); err != nil {
			return err
		}
	}
	return t.ports.run(func(context.Context) error {
		t.follow()
		f()
		if t.err == nil && !t.captured {
			t.err = t.mark.Record(t.stream)
		}
		if t.err != nil && !t.captured {
			t.world.Abort(t.err)
		}
		return t.err
	})
}

// eager refuses streams that are captured: the host cannot know how often, and when, a
// graph is launched.
func (t *trip) eager() error {
	state, err := t.device.Query(t.stream)
	if err == nil && state == device.StreamCapturing {
		err = fmt.Errorf("%w: collectives over hosts in which the host takes part cannot be captured into a graph: expected a stream that is not, or algorithm %s, behind a first call outside of a capture", framework.ErrUnsupported, hierarchicalDirect)
	}
	return err
}

// follow puts the call behind the one before it, whatever stream that was on: they use
// the same memory, and the host performs them in order.
func (t *trip) follow() {
	k := t.courier
	if t.captured { // when a graph is launched, and where, is the program's affair
		return
	}
	if k.any { // also on the same stream, by its number: that may be one made since
		t.err = k.mark.Wait(t.stream)
	}
	k.any, k.last = true, t.stream
}

// region is room on the host for a piece. The stream waits until the host has done with
// what was in it before.
func (t *trip) region(purpose int) *region {
	k := t.courier
	r := &k.regions[purpose*regions+k.turns[purpose]%regions]
	k.turns[purpose]++
	t.await(r.last)
	return r
}

func (t *trip) copy(to, from uintptr, bytes uint64) {
	if t.err == nil && bytes > 0 && to != from {
		t.err = t.device.Copy(t.stream, to, from, bytes)
	}
}

// tell has the host do something with regions when the stream has come here.
func (t *trip) tell(do func(ctx context.Context) error, used ...*region) (number uint64) {
	if t.err != nil {
		return 0
	}
	sign, p := t.sign, t.ports
	number, t.err = t.gate.Enqueue(t.stream, func(ctx context.Context) error {
		p.Call = sign
		return do(ctx)
	})
	for _, r := range used {
		r.last = number
	}
	return number
}

func (t *trip) await(number uint64) {
	if t.err == nil {
		t.err = t.gate.Await(t.stream, number)
	}
}

func address(p unsafe.Pointer) uintptr { return uintptr(p) }
