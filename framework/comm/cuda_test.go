package comm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/actor"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
	"github.com/mscclpp-go/mscclpp/framework/gpu/cuda"
	"github.com/mscclpp-go/mscclpp/framework/gpu/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/gpu/host"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// player is a rank on a CUDA device, a GPU or an emulated one, with an actor: real
// kernels use the handles of its channels.
type player struct {
	*comm.Communicator
	dev    *cuda.Device
	module gpu.Module
	kernel gpu.Kernel
	stream gpu.Stream
	page   []byte  // memory of the host…
	seen   uintptr // …as the device sees it
	props  gpu.Memory
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
		Spec: "../device/actor/kernels/kernels.json", Images: "../device/actor/image", Types: []string{"f32"},
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
			err := p.open(ctx, boot, r%count)
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

func (p *player) open(ctx context.Context, boot framework.Bootstrap, index int) (err error) {
	if p.dev, err = cuda.Open(index); err != nil {
		return err
	}
	tr, err := comm.NewTransport(ctx, loopback.NewByRank(), "embedded")
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
func (p *player) share() error {
	h, err := host.Open()
	if err != nil {
		return err
	}
	m, err := h.Alloc(pageBytes)
	if err != nil {
		return err
	}
	shares, err := m.Export()
	if err != nil {
		return err
	}
	defer framework.Parcel{Shares: shares}.Close()
	seen, err := p.dev.Map(framework.Mapping{Shares: shares, Bytes: pageBytes})
	if err != nil {
		return err
	}
	p.page, p.seen = gpu.Bytes(m), seen.Addr()
	return nil
}

func (p *player) close() error {
	var all []error
	if p.stream != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		all = append(all, p.Settle(ctx, p.stream), p.dev.CloseStream(p.stream))
	}
	if p.module != nil {
		all = append(all, p.module.Close())
	}
	if p.Communicator != nil {
		all = append(all, p.Communicator.Close())
	}
	return errors.Join(append(all, p.dev.Close())...)
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

// play launches the actor on the steps. What it returns waits for it.
func (p *player) play(ctx context.Context, port device.PortChannelHandle, steps ...actor.Step) (wait func() error, err error) {
	p.used = 0
	p.args = actor.Args{Control: p.Control(), Count: uint32(len(steps)), Kernel: 9}
	var result uintptr
	for _, err := range []error{
		putAt(ctx, p, &p.args.Port, port), putAt(ctx, p, &p.args.Steps, steps...), putAt(ctx, p, &p.args.Grid, uint64(0)),
		putAt(ctx, p, &result, [2]uint64{}),
	} {
		if err != nil {
			return nil, err
		}
	}
	p.args.Done, p.args.Failed = result, result+8
	if err := p.kernel.Launch(gpu.Launch{Grid: 1, Block: 32, Stream: p.stream}, unsafe.Pointer(&p.args), unsafe.Sizeof(p.args)); err != nil {
		return nil, err
	}
	return func() error {
		if err := p.Settle(ctx, p.stream); err != nil {
			return err
		}
		b, err := p.read(ctx, result, 16)
		if err != nil {
			return err
		}
		if done, failed := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]); done != uint64(len(steps)) || failed != 0 {
			return fmt.Errorf("the kernel did %d of %d steps, failed %d (%v)", done, len(steps), failed, p.Err())
		}
		return nil
	}, nil
}

func putAt[T any](ctx context.Context, p *player, to *uintptr, values ...T) (err error) {
	*to, err = place(ctx, p, values...)
	return err
}

func (p *player) plays(ctx context.Context, port device.PortChannelHandle, steps ...actor.Step) error {
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

// Kernels put, signal, wait and flush; then the host does, over the same channels.
func TestPortsOnCUDA(t *testing.T) {
	const size = 1 << 16
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		out, in, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		ch := ports[1-p.Rank()]
		data := make([]byte, size)
		for round := range 3 {
			for i := range data {
				data[i] = byte(i*7 + round + p.Rank())
			}
			if err := p.write(ctx, out.Addr(), data); err != nil {
				return err
			}
			if round == 2 {
				err = errors.Join(ch.PutWithSignal(0, 0, size), ch.Flush(ctx), ch.Wait(ctx))
			} else {
				steps := repeat(100, // laps of the ring
					actor.Step{Op: actor.PortPut, Dst: 0, Src: 0, Bytes: size / 2},
					actor.Step{Op: actor.PortPutWithSignal, Dst: size / 2, Src: size / 2, Bytes: size / 2},
					actor.Step{Op: actor.PortSignal},
					actor.Step{Op: actor.PortPutWithSignalAndFlush, Dst: 0, Src: 0, Bytes: 8},
					actor.Step{Op: actor.PortFlush},
					actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait})
				err = p.plays(ctx, ch.Handle(), steps...)
			}
			if err == nil {
				err = p.Barrier(ctx)
			}
			if err != nil {
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
			if err := p.Barrier(ctx); err != nil {
				return err
			}
		}
		if s := p.Channels(); len(s) != 1 || !s[0].Known || s[0].Seen != 601 || s[0].Expected != 601 || s[0].Queued != 0 {
			return fmt.Errorf("%+v: expected 601 signals, seen and waited for", s)
		}
		return nil
	})
}

