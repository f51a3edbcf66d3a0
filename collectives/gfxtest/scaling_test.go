package gfxtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/scaling"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

var scaleImage = regexp.MustCompile(`^scale-([a-z0-9]+)-(gfx[0-9a-f]+)\.co$`)

// TestScaling runs every committed image that multiplies inputs, under the model of the caches. Results are those of the host.
// The bytes between slices stay.
func TestScaling(t *testing.T) {
	ran := 0
	for name, code := range objecttest.Committed(t) {
		found := scaleImage.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) { scaled(t, found[2], found[1], code) })
	}
	if ran != 26 {
		t.Errorf("%d images: expected 13 types for 2 processors", ran)
	}
}

// scaled multiplies two slices, the second of which begins at no multiple of 16.
func scaled(t *testing.T, arch, typ string, code []byte) {
	p, err := machine.Load(code)
	if err != nil {
		t.Fatal(err)
	}
	of, err := kernel.ParseDataType(typ)
	if err != nil {
		t.Fatal(err)
	}
	factor, err := scaling.Of(of, 3)
	if err != nil {
		t.Fatal(err)
	}
	const count, slices = 301, 2
	size := uint64(of.Size())
	stride := (count + 1) * size
	words := make([]uint64, 2*slices*stride/8+2) // aligned, and both buffers in one
	all := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	random := rand.New(rand.NewPCG(7, uint64(of)))
	for i := range all {
		all[i] = byte(random.UintN(256))
	}
	in, out := all[:slices*stride], all[slices*stride:2*slices*stride]
	want := bytes.Clone(out)
	for s := range uint64(slices) {
		hostreduce.Scale(want[s*stride:s*stride+count*size], in[s*stride:s*stride+count*size], of, factor.Bits)
	}
	r := &memory.Regions{}
	start := uint64(uintptr(unsafe.Pointer(&words[0])))
	if err := r.Add(memory.Region{Start: start, End: start + uint64(len(all)), Owner: 0, Kind: memory.Coarse}); err != nil {
		t.Fatal(err)
	}
	xcds := map[string]int{"gfx942": 2, "gfx90a": 1}[arch]
	m := machine.New(memory.NewCaches(r, 1, memory.Shape{Arch: arch, XCDs: xcds, CUs: 2}), machine.Options{Seed: uint64(of), Weak: true})
	var args []byte
	for _, v := range []uint64{start, start + slices*stride, 0, factor.Bits, count, stride, stride, slices} { // ScaleArgs
		args = binary.LittleEndian.AppendUint64(args, v)
	}
	if err := m.Run(&machine.Launch{Program: p, Kernel: "mscclpp_steps_scale", Grid: 3, Block: 128, Args: args}); err != nil {
		t.Fatal(err)
	}
	for at := uint64(0); at < slices*stride; at += size {
		if got, w := out[at:at+size], want[at:at+size]; !bytes.Equal(got, w) && (!isNaN(got, of) || !isNaN(w, of)) {
			t.Errorf("%x, times 3: %x, the host has %x", in[at:at+size], got, w)
		}
	}
}

// isNaN is for floats: which NaN comes out is not said.
func isNaN(b []byte, t kernel.DataType) bool {
	switch t {
	case kernel.Float64:
		return math.IsNaN(math.Float64frombits(binary.NativeEndian.Uint64(b)))
	case kernel.Int8, kernel.Uint8, kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64:
		return false
	}
	return math.IsNaN(float64(hostreduce.Float(b, t)))
}
