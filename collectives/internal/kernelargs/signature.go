package kernelargs

import (
	"fmt"
	"hash/fnv"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// NameID is how signatures carry the name of an algorithm: 24 bits, so that a report of
// a wait can hold a collective beside it.
func NameID(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()>>8 ^ h.Sum32()&0xff
}

// UnpackSignature takes apart the two packets that kernels publish: four words of 32
// bits, each with a tag, the low half of the sequence. It is false while the tags
// differ.
func UnpackSignature(w [SignatureBytes / 8]uint64) (s Signature, tag uint32, ok bool) {
	tag = uint32(w[0] >> 32)
	ok = tag != 0
	for _, x := range w {
		ok = ok && uint32(x>>32) == tag
	}
	s.Count = w[0]&math.MaxUint32 | w[1]<<32
	low, high := uint32(w[2]), uint32(w[3])
	s.Type, s.Op, s.Root = low&0xff, low>>8&0xff, low>>16
	s.Collective, s.Algorithm = high>>24, high&0xffffff
	return s, tag, ok
}

// Pack gives the words that kernels publish of a signature.
func (s *Signature) Pack() [SignatureBytes / 8]uint64 {
	tag := s.Sequence << 32
	return [...]uint64{
		tag | s.Count&math.MaxUint32,
		tag | s.Count>>32,
		tag | uint64(s.Type&0xff|s.Op&0xff<<8|s.Root<<16),
		tag | uint64(s.Collective<<24|s.Algorithm&0xffffff),
	}
}

// SameCall reports whether two signatures are of the same call, whatever their numbers.
func SameCall(a, b *Signature) bool {
	x, y := *a, *b
	x.Sequence, y.Sequence = 0, 0
	return x == y
}

// Fingerprint is of all that ranks must have in common.
func (s *Signature) Fingerprint() (f uint64) {
	for _, v := range [...]uint64{s.Count, uint64(s.Collective), uint64(s.Algorithm), uint64(s.Type), uint64(s.Op), uint64(s.Root)} {
		f = (f ^ v) * 0x9e3779b97f4a7c15
		f ^= f >> 32
	}
	return f
}

// Describe says in words what call a signature is of. name finds the name of an algorithm of a collective
// by its number; "" where there is none.
func (s *Signature) Describe(name func(k collective.Kind, id uint32) string) string {
	k := collective.Kind(s.Collective)
	by := name(k, s.Algorithm)
	if by == "" {
		by = fmt.Sprintf("algorithm %#x", s.Algorithm)
	}
	text := k.String()
	if k != collective.Barrier {
		text += fmt.Sprintf(" of %d %v", s.Count, kernel.DataType(s.Type))
	}
	if k.Reduces() {
		text += " " + kernel.Op(s.Op).String()
	}
	if k.Rooted() {
		text += fmt.Sprintf(" root %d", s.Root)
	}
	return text + " by " + by
}

// At turns the address of mapped memory, which Go does not manage, into a pointer.
func At(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
