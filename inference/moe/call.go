package moe

import (
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Phase is what of a call a launch does.
type Phase uint32

// A call is usually made whole. Send alone returns as soon as what goes to other ranks is on its way, and Receive, with the same
// buffers and sizes, waits for what comes from them. At most two calls of a kind may be between the two. A graph has both phases or
// none, and is not replayed while a call outside of it is between them.
const (
	Whole Phase = iota
	Send
	Receive
)

// Format is what is made of the rows that dispatch sends.
type Format uint32

// The formats.
const (
	BFloat16  Format = iota // rows are bf16, and stay so
	CastE4M3                // rows are bf16, and become e4m3 with a scale for 128 elements: their largest magnitude over 448
	GivenE4M3               // rows are e4m3 with scales of the caller
	formats
)

// DispatchCall is one call of Dispatch. All ranks pass the same sizes but Tokens and TopK. Rows have no gaps; they and Handle are aligned to 16
// bytes.
type DispatchCall struct {
	Phase  Phase
	Ticket uint64 // of Send, for Receive

	Format     Format
	Tokens     int  // of this rank; 0 or more
	Hidden     int  // elements of a row: a multiple of 8, of 16 in e4m3, of 128 if the kernel makes the scales
	TopK       int  // experts of a token, at most 16
	Slots      int  // rows that an expert has room for; 0: Options.Tokens of all ranks
	RowScales  int  // scales of a row that are given
	RoundScale bool // scales are powers of two
	Exponents  bool // and are given out as bytes, their exponents, four to a word

	Input   unsafe.Pointer // a row for each token
	Scales  unsafe.Pointer // of GivenE4M3: f32, RowScales for each row
	Indices unsafe.Pointer // experts of each token, -1: none; int64 if Index64, else int32
	Index64 bool
	Weights unsafe.Pointer // f32, of these experts; nil, on all ranks: combine brings them, which takes it one message more

	// The results, for the experts of this rank.
	Output       unsafe.Pointer // [expert][Slots] rows; of each expert the first ones are used, in the order of ranks and tokens
	OutputScales unsafe.Pointer // [expert][scale][Slots] f32, or [expert][scale / 4][Slots] words of exponents
	Sources      unsafe.Pointer // [expert][Slots] int32: tokens of rows
	Ranges       unsafe.Pointer // [expert][rank] int64: the first row << 32 | rows
	Received     unsafe.Pointer // [expert] int32: rows
	Statistics   unsafe.Pointer // [expert] int32, to which Received is added; nil: not wanted
	Handle       unsafe.Pointer // HandleBytes, for combine

	Stream device.Stream
}

// CombineCall is one call of Combine.
type CombineCall struct {
	Phase  Phase
	Ticket uint64

	Tokens, Hidden, TopK, Slots int // as for dispatch

	Input    unsafe.Pointer // [expert][Slots] rows of bf16
	Indices  unsafe.Pointer // as for dispatch
	Index64  bool
	Weights  unsafe.Pointer // f32; not looked at if Weighted
	Weighted bool           // dispatch has brought the weights
	Handle   unsafe.Pointer // of the dispatch
	Output   unsafe.Pointer // a row of bf16 for each token: the sum of weight times row over its experts

	Stream device.Stream
}

// sizes says what is wrong with the numbers of a call.
func (b *Buffer) sizes(op string, phase Phase, tokens, hidden, topK, slots, multiple int) error {
	switch {
	case phase > Receive:
		return invalid(op, "phase %d: expected 0 (whole), 1 (send) or 2 (receive)", phase)
	case tokens < 0 || tokens > b.options.Tokens:
		return invalid(op, "%d tokens: expected 0 to %d, for which the buffer was made", tokens, b.options.Tokens)
	case hidden <= 0 || hidden%multiple != 0 || hidden > b.options.Hidden:
		return invalid(op, "rows of %d elements: expected a multiple of %d, at most %d, for which the buffer was made", hidden, multiple, b.options.Hidden)
	case topK <= 0 || topK > mostTopK:
		return invalid(op, "%d experts for a token: expected 1 to %d", topK, mostTopK)
	case slots <= 0 || slots > math.MaxInt32:
		return invalid(op, "%d rows for an expert: expected 1 to %d", slots, math.MaxInt32)
	}
	return nil
}

// check says what is wrong with a call.
func (c *DispatchCall) check(b *Buffer) error {
	multiple := 8
	switch {
	case c.Format >= formats:
		return invalid("dispatch", "format %d: expected 0 to %d", c.Format, formats-1)
	case c.Format == CastE4M3:
		multiple = 128
	case c.Format == GivenE4M3:
		multiple = 16
	}
	if err := b.sizes("dispatch", c.Phase, c.Tokens, c.Hidden, c.TopK, c.slots(b), multiple); err != nil {
		return err
	}
	scales := c.rowScales()
	switch {
	case c.Format != GivenE4M3 && c.RowScales != 0:
		return invalid("dispatch", "%d scales of a row are given with format %d: expected none", c.RowScales, c.Format)
	case c.Format == GivenE4M3 && (scales <= 0 || scales > c.Hidden/16):
		return invalid("dispatch", "%d scales for a row of %d elements: expected 1 to %d", scales, c.Hidden, c.Hidden/16)
	case c.Format != CastE4M3 && c.RoundScale:
		return invalid("dispatch", "scales are to be powers of two, and are not made here")
	case c.Exponents && (!c.RoundScale || scales%4 != 0):
		return invalid("dispatch", "exponents of %d scales: expected powers of two, and a multiple of 4", scales)
	}
	row, outRow, scale, local := c.rowBytes(), c.outRowBytes(), 4, b.local
	if c.Exponents {
		scale = 1
	}
	rows, chosen, receives := local*c.slots(b), c.Tokens*c.TopK, c.Phase != Send
	return pointers("dispatch", []pointer{
		{"input", c.Input, 16, c.Tokens > 0, c.Tokens * row, false}, {"scales", c.Scales, 4, c.Format == GivenE4M3 && c.Tokens > 0, 4 * c.Tokens * c.RowScales, false},
		{"indices", c.Indices, 4, c.Tokens > 0, chosen * indexBytes(c.Index64), false}, {"weights", c.Weights, 4, false, 4 * chosen, false},
		{"output", c.Output, 16, receives, rows * outRow, true}, {"output_scales", c.OutputScales, 4, scales > 0 && receives, rows * scales * scale, true},
		{"sources", c.Sources, 4, receives, 4 * rows, true}, {"ranges", c.Ranges, 8, receives, 8 * local * b.comm.Size(), true},
		{"received", c.Received, 4, receives, 4 * local, true}, {"statistics", c.Statistics, 4, false, 4 * local, true},
		{"handle", c.Handle, 16, receives, int(b.HandleBytes()), true},
	})
}

// rowBytes are those of a row that is given.
func (c *DispatchCall) rowBytes() int {
	if c.Format == GivenE4M3 {
		return c.Hidden
	}
	return 2 * c.Hidden
}

// outRowBytes are those of a row of an expert.
func (c *DispatchCall) outRowBytes() int {
	if c.Format == BFloat16 {
		return 2 * c.Hidden
	}
	return c.Hidden
}

func indexBytes(wide bool) int {
	if wide {
		return 8
	}
	return 4
}

func (c *DispatchCall) slots(b *Buffer) int { return b.slots(c.Slots) }

// rowScales are the scales of a row that is sent.
func (c *DispatchCall) rowScales() int {
	if c.Format == CastE4M3 {
		return c.Hidden / 128
	}
	return c.RowScales
}

func (c *CombineCall) check(b *Buffer) error {
	if err := b.sizes("combine", c.Phase, c.Tokens, c.Hidden, c.TopK, b.slots(c.Slots), 8); err != nil {
		return err
	}
	row, chosen := 2*c.Hidden, c.Tokens*c.TopK
	return pointers("combine", []pointer{
		{"input", c.Input, 16, c.Phase != Receive, b.local * b.slots(c.Slots) * row, false}, {"indices", c.Indices, 4, c.Tokens > 0, chosen * indexBytes(c.Index64), false},
		{"weights", c.Weights, 4, c.Tokens > 0 && !c.Weighted, 4 * chosen, false}, {"handle", c.Handle, 16, c.Phase != Receive, int(b.HandleBytes()), false},
		{"output", c.Output, 16, c.Tokens > 0 && c.Phase != Send, c.Tokens * row, true},
	})
}

// pointer is a buffer of a call.
type pointer struct {
	name    string
	at      unsafe.Pointer
	align   uintptr
	needed  bool
	bytes   int
	written bool
}

// touches reports whether two buffers, one of which is written, have a byte in common.
func (p *pointer) touches(q *pointer) bool {
	x, y := uint64(uintptr(p.at)), uint64(uintptr(q.at))
	return (p.written || q.written) && p.at != nil && q.at != nil && p.bytes > 0 && q.bytes > 0 && x < y+uint64(q.bytes) && y < x+uint64(p.bytes)
}

func pointers(op string, list []pointer) error {
	for i := range list {
		p := &list[i]
		if p.at == nil && p.needed {
			return invalid(op, "%s is nil", p.name)
		}
		if uintptr(p.at)%p.align != 0 {
			return invalid(op, "%s begins at %#x: expected a multiple of %d bytes", p.name, uintptr(p.at), p.align)
		}
		for k := range i {
			if p.touches(&list[k]) {
				return invalid(op, "%s and %s overlap: expected buffers apart", list[k].name, p.name)
			}
		}
	}
	return nil
}
