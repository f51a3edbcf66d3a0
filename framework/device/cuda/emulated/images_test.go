package emulated_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

var kernels = emulated.Source{Spec: "../../../kernel/actor/kernels/kernels.json", Images: "../../../kernel/actor/image", Types: []string{"f32"}}

// open opens an emulated device with the images of the actor.
func open(t *testing.T, index int) *cuda.Device {
	t.Helper()
	d, err := cuda.Open(index)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func setUp(t *testing.T) {
	t.Helper()
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvImages, emulated.Images(t, kernels))
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
}

func load(t *testing.T, d *cuda.Device, id, symbol string) device.Kernel {
	t.Helper()
	set, err := actor.Images()
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := set.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load(ptx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	k, err := m.Kernel(symbol)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// rank is one device with an actor and memory, which this process can address: the
// addresses of emulated devices are those of the host.
type rank struct {
	t      *testing.T
	dev    *cuda.Device
	kernel device.Kernel
	stream device.Stream
	memory device.Memory
	used   uintptr
	args   actor.Args
}

func newRank(t *testing.T, index int) *rank {
	t.Helper()
	r := &rank{t: t, dev: open(t, index)}
	r.kernel = load(t, r.dev, "actor-sm_90", actor.Symbol)
	var err error
	if r.memory, err = r.dev.Alloc(1 << 20); err != nil {
		t.Fatal(err)
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.dev.CloseStream(r.stream), r.memory.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// take returns zeroed device memory.
func (r *rank) take(bytes uintptr) uintptr {
	at := r.memory.Addr() + r.used
	r.used += (bytes + 63) &^ 63
	return at
}

func place[T any](r *rank, values ...T) uintptr {
	at := r.take(unsafe.Sizeof(values[0]) * uintptr(len(values)))
	copy(unsafe.Slice(word[T](at), len(values)), values)
	return at
}

func word[T any](at uintptr) *T { return *(**T)(unsafe.Pointer(&at)) }

func (r *rank) launch(steps ...actor.Step) {
	r.t.Helper()
	r.args.Steps, r.args.Count = place(r, steps...), uint32(len(steps))
	r.args.Done, r.args.Failed, r.args.Grid = r.take(8), r.take(4), r.take(8)
	if err := r.kernel.Launch(device.Launch{Grid: 4, Block: 128, Stream: r.stream}, unsafe.Pointer(&r.args), unsafe.Sizeof(r.args)); err != nil {
		r.t.Fatal(err)
	}
}

// The PTX of this project runs: two devices put into each other's memory, signal,
// and wait for each other.
func TestActor(t *testing.T) {
	setUp(t)
	exchange(t)
}

// The same by the PTX itself, which the driver interprets.
func TestActorOfTheCommittedPTX(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
	exchange(t)
}

func exchange(t *testing.T) {
	t.Helper()
	ranks := []*rank{newRank(t, 0), newRank(t, 1)}
	const bytes = 4096
	var inbound, expected, data [2]uintptr
	for i, r := range ranks {
		inbound[i], expected[i], data[i] = r.take(8), r.take(8), r.take(2*bytes)
		for b := range uintptr(bytes) {
			*word[byte](data[i] + b) = byte(int(b) + 100*i)
		}
	}
	pointer := func(at uintptr) uint64 { return uint64(at) }
	for i, r := range ranks {
		var h kernel.MemoryChannelHandle
		h.Semaphore.Inbound, h.Semaphore.Expected, h.Semaphore.Outbound = inbound[i], expected[i], inbound[1-i]
		h.Dst, h.Src = data[1-i], data[i]
		r.args.Memory = place(r, h)
		r.launch(
			actor.Step{Op: actor.Put, Dst: bytes, Src: 0, Bytes: bytes},
			actor.Step{Op: actor.Barrier},
			actor.Step{Op: actor.Signal},
			actor.Step{Op: actor.Wait},
			actor.Step{Op: actor.Barrier},
			actor.Step{Op: actor.Copy, Dst: pointer(data[i]), Src: pointer(data[i] + bytes), Bytes: bytes},
		)
	}
	for i, r := range ranks {
		if err := r.dev.Sync(r.stream); err != nil {
			t.Fatal(err)
		}
		if done := *word[uint64](r.args.Done); done != 6 {
			t.Fatalf("rank %d: %d steps were done, expected 6", i, done)
		}
		for b := range uintptr(bytes) {
			if got, want := *word[byte](data[i] + b), byte(int(b)+100*(1-i)); got != want {
				t.Fatalf("rank %d, byte %d: %d, expected %d", i, b, got, want)
			}
		}
	}
}

// Images without a counterpart are refused with the reason in the log.
func TestUnpreparedImage(t *testing.T) {
	setUp(t)
	set, err := actor.Images()
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := set.Read("actor_reduce-f64-sm_90")
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, 0).Load(ptx)
	if err == nil || !strings.Contains(err.Error(), emulated.EnvImages) {
		t.Errorf("%v: expected an error that names %s", err, emulated.EnvImages)
	}
	load(t, open(t, 0), "actor_reduce-f32-sm_80", actor.ReduceSymbol)
}

func TestPrepareRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		from emulated.Source
		want error
	}{
		{"no spec", emulated.Source{Spec: "none.json", Images: kernels.Images}, framework.ErrInvalid},
		{"no images", emulated.Source{Spec: kernels.Spec}, framework.ErrUnavailable},
		{"no such type", emulated.Source{Spec: kernels.Spec, Images: kernels.Images, Types: []string{"f31"}}, framework.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := emulated.Prepare(t.Context(), dir, c.from); !errors.Is(err, c.want) {
				t.Errorf("%v: expected %v", err, c.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v, %v: expected an empty folder", left, err)
			}
		})
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CXX", "")
	if _, err := emulated.Library(t.Context()); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected ErrUnavailable", err)
	}
}

// The sources that Tree names are there.
func TestTree(t *testing.T) {
	for _, s := range emulated.Tree("../../../..") {
		if s.Images == "" {
			s.Images = filepath.Dir(s.Spec)
		}
		for _, path := range []string{s.Spec, filepath.Join(s.Images, "manifest.json")} {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	}
}

// PTX that was made of other sources is recognized by a mark.
func TestOtherSources(t *testing.T) {
	images := t.TempDir()
	if err := os.CopyFS(images, os.DirFS(kernels.Images)); err != nil {
		t.Fatal(err)
	}
	marks := func() []string {
		found, err := filepath.Glob(filepath.Join(emulated.Images(t, emulated.Source{Spec: kernels.Spec, Images: images, Types: kernels.Types}), "*.other"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	manifest := filepath.Join(images, "manifest.json")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	before := len(marks())
	changed := strings.ReplaceAll(string(text), `"source": "`, `"source": "0`)
	if err := os.WriteFile(manifest, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := len(marks()); after != 4 || before != 0 && before != 4 {
		t.Errorf("%d marks with other sources, %d before: expected 4, and none unless kernels are being worked on", after, before)
	}
}

// The library looks at faults first, and leaves those of the program to it.
func TestFaultsOfTheProgram(t *testing.T) {
	setUp(t)
	r := newRank(t, 0)
	r.launch(actor.Step{Op: actor.Barrier})
	if err := r.dev.Sync(r.stream); err != nil {
		t.Fatal(err)
	}
	defer func() {
		err, ok := recover().(error)
		if !ok || !strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("%v: expected the panic of a nil pointer", err)
		}
	}()
	t.Errorf("%d behind nil: expected a panic", *nowhere())
}

func nowhere() *int { return nil }
