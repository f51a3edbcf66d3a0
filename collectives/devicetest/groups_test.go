package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// member is a rank of a communicator that has a stream of its own on the rank's device.
type member struct {
	*collectives.Comm
	world  *comm.Communicator
	stream device.Stream
	base   uintptr // of its memory
}

// slot is the place of one buffer in it.
const slot = 32 << 10

// sum enqueues call number i: an out-of-place sum of its own size, in buffers of its own.
func (m *member) sum(dev piece, x trial, i int) error {
	in := piece{dev.dev, m.base + uintptr(2*i*slot)}
	if err := in.Write(x.Inputs(m.Size(), m.seed(i))[m.Rank()], 0); err != nil {
		return err
	}
	return x.Call(m.Comm, in.Pointer(0), in.Pointer(slot), m.stream)
}

// seed makes the data of communicators and calls differ, and that of halves be alike.
func (m *member) seed(i int) uint64 { return uint64(m.Size()*1000 + i) }

func (m *member) check(dev piece, x trial, i int) error {
	want := x.Expect(m.Rank(), x.Inputs(m.Size(), m.seed(i)))
	got := make([]byte, len(want))
	if err := dev.dev.ReadAt(got, m.base+uintptr((2*i+1)*slot)); err != nil {
		return err
	}
	if n := reference.Wrong(got, want, x.Type, x.Op, m.Size()); n != 0 {
		return fmt.Errorf("call %d of %d ranks: %v: %d wrong elements", i, m.Size(), x, n)
	}
	return nil
}

// part is the rank's place in a part of the job, with collectives and a stream.
func part(ctx context.Context, r *rank, color int, o collectives.Options, size uint64) (m *member, err error) {
	m = &member{}
	if m.world, err = r.world.Split(ctx, color, r.Rank()); err != nil {
		return m, err
	}
	if m.stream, err = r.dev.NewStream(); err != nil {
		return m, err
	}
	if m.Comm, err = collectives.New(ctx, m.world, o); err != nil {
		return m, err
	}
	memory, err := m.world.Alloc(size)
	if err != nil {
		return m, err
	}
	m.base = memory.Addr()
	_, err = m.world.Exchange(ctx, memory)
	return m, err
}

func (m *member) close(ctx context.Context, r *rank) error {
	var all []error
	if m.stream != 0 {
		all = append(all, m.world.Settle(ctx, m.stream), r.dev.CloseStream(m.stream))
	}
	if m.Comm != nil {
		all = append(all, m.Comm.Close())
	}
	if m.world != nil {
		all = append(all, m.world.Close())
	}
	return errors.Join(all...)
}

