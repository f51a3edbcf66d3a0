package machine

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
)

// group executes an operation on the memory of the block. It takes effect at once; its result may be used when it was
// waited for.
func group(w *wave, o *op) error {
	a := w.newAccess(o)
	a.exec, a.other, a.performed = w.exec(), true, true
	places, write := 1, o.Results == ""
	if strings.Contains(o.Name, "2_b") {
		places = 2
	}
	words := isa.Width(o.Dst.Type) / places
	if write {
		words = isa.Width(o.Src[1].Type)
	}
	for p := range places {
		offset := int(o.Offset)
		if places == 2 {
			offset = []int{int(o.Offset), int(o.Offset2)}[p] * words * 4
		}
		if err := w.groupLanes(o, p, words, offset, write); err != nil {
			return err
		}
	}
	if !write { // at last, because the register of the addresses may be among the results
		for r := range places * words {
			to := &w.v[int(o.Dst.N)+r]
			for m := a.exec; m != 0; m &= m - 1 {
				l := bits.TrailingZeros64(m)
				to[l] = w.loaded[r][l]
			}
		}
	}
	w.pending = append(w.pending, a)
	w.busy(a, 1)
	return nil
}

// parts are how many bytes of each word an operation accesses, the low ones.
func parts(o *op) int {
	switch {
	case strings.HasSuffix(o.Name, "_u8"):
		return 1
	case strings.HasSuffix(o.Name, "_u16"), strings.HasSuffix(o.Name, "_b16"):
		return 2
	}
	return 4
}

func (w *wave) groupLanes(o *op, place, words, offset int, write bool) error {
	lds, address := w.block.lds, &w.v[o.Src[0].N]
	part := parts(o)
	bytes := part * words
	for m := w.exec(); m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m)
		at := int(address[l]) + offset
		if at < 0 || at+bytes > len(lds) || at%part != 0 {
			return fmt.Errorf("lane %d: %d bytes at %#x of group memory: it has %d bytes", l, bytes, at, len(lds))
		}
		var word [4]byte
		for r := range words {
			b := lds[at+part*r:][:part]
			if write {
				binary.LittleEndian.PutUint32(word[:], w.v[int(o.Src[1+place].N)+r][l])
				copy(b, word[:])
			} else {
				copy(word[:], b)
				w.loaded[place*words+r][l] = binary.LittleEndian.Uint32(word[:])
			}
		}
	}
	return nil
}