// A kernel that waits for what never comes leaves when the communicator is aborted,
// and tells what it waited for.
func TestAbortOnCUDA(t *testing.T) {
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		_, _, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		wait, err := p.play(ctx, ports[1-p.Rank()].Handle(), actor.Step{Op: actor.PortWait})
		if err != nil {
			return err
		}
		if err := p.Barrier(ctx); err != nil {
			return err
		}
		if p.Rank() == 1 {
			p.Abort(&framework.Error{Op: "test", Peer: 1, Err: framework.ErrInvalid})
		}
		<-p.Done()
		start := time.Now()
		err = wait()
		if took := time.Since(start); took > 2*time.Second {
			return fmt.Errorf("the kernel left after %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "did 0 of 1 steps, failed 1") {
			return fmt.Errorf("%v: expected a wait that was left", err)
		}
		if w := p.ControlWords(); w.Reported != 1 || w.Kernel != 9 || int(w.Peer) != 1-p.Rank() || w.Expected != 1 || w.Seen != 0 {
			return fmt.Errorf("the report is %+v: expected kernel 9 and rank %d", *w, 1-p.Rank())
		}
		return nil
	})
}

// How fast the copy proxy is. On GPUs the goals are checked; an emulated one is
// neither fast nor slow, and shows that the measurement works.
func TestCopyProxySpeed(t *testing.T) {
	const goalRoundTrip, goalShare = 6500 * time.Nanosecond, 0.98
	rounds, size, repeats := 4000, uint64(256<<20), 8
	if _, err := gpus(); err != nil || isEmulated() {
		rounds, size, repeats = 100, 1<<20, 2
	}
	var roundTrip, step, raw, port time.Duration
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		out, err := p.Alloc(size)
		if err != nil {
			return err
		}
		in, err := p.Alloc(size)
		if err != nil {
			return err
		}
		ch, err := p.PortChannel(ctx, 1-p.Rank(), out, in)
		if err != nil {
			return err
		}
		s, err := p.Exchange(ctx, in)
		if err != nil {
			return err
		}
		steps := repeat(rounds, actor.Step{Op: actor.PortSignal}, actor.Step{Op: actor.PortWait})
		if p.Rank() == 1 {
			steps = repeat(rounds, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortSignal})
		}
		for range 2 { // the first time warms up
			if err := p.Barrier(ctx); err != nil {
				return err
			}
			start := time.Now()
			if err := p.plays(ctx, ch.Handle(), steps...); err != nil {
				return err
			}
			if p.Rank() == 0 {
				roundTrip = time.Since(start) / time.Duration(rounds)
			}
			start = time.Now() // what the actor itself takes from one step to the next
			if err := p.plays(ctx, ch.Handle(), repeat(2*rounds, actor.Step{Op: actor.Copy})...); err != nil {
				return err
			}
			if p.Rank() == 0 {
				step = time.Since(start) / time.Duration(2*rounds)
			}
		}
		if p.Rank() == 1 {
			return p.Barrier(ctx)
		}
		for range 2 {
			start := time.Now()
			for range repeats {
				if err := p.dev.Copy(p.stream, s.Peer(1), out.Addr(), size); err != nil {
					return err
				}
			}
			if err := p.Settle(ctx, p.stream); err != nil {
				return err
			}
			raw = time.Since(start) / time.Duration(repeats)
			start = time.Now()
			err := p.plays(ctx, ch.Handle(), append(repeat(repeats, actor.Step{Op: actor.PortPutWithSignal, Bytes: size}), actor.Step{Op: actor.PortFlush})...)
			if err != nil {
				return err
			}
			port = time.Since(start) / time.Duration(repeats)
		}
		return p.Barrier(ctx)
	})
	share := float64(raw) / float64(port)
	roundTrip -= 2 * step // at each end, from a wait to the next signal
	t.Logf("round trip of 0 bytes: %v, less %v for two steps of the actor; %d bytes: %v a put, %v a plain copy: %.1f %% of its rate", roundTrip, 2*step, size, port, raw, 100*share)
	if isEmulated() || t.Failed() {
		return
	}
	if roundTrip > goalRoundTrip || share < goalShare {
		t.Errorf("expected at most %v, and at least %v %%", goalRoundTrip, 100*goalShare)
	}
}
