package scaling

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// The Go mirror has the offsets that a compiler gives the original.
func TestLayoutsAgree(t *testing.T) {
	fields := map[string]string{}
	typ := reflect.TypeFor[args]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		fields[name] = strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(name, "Stride", "_stride"), "__", "_"))
	}
	source := layouttest.Source{Headers: []string{"stddef.h", "scale_args.h"}, Namespace: "mscclpp::collectives", Include: []string{"kernels", "../../../framework/kernel/include"}}
	layouttest.Agree(t, source, []layouttest.Twin{{Name: "ScaleArgs", Go: args{}, Fields: fields}}, nil)
}

// There is an image for each type and vendor, with the layout of this program.
func TestImagesAreThoseOfTheTree(t *testing.T) {
	set, err := images()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"sm_80", "gfx90a", "gfx942"} {
		for dtype := range kernel.DataType(kernel.DataTypes) {
			found := false
			for _, i := range set.Infos() {
				found = found || i.Arch == arch && i.Type == dtype.String() && i.Layout == layout() && i.ABI == kernel.ABI
			}
			if !found {
				t.Errorf("no image for %v on %s with layout %s: build them: mscclpp-kernels build --spec collectives/internal/scaling/kernels/kernels.json --target gpu --out collectives/internal/scaling/image", dtype, arch, layout())
			}
		}
	}
}

