package moe

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Options are the sizes that a buffer serves. All ranks pass the same.
type Options struct {
	Tokens  int // of a rank, at most
	Hidden  int // elements of a row, at most
	Experts int // of all ranks. Each has the same number of them, but for the last ranks, if they do not divide it
}

// The limits of Options.
const mostTokens, mostHidden, mostExperts, mostRanks = 1 << 14, 1 << 20, 1024, 64

func invalid(op, format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{framework.ErrInvalid, op}, args...)...)
}

// Check says what is wrong with options, for so many ranks.
func (o Options) Check(ranks int) error {
	const op = "buffer"
	switch {
	case ranks <= 0:
		return invalid(op, "%d ranks: expected 1 or more", ranks)
	case ranks > mostRanks:
		return fmt.Errorf("%w: %s: %d ranks: expected at most %d", framework.ErrUnsupported, op, ranks, mostRanks)
	case o.Tokens <= 0 || o.Tokens > mostTokens:
		return invalid(op, "%d tokens of a rank: expected 1 to %d", o.Tokens, mostTokens)
	case o.Hidden <= 0 || o.Hidden%8 != 0 || o.Hidden > mostHidden:
		return invalid(op, "rows of %d elements: expected a multiple of 8, at most %d", o.Hidden, mostHidden)
	case o.Experts < ranks || o.Experts > mostExperts:
		return invalid(op, "%d experts: expected %d to %d", o.Experts, ranks, mostExperts)
	}
	return nil
}

// numbers are the options in an order, and names of them.
func (o Options) numbers() [3]int { return [3]int{o.Tokens, o.Hidden, o.Experts} }

var optionNames = [3]string{"Tokens", "Hidden", "Experts"}

func (o Options) encode() (b []byte) {
	for _, x := range o.numbers() {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// differs names the options in which another rank differs, or gives its mistake; "": it has the same.
func (o Options) differs(theirs []byte, rank int) string {
	if len(theirs) != len(o.encode()) {
		return string(theirs)
	}
	var list []string
	for i, mine := range o.numbers() {
		if got := int(binary.LittleEndian.Uint64(theirs[8*i:])); got != mine {
			list = append(list, fmt.Sprintf("%s is %d, and %d on rank %d", optionNames[i], got, mine, rank))
		}
	}
	return strings.Join(list, "; ")
}

// Local is how many experts a rank has.
func (o Options) Local(ranks int) int { return (o.Experts + ranks - 1) / ranks }

// arrange finds a place for each part of the memory, and its size.
func (o Options) arrange(ranks int) (p places, size uint64) {
	n, all := uint64(ranks), 2*uint64(ranks)*uint64(o.Tokens)
	for _, part := range []struct {
		at    *uint64
		bytes uint64
	}{
		{&p.Notices, 4 * n * noticeBytes}, {&p.Acks, 4 * n * ackBytes}, {&p.Counts, 2 * n * uint64(o.Local(ranks)+1) * countBytes},
		{&p.Headers, all * headerBytes}, {&p.Weights, all * weightBytes}, {&p.Rows, all * o.stride()}, {&p.Partials, all * o.stride()},
	} {
		*part.at = size
		size += (part.bytes + 255) / 256 * 256
	}
	return p, size
}

func (o Options) stride() uint64 { return (uint64(o.Hidden)*2 + 15) / 16 * 16 }

// Bytes is how much memory a buffer takes on each of so many ranks.
func (o Options) Bytes(ranks int) uint64 {
	_, size := o.arrange(ranks)
	return size
}

// NetworkBytes is how much memory a buffer takes at most on each of so many ranks that do not all reach each other's memory: what goes to
// other ranks has a place of its own there.
func (o Options) NetworkBytes(ranks int) uint64 { return 2 * o.Bytes(ranks) }

// HandleBytes is how much memory the records of a dispatch take, which combine needs.
func (o Options) HandleBytes(ranks int) uint64 {
	n := uint64(ranks)
	return 16*n + n*uint64(o.Tokens)*recordBytes
}

// Types are those of rows that experts take.
func Types() []kernel.DataType { return []kernel.DataType{kernel.BFloat16} }
