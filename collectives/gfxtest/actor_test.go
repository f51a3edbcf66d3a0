package gfxtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

var reduceImage = regexp.MustCompile(`^actor_reduce-([a-z0-9]+)-(gfx[0-9a-f]+)\.co$`)

// TestReductions runs every committed image of the actor's reductions, under the model of the caches: two inputs, of which one is packets
// or neither. Results are those of the host.
func TestReductions(t *testing.T) {
	ran := 0
	for name, code := range objecttest.Committed(t) {
		found := reduceImage.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		ran++
		of, err := kernel.ParseDataType(found[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			for _, source := range []actor.Source{actor.Plain, actor.FromLL8, actor.FromLL16} {
				for op := range kernel.Avg {
					reduced(t, found[2], code, of, op, source)
				}
			}
		})
	}
	if ran != 26 {
		t.Errorf("%d images: expected 13 types for 2 processors", ran)
	}
}

// reduced reduces two inputs, the second of which is packets where the source says so.
func reduced(t *testing.T, arch string, code []byte, of kernel.DataType, op kernel.Op, source actor.Source) {
	t.Helper()
	p, err := machine.Load(code)
	if err != nil {
		t.Fatal(err)
	}
	const count, room, flag = 301, 1 << 12, 77
	size := uint64(of.Size())
	all := unsafe.Slice((*byte)(unsafe.Pointer(new([5 * room / 8]uint64))), 5*room) // output, two inputs, packets, words
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(all))
	defer pin.Unpin()
	out, a, b, words := all[:room], all[room:2*room], all[2*room:3*room], all[4*room:]
	random := rand.New(rand.NewPCG(11, uint64(of)))
	for i := range count * size {
		a[i], b[i] = byte(random.UintN(256)), byte(random.UintN(256))
	}
	want := bytes.Clone(out[:count*size])
	if hostreduce.EightBits(of) {
		ofBytes(want, a, b, of, op)
	} else {
		hostreduce.Pair(want, a[:len(want)], b[:len(want)], of, op, 1, 0, true)
	}
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(all))))
	binary.LittleEndian.PutUint64(words, start+room)
	binary.LittleEndian.PutUint64(words[8:], start+2*room)
	if source != actor.Plain { // 4 bytes and a flag each, so that both kinds lie alike; the last ones are not whole
		packets := make([]byte, 0, 2*room)
		for at := uint64(0); at < (count*size+7)/8*8; at += 4 {
			packets = binary.LittleEndian.AppendUint32(append(packets, b[at:at+4]...), flag)
		}
		if len(packets) > 2*room {
			t.Fatalf("%d bytes of packets", len(packets))
		}
		copy(all[2*room:4*room], packets)
	}
	args := actor.ReduceArgs{
		Inputs: uintptr(start + 4*room), Out: uintptr(start), Count: count, Scale: 1, N: 2, Op: uint32(op), Divisor: 2,
		Source: source, Flag: flag, Failed: uintptr(start + 4*room + 64),
	}
	r := &memory.Regions{}
	if err := r.Add(memory.Region{Start: start, End: start + uint64(len(all)), Owner: 0, Kind: memory.Uncached}); err != nil {
		t.Fatal(err)
	}
	m := machine.New(memory.NewCaches(r, 1, *shapes[arch]), machine.Options{Seed: uint64(of), Weak: true})
	raw := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&args)), unsafe.Sizeof(args)))
	if err := m.Run(&machine.Launch{Program: p, Kernel: actor.ReduceSymbol, Grid: 2, Block: 128, Args: raw}); err != nil {
		t.Fatal(err)
	}
	for at := uint64(0); at < count*size; at += size {
		if got, w := out[at:at+size], want[at:at+size]; !bytes.Equal(got, w) && (!isNaN(got, of) || !isNaN(w, of)) {
			t.Fatalf("%v of source %d, element %d: %x and %x: %x, the host has %x", op, source, at/size, a[at:at+size], b[at:at+size], got, w)
		}
	}
}

// ofBytes reduces floats of 8 bits, for which the host has no sums and products: of these b is made zeros.
func ofBytes(to, a, b []byte, of kernel.DataType, op kernel.Op) {
	for i := range to {
		x, y := hostreduce.Float(a[i:i+1], of), hostreduce.Float(b[i:i+1], of)
		switch {
		case op == kernel.Sum || op == kernel.Prod:
			a[i], b[i] = a[i]&0x3f, 0
			if op == kernel.Prod {
				a[i] = 0
			}
			to[i] = a[i]
		case x != x || y != y || math.IsInf(float64(x), 0) || math.IsInf(float64(y), 0): // kernels give the largest number for these
			a[i], b[i], to[i] = 1, 1, 1
		case (op == kernel.Max) == (x > y) || x == y:
			if x == y {
				b[i] = a[i]
			}
			to[i] = a[i]
		default:
			to[i] = b[i]
		}
	}
}