// Two communicators on one device: all ranks, and the half that a rank belongs to. Their
// calls are under way at the same time, on two streams, and neither takes what is the
// other's.
func TestWorldAndHalves(t *testing.T) {
	const calls = 40
	o := collectives.Options{Scratch: 24 << 20, CopyScratch: 2 << 20}
	job(t, 4, o, func(ctx context.Context, r *rank) (err error) {
		shared, err := r.memory(ctx, 2*calls*slot)
		if err != nil {
			return err
		}
		world := &member{r.Comm, r.world, r.stream, shared.Addr()}
		half, err := part(ctx, r, r.Rank()/2, o, 2*calls*slot)
		defer func() { err = errors.Join(err, half.close(ctx, r)) }()
		if err != nil {
			return err
		}
		if half.Size() != 2 || half.Rank() != r.Rank()%2 {
			return fmt.Errorf("rank %d of %d in its half: expected rank %d of 2", half.Rank(), half.Size(), r.Rank()%2)
		}
		dev := piece{dev: r.dev}
		algorithms := []string{"oneshot_ll8", "oneshot_ll128", "twoshot_ll128", ""}
		call := func(i int) trial {
			return trial{Kind: collectives.AllReduce, Algorithm: algorithms[i/2%4], Count: 1 + i*197%8000, Type: kernel.Float32, Op: kernel.Sum}
		}
		// Loading a kernel may wait for all that runs on the device, so each communicator
		// has loaded its own before two are under way.
		for _, m := range []*member{world, half} {
			for i := range 2 * len(algorithms) {
				if err := m.sum(dev, call(i), i); err != nil {
					return err
				}
			}
			if err := m.world.Settle(ctx, m.stream); err != nil {
				return err
			}
		}
		for i := range calls {
			if err := errors.Join(world.sum(dev, call(i), i), half.sum(dev, call(i), i)); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		for _, m := range []*member{half, world} {
			if err := errors.Join(m.world.Settle(ctx, m.stream), m.world.Check()); err != nil {
				return err
			}
			for i := range calls {
				if err := m.check(dev, call(i), i); err != nil {
					return err
				}
			}
		}
		return r.world.Barrier(ctx)
	})
}

// A half that is closed takes nothing from the other half, nor from the job of all ranks,
// though all are on the same devices.
func TestHalfThatIsClosed(t *testing.T) {
	o := collectives.Options{Scratch: 24 << 20, CopyScratch: 2 << 20}
	job(t, 4, o, func(ctx context.Context, r *rank) (err error) {
		const calls = 3
		shared, err := r.memory(ctx, 2*calls*slot)
		if err != nil {
			return err
		}
		world := &member{r.Comm, r.world, r.stream, shared.Addr()}
		half, err := part(ctx, r, r.Rank()/2, o, 2*calls*slot)
		dev, x := piece{dev: r.dev}, trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
		call := func(m *member, i int) error {
			return errors.Join(m.sum(dev, x, i), m.world.Settle(ctx, m.stream), m.world.Check(), m.check(dev, x, i))
		}
		if err == nil {
			err = errors.Join(call(half, 0), call(world, 0))
		}
		if err != nil {
			return errors.Join(err, half.close(ctx, r))
		}
		first := r.Rank() < 2
		if first {
			err = half.close(ctx, r)
		}
		if err := errors.Join(err, r.world.Barrier(ctx)); err != nil { // one half is closed now
			return err
		}
		if !first {
			err = call(half, 1)
		}
		err = errors.Join(err, call(world, 1))
		if !first {
			err = errors.Join(err, half.close(ctx, r))
		}
		return errors.Join(err, call(world, 2), r.world.Barrier(ctx))
	})
}

// A half that fails ends alone: its ranks get the reason, and those of the other half, and
// the job of all ranks, go on.
func TestHalfThatFails(t *testing.T) {
	o := collectives.Options{Scratch: 24 << 20, CopyScratch: 2 << 20}
	job(t, 4, o, func(ctx context.Context, r *rank) (err error) {
		shared, err := r.memory(ctx, 2*slot)
		if err != nil {
			return err
		}
		world := &member{r.Comm, r.world, r.stream, shared.Addr()}
		half, err := part(ctx, r, r.Rank()/2, o, 2*slot)
		defer func() { err = errors.Join(err, half.close(ctx, r)) }()
		if err := errors.Join(err, r.world.Barrier(ctx)); err != nil { // all have their half
			return err
		}
		dev, x := piece{dev: r.dev}, trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
		cause := errors.New("this half has seen enough")
		if r.Rank() == 0 {
			half.world.Abort(cause)
		}
		if r.Rank() < 2 {
			if err := until(ctx, "the end of the half", func() bool { return half.world.Err() != nil }); err != nil {
				return err
			}
			if err := wants(half.world.Err(), nil, cause.Error()); err != nil {
				return err
			}
		} else if err := errors.Join(half.sum(dev, x, 0), half.world.Settle(ctx, half.stream), half.world.Check(), half.check(dev, x, 0)); err != nil {
			return fmt.Errorf("the other half: %w", err)
		}
		return errors.Join(world.sum(dev, x, 0), r.settle(ctx), world.check(dev, x, 0), r.world.Barrier(ctx))
	})
}

// Two communicators of the same ranks, whose calls one rank enqueues in the opposite order: all of
// the first and then all of the second, while its peer begins with the second. Work that waits
// behind a call of the one must leave room on the device for the other.
func TestCallsOfTwoCommunicatorsInOppositeOrders(t *testing.T) {
	type sum struct {
		algorithm string
		bytes     int
	}
	for _, x := range []struct {
		name  string
		calls int // of one communicator: no more than a stream's queue takes
		sums  []sum
	}{
		{"words", 400, []sum{{"oneshot_ll8", 1 << 10}, {"oneshot_ll8", 32 << 10}, {"oneshot_ll8", 256 << 10}}},
		{"lines", 400, []sum{{"oneshot_ll128", 128 << 10}}},
		{"large lines", 400, []sum{{"oneshot_ll128", 512 << 10}, {"twoshot_ll128", 1 << 20}, {"twoshot_ll128", 2 << 20}}},
		{"direct", 400, []sum{{"zerocopy", 4 << 20}}},
		{"pieces", 400, []sum{{"stream_ll128", 1 << 20}}},
		{"copies", 40, []sum{{"copy", 2 << 20}}},
		{"barriers", 400, []sum{{"barrier", 0}}},
		{"all of these", 400, []sum{
			{"oneshot_ll8", 16 << 10}, {"oneshot_ll128", 128 << 10}, {"oneshot_ll8", 4 << 10}, {"twoshot_ll128", 1 << 20},
			{"zerocopy", 4 << 20}, {"stream_ll128", 1 << 20}, {"twoshot_ll128", 2 << 20}, {"oneshot_ll8", 32 << 10},
		}},
	} {
		calls, sums := x.calls, x.sums
		if imageFolder != "" {
			calls = 8
		}
		t.Run(x.name, func(t *testing.T) {
			o := collectives.Options{Scratch: 64 << 20, CopyScratch: 2 << 20}
			job(t, 2, o, func(ctx context.Context, r *rank) (err error) {
				const most = 4 << 20
				shared, err := r.memory(ctx, 2*most)
				if err != nil {
					return err
				}
				second, err := part(ctx, r, 0, o, 2*most)
				defer func() { err = errors.Join(err, second.close(ctx, r)) }()
				if err != nil {
					return err
				}
				both := []*member{{r.Comm, r.world, r.stream, shared.Addr()}, second}
				ones := bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, most/4)
				call := func(m *member, x sum) error {
					if x.algorithm == "barrier" {
						return m.Barrier(&collectives.CallOptions{Stream: m.stream})
					}
					return m.AllReduce(pointer(m.base), pointer(m.base+most), x.bytes/4, kernel.Float32, kernel.Sum,
						&collectives.CallOptions{Stream: m.stream, Algorithm: x.algorithm})
				}
				for _, m := range both { // loads the kernels
					if err := r.dev.WriteAt(ones, m.base); err != nil {
						return err
					}
					for _, x := range sums {
						if err := errors.Join(call(m, x), m.world.Settle(ctx, m.stream)); err != nil {
							return err
						}
					}
				}
				for _, m := range both { // or results of these calls would be found
					if err := r.dev.WriteAt(make([]byte, most), m.base+most); err != nil {
						return err
					}
				}
				if err := r.world.Barrier(ctx); err != nil {
					return err
				}
				limited, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				for i := range both {
					m := both[(i+r.Rank())%2]
					for n := range calls {
						if err := call(m, sums[n%len(sums)]); err != nil {
							return err
						}
					}
				}
				for _, m := range both {
					if err := errors.Join(m.world.Settle(limited, m.stream), m.world.Check()); err != nil {
						second.world.Abort(err) // or the end of either waits for the other
						r.world.Abort(err)
						return err
					}
					last := make([]byte, sums[(calls-1)%len(sums)].bytes)
					if err := r.dev.ReadAt(last, m.base+most); err != nil {
						return err
					}
					if twos := bytes.Repeat([]byte{0, 0, 0, 0x40}, len(last)/4); !bytes.Equal(last, twos) {
						return fmt.Errorf("a sum of ones by two ranks is not 2 everywhere: %v…", last[:16])
					}
				}
				return r.world.Barrier(ctx)
			})
		})
	}
}
