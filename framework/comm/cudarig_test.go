package comm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// player is a rank on a CUDA device, a GPU or an emulated one, with an actor: real
// kernels use the handles of its channels.
type player struct {
	*comm.Communicator
	dev    *cuda.Device
	module device.Module
	kernel device.Kernel
	stream device.Stream
	page   []byte  // memory of the host…
	seen   uintptr // …as the device sees it
	props  device.Memory
	used   uintptr
	args   actor.Args
}

const pageBytes = 1 << 20

// gpus says how many GPUs there are. Without a driver it points the process, once, to
// the emulated one.
var gpus = sync.OnceValues(func() (count int, err error) {
	if count, err = cuda.Count(); err == nil || os.Getenv(cuda.EnvLibrary) != "" {
		return count, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	library, err := emulated.Library(ctx)
	if err != nil {
		return 0, err
	}
	if imageFolder, err = os.MkdirTemp("", "mscclpp-comm-test-*"); err != nil {
		return 0, err
	}
	err = emulated.Prepare(ctx, imageFolder, emulated.Source{
		Spec: "../kernel/actor/kernels/kernels.json", Images: "../kernel/actor/image", Types: []string{"f32"},
	})
	if err != nil {
		return 0, err
	}
	os.Setenv(cuda.EnvLibrary, library)
	os.Setenv(emulated.EnvImages, imageFolder)
	return cuda.Count()
})

// imageFolder is where the kernels of emulated GPUs are; "" for others.
var imageFolder string

func isEmulated() bool { return imageFolder != "" }

// cudaJob runs f as n ranks on the GPUs of the machine, several ranks to one if there
// are fewer, or on emulated ones.
func cudaJob(t *testing.T, n int, f func(ctx context.Context, p *player) error) {
	t.Helper()
	cudaJobOver(t, n, func() framework.Transport { return loopback.NewByRank() }, f)
}

// cudaJobOver is cudaJob over a transport, of which each rank has one.
func cudaJobOver(t *testing.T, n int, transport func() framework.Transport, f func(ctx context.Context, p *player) error) {
	t.Helper()
	count, err := gpus()
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("needs a GPU, or a compiler for an emulated one: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			defer boot.Close()
			p := &player{}
			err := p.open(ctx, boot, r%count, transport())
			if err == nil {
				err = f(ctx, p)
			}
			if err = errors.Join(err, p.close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

func (p *player) open(ctx context.Context, boot framework.Bootstrap, index int, over framework.Transport) (err error) {
	if p.dev, err = cuda.Open(index); err != nil {
		return err
	}
	tr, err := comm.NewTransport(ctx, over, "embedded")
	if err != nil {
		return err
	}
	if p.Communicator, err = comm.New(ctx, boot, comm.Options{Device: p.dev, Transports: []*comm.Transport{tr}}); err != nil {
		return err
	}
	if p.stream, err = p.dev.NewStream(); err != nil {
		return err
	}
	if p.props, err = p.Alloc(pageBytes); err != nil {
		return err
	}
	if err := p.share(); err != nil {
		return err
	}
	set, err := actor.Images()
	if err != nil {
		return err
	}
	ptx, err := set.Read("actor-" + p.dev.Info().Archs[0])
	if err != nil {
		return err
	}
	if p.module, err = p.LoadImage(ptx); err != nil {
		return err
	}
	p.kernel, err = p.module.Kernel(actor.Symbol)
	return err
}

// share makes a page of the host that the device sees. It stays until the process ends.
func (p *player) share() (err error) {
	p.page, p.seen, err = p.newPage(pageBytes)
	return err
}

func (p *player) newPage(bytes uint64) (here []byte, there uintptr, err error) {
	h, err := host.Open()
	if err != nil {
		return nil, 0, err
	}
	m, err := h.Alloc(bytes)
	if err != nil {
		return nil, 0, err
	}
	shares, err := m.Export()
	if err != nil {
		return nil, 0, err
	}
	defer framework.Parcel{Shares: shares}.Close()
	seen, err := p.dev.Map(framework.Mapping{Shares: shares, Bytes: bytes})
	if err != nil {
		return nil, 0, err
	}
	return device.Bytes(m), seen.Addr(), nil
}

func (p *player) close() error {
	var all []error
	if p.stream != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		all = append(all, p.Settle(ctx, p.stream), p.dev.CloseStream(p.stream))
	}
	if p.module != nil {
		all = append(all, p.module.Close())
	}
	if p.Communicator != nil {
		all = append(all, p.Communicator.Close())
	}
	if p.dev != nil {
		all = append(all, p.dev.Close())
	}
	return errors.Join(all...)
}

// rounds has ranks fill out with new data, three times, do something, and find in their
// in what the other one of two had in its out.
func (p *player) rounds(ctx context.Context, out, in *comm.Memory, size int, do func(round int) error) error {
	data := make([]byte, size)
	for round := range 3 {
		for i := range data {
			data[i] = byte(i*7 + round + p.Rank())
		}
		if err := p.write(ctx, out.Addr(), data); err != nil {
			return err
		}
		if err := do(round); err != nil {
			return err
		}
		got, err := p.read(ctx, in.Addr(), size)
		if err != nil {
			return err
		}
		for i, b := range got {
			if b != byte(i*7+round+1-p.Rank()) {
				return fmt.Errorf("round %d: byte %d is %d", round, i, b)
			}
		}
		if err := p.Barrier(ctx); err != nil { // no rank writes the next round before all have read
			return err
		}
	}
	return nil
}

// write and read copy between the page and the device, and wait.
func (p *player) write(ctx context.Context, addr uintptr, data []byte) error {
	copy(p.page, data)
	return errors.Join(p.dev.Copy(p.stream, addr, p.seen, uint64(len(data))), p.Settle(ctx, p.stream))
}

func (p *player) read(ctx context.Context, addr uintptr, n int) ([]byte, error) {
	err := errors.Join(p.dev.Copy(p.stream, p.seen, addr, uint64(n)), p.Settle(ctx, p.stream))
	return p.page[:n], err
}

// place puts values into memory of the device.
func place[T any](ctx context.Context, p *player, values ...T) (uintptr, error) {
	at := p.props.Addr() + p.used
	n := unsafe.Sizeof(values[0]) * uintptr(len(values))
	if p.used += (n + 127) &^ 127; p.used > pageBytes {
		return 0, errors.New("the page is full")
	}
	return at, p.write(ctx, at, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), n))
}

// play launches the actor on the steps. The returned function waits for it.
func (p *player) play(ctx context.Context, port kernel.PortChannelHandle, steps ...actor.Step) (wait func() error, err error) {
	r, err := p.rehearse(ctx, port, nil, steps...)
	if err == nil {
		err = p.launch()
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := p.Settle(ctx, p.stream); err != nil {
			return err
		}
		return p.check(ctx, r)
	}, nil
}

// rehearsed is what a kernel is to do, and where it leaves how far it came.
type rehearsed struct {
	steps  int
	result uintptr
}

// rehearse puts the actor's arguments where it finds them.
func (p *player) rehearse(ctx context.Context, port kernel.PortChannelHandle, rings []kernel.FifoHandle, steps ...actor.Step) (rehearsed, error) {
	r := rehearsed{steps: len(steps)}
	p.used = 0
	p.args = actor.Args{Control: p.Control(), Count: uint32(len(steps)), Kernel: 9}
	for _, err := range []error{
		putAt(ctx, p, &p.args.Port, port), putAt(ctx, p, &p.args.Steps, steps...), putAt(ctx, p, &p.args.Grid, uint64(0)),
		putAt(ctx, p, &r.result, [2]uint64{}),
	} {
		if err != nil {
			return r, err
		}
	}
	if len(rings) > 0 {
		if err := putAt(ctx, p, &p.args.Rings, rings...); err != nil {
			return r, err
		}
	}
	p.args.Done, p.args.Failed = r.result, r.result+8
	return r, nil
}

// launch enqueues the actor on what was rehearsed last.
func (p *player) launch() error {
	return p.kernel.Launch(device.Launch{Grid: 1, Block: 32, Stream: p.stream}, unsafe.Pointer(&p.args), unsafe.Sizeof(p.args))
}

// check tells whether the kernel, which has ended, did everything.
func (p *player) check(ctx context.Context, r rehearsed) error {
	b, err := p.read(ctx, r.result, 16)
	if err != nil {
		return err
	}
	if done, failed := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]); done != uint64(r.steps) || failed != 0 {
		return fmt.Errorf("the kernel did %d of %d steps, failed %d (%v)", done, r.steps, failed, p.Err())
	}
	return nil
}

func putAt[T any](ctx context.Context, p *player, to *uintptr, values ...T) (err error) {
	*to, err = place(ctx, p, values...)
	return err
}

func (p *player) plays(ctx context.Context, port kernel.PortChannelHandle, steps ...actor.Step) error {
	wait, err := p.play(ctx, port, steps...)
	if err != nil {
		return err
	}
	return wait()
}

func repeat(n int, steps ...actor.Step) []actor.Step {
	var all []actor.Step
	for range n {
		all = append(all, steps...)
	}
	return all
}