// The kernel and the host compute the same bits, of all bit patterns, types, factors and alignments, in one slice and
// in several, into the input as well; and nothing beside them is written.
func TestKernelAndHostAgree(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "kernels/kernels.json", Images: "image"}))
	gpu, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Close()
	cpu, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	stream, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	const bytesEach = 16 << 10
	m, err := gpu.Alloc(bytesEach)
	if err != nil {
		t.Fatal(err)
	}
	onGPU, onCPU := New(gpu), New(cpu)
	random := rand.New(rand.NewPCG(7, 7))
	for dtype := range kernel.DataType(kernel.DataTypes) {
		size := uint64(dtype.Size())
		for try := range 40 {
			data := make([]byte, bytesEach)
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			shift := uint64(random.IntN(3)) * uint64(random.IntN(17)) // from nothing to any alignment
			x := Slices{Number: 1 + uint64(try%3), Count: uint64(random.IntN(200)), Type: dtype}
			x.InStride = (x.Count + uint64(random.IntN(3))) * size
			x.OutStride = x.InStride
			in, out := 4096+shift, 8192+shift
			if try%4 == 0 {
				out = in
			}
			f, at := Factor{Bits: random.Uint64()}, uint64(64+try%2*3)
			if try%8 == 5 {
				f.Bits = 0
			}
			if dtype != kernel.Float64 && try%5 == 1 {
				f.Bits = uint64(math.Float32bits(float32(try) / 3))
			}
			place := func(base unsafe.Pointer) (Slices, Factor) {
				y, g := x, f
				y.In, y.Out = unsafe.Add(base, in), unsafe.Add(base, out)
				if try%3 == 0 {
					g.At = unsafe.Add(base, at)
				}
				return y, g
			}
			if err := gpu.WriteAt(data, m.Addr()); err != nil {
				t.Fatal(err)
			}
			y, g := place(pointer(m))
			if err := errors.Join(onGPU.Scale(y, g, stream), gpu.Sync(stream)); err != nil {
				t.Fatal(err)
			}
			y, g = place(unsafe.Pointer(unsafe.SliceData(data)))
			if err := onCPU.Scale(y, g, 0); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, bytesEach)
			if err := gpu.ReadAt(got, m.Addr()); err != nil {
				t.Fatal(err)
			}
			for i := range x.Number * x.Count { // which NaN comes out is not said
				at := out + i/x.Count*x.OutStride + i%x.Count*size
				if a, b := got[at:at+size], data[at:at+size]; isNaN(a, dtype) && isNaN(b, dtype) {
					copy(a, b)
				}
			}
			if !bytes.Equal(got, data) {
				t.Errorf("%v, try %d: the kernel and the host differ", dtype, try)
			}
		}
	}
	if err := errors.Join(gpu.CloseStream(stream), onGPU.Close(), onCPU.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

func isNaN(b []byte, t kernel.DataType) bool {
	switch t {
	case kernel.Float64:
		return math.IsNaN(math.Float64frombits(binary.NativeEndian.Uint64(b)))
	case kernel.Float32, kernel.Float16, kernel.BFloat16, kernel.Float8E4M3, kernel.Float8E5M2:
		return math.IsNaN(float64(math.Float32frombits(uint32(Read(t, unsafe.Pointer(unsafe.SliceData(b))).Bits))))
	}
	return false
}

func pointer(m device.Memory) unsafe.Pointer {
	addr := m.Addr()
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// Pieces cover a call without gaps, and the request that algorithms are chosen for is that of the first.
func TestPieces(t *testing.T) {
	s := New(nil)
	for _, kind := range []collective.Kind{collective.AllReduce, collective.ReduceScatter, collective.Reduce} {
		for _, count := range []uint64{0, 1, 1000, roomBytes / 4, roomBytes/4 + 1, 5 * roomBytes} {
			for _, ranks := range []uint64{1, 2, 3, 72} {
				var out byte
				x := Sum{Kind: kind, Type: kernel.Float32, Input: unsafe.Pointer(&out), Output: nil, Count: count, Ranks: ranks}
				if err := s.Begin(&x); err != nil {
					t.Fatal(err)
				}
				r := engine.Request{Collective: kind, Type: kernel.Float32, Op: kernel.PreMulSum, Count: count, Bytes: 4 * count * x.slices(), Ranks: int(ranks), Registered: true}
				Call(&r)
				if r.Op != kernel.Sum || r.Count != x.Part || r.Bytes != 4*x.Part*x.slices() || r.Registered != (kind == collective.AllReduce) {
					t.Errorf("%v of %d: %+v, and the first piece is %d", kind, count, r, x.Part)
				}
				sum := x.Part
				for x.Next() {
					if x.at != sum || x.Part == 0 || 4*x.Part*x.slices() > roomBytes {
						t.Fatalf("%v of %d by %d ranks: %d elements at %d behind %d", kind, count, ranks, x.Part, x.at, sum)
					}
					sum += x.Part
				}
				if err := x.End(); err != nil || sum != count {
					t.Errorf("%v of %d: %d in all, %v", kind, count, sum, err)
				}
			}
		}
	}
	if len(s.rooms) != 1 || s.out != 0 {
		t.Errorf("%d rooms, %d in use: expected the same for all", len(s.rooms), s.out)
	}
}

// Numbers that a type does not hold are refused, and all others kept.
func TestFactorsOfNumbers(t *testing.T) {
	for _, x := range []struct {
		dtype kernel.DataType
		scale float64
		bits  uint64
		ok    bool
	}{
		{kernel.Int8, -1, math.MaxUint64, true}, {kernel.Int8, 128, 0, false}, {kernel.Int8, 0.5, 0, false}, {kernel.Int8, math.NaN(), 0, false},
		{kernel.Uint64, 1 << 63, 1 << 63, true}, {kernel.Uint64, 1 << 64, 0, false}, {kernel.Uint64, -1, 0, false},
		{kernel.Int64, -1 << 63, 1 << 63, true}, {kernel.Int64, 1 << 63, 0, false}, {kernel.Uint32, 0, 0, true},
		{kernel.Float32, 1e39, 0, false}, {kernel.Float16, 1e-60, 0, false}, {kernel.Float64, 1e-60, math.Float64bits(1e-60), true},
		{kernel.Float16, 0.1, uint64(math.Float32bits(0.1)), true}, {kernel.Float32, 0, 0, true}, {kernel.Float32, math.Copysign(0, -1), 1 << 31, true},
		{kernel.Float8E4M3, math.Inf(-1), 0xff800000, true},
	} {
		f, err := Of(x.dtype, x.scale)
		if f.Bits != x.bits || (err == nil) != x.ok || err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%v of %v: %#x, %v", x.scale, x.dtype, f.Bits, err)
		}
	}
}

// With machine code all kernels can be loaded at once; without, none is, and PTX is left to the first call. A type is
// prepared in either case.
func TestPreload(t *testing.T) {
	source := emulated.Source{Spec: "kernels/kernels.json", Images: "image"}
	folder := emulated.Images(t, source)
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvImages, folder)
	quiet := slog.New(slog.DiscardHandler)
	for _, files := range [][]string{nil, emulated.MachineCode(t, folder, t.TempDir(), []string{"sm_90"}, source)} {
		gpu, err := cuda.Open(0, cuda.MachineCode(files, quiet))
		if err != nil {
			t.Fatal(err)
		}
		s := New(gpu)
		if err := s.Preload(); err != nil {
			t.Fatal(err)
		}
		for dtype, k := range s.kernels {
			if (k != nil) != (files != nil) {
				t.Errorf("%v: loaded %v, with machine code in %v", kernel.DataType(dtype), k != nil, files)
			}
		}
		if err := s.Prepare(kernel.BFloat16); err != nil || s.kernels[kernel.BFloat16] == nil {
			t.Errorf("prepare: %v", err)
		}
		form := s.modules[0].(interface{ Form() string }).Form()
		if strings.Contains(form, "machine code") != (files != nil) {
			t.Errorf("%s is loaded, with machine code in %v", form, files)
		}
		m, err := gpu.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := gpu.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		got := []byte{0x80, 0x3f, 0x80, 0x40} // 1 and 4
		x := Slices{In: pointer(m), Out: pointer(m), Number: 1, Count: 2, Type: kernel.BFloat16}
		err = errors.Join(gpu.WriteAt(got, m.Addr()), s.Scale(x, Factor{Bits: uint64(math.Float32bits(2))}, stream), gpu.Sync(stream), gpu.ReadAt(got, m.Addr()),
			gpu.CloseStream(stream), m.Close(), s.Close(), gpu.Close())
		if want := []byte{0, 0x40, 0, 0x41}; err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v: expected %x", got, err, want)
		}
	}
}
