package inference

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
)

// Norm is how rows are normalized.
type Norm uint32

// The norms. RMSNorm is the default.
const (
	RMSNorm   Norm = iota // x / sqrt(mean(x²) + ε) · weight
	LayerNorm             // (x - mean(x)) / sqrt(var(x) + ε) · weight
	NoNorm                // x
	norms
)

// Rows are which rows the buffers of a rank have. A rank owns ceil(tokens / ranks) rows, the first rank the first ones; of the last
// ranks some may own fewer or none.
type Rows uint32

// The choices.
const (
	AllRows     Rows = iota // all buffers have all rows
	OwnResidual             // residual and residual_out have the rank's own: reduce-scatter, residual and norm, all-gather
	OwnRows                 // so has the output: reduce-scatter, residual and norm
	OwnInput                // input, residual and residual_out have the rank's own, the output has all: residual and norm, all-gather
	Local                   // all buffers have the rows of this call, and there is no communication: residual and norm
	rowChoices
)

// Quantization is the format of the elements of an output that has fewer bits than the input.
type Quantization uint32

// The quantizations: an element is the normalized one, rounded to the type of the input and divided by a scale.
const (
	NotQuantized  Quantization = iota
	E4M3PerToken               // 8-bit floats; the scale of a row is written: its largest magnitude over 448
	E4M3PerTensor              // 8-bit floats; one scale is given
	Int8PerToken               // integers; the scale of a row is written: its largest magnitude over 127
	Int8PerTensor              // integers; one scale is given
	quantizations
)

// Shots are how the inputs of ranks are added up.
type Shots uint32

// Automatic chooses by the size. OneShot has every rank send its input to all others, and add all up; TwoShot sends a row to
// one rank, which adds it up and sends the sum to the others.
const (
	Automatic Shots = iota
	OneShot
	TwoShot
)

// NormCall is one call of AllReduceNorm. All ranks pass the same numbers, and the same residual, weight and bias. Buffers
// are rows without gaps, aligned to 16 bytes. Output may be Input, and ResidualOut may be Input or Residual, where both have the
// same rows; other buffers do not overlap those that are written.
//
// On GPUs with programmatic dependent launch the next kernel of the stream may begin before this one has ended, if it was
// launched with that attribute, as soon as the kernel before this one has ended and all blocks of this one have begun: it may read what no earlier kernel writes, such as its weights, and waits
// (griddepcontrol.wait) before it reads what this one writes, or writes what this one reads. Kernels without the
// attribute begin when this one has ended.
type NormCall struct {
	Norm           Norm
	Rows           Rows
	Quantization   Quantization
	Shots          Shots
	Type           kernel.DataType // f16, bf16 or f32, of all buffers but a quantized output
	Tokens, Hidden int             // rows, and elements of one: a multiple of 8
	Epsilon        float32

	Input       unsafe.Pointer // of this rank, to be added up
	Residual    unsafe.Pointer // nil: there is none
	Weight      unsafe.Pointer // one row; nil with NoNorm
	Bias        unsafe.Pointer // one row, added behind the weight; nil: there is none
	Output      unsafe.Pointer // the normalized rows
	ResidualOut unsafe.Pointer // the sum of all ranks and the residual; with NoNorm it may be nil
	Scales      unsafe.Pointer // f32, one for each row, written: of quantization per token
	Scale       unsafe.Pointer // f32, one, read: of quantization per tensor

	Stream device.Stream
}

// mostHidden bounds rows, and mostTokens calls.
const mostHidden, mostTokens = 1 << 20, 1 << 30

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: all_reduce_norm: "+format, append([]any{framework.ErrInvalid}, args...)...)
}

// check says what is wrong with a call.
func (c *NormCall) check() error {
	switch {
	case c.Type != kernel.Float16 && c.Type != kernel.BFloat16 && c.Type != kernel.Float32:
		return invalid("elements of %v: expected f16, bf16 or f32", c.Type)
	case c.Hidden <= 0 || c.Hidden%8 != 0 || c.Hidden > mostHidden:
		return invalid("rows of %d elements: expected a multiple of 8, at most %d", c.Hidden, mostHidden)
	case c.Tokens < 0 || c.Tokens > mostTokens:
		return invalid("%d rows: expected 0 to %d", c.Tokens, mostTokens)
	case c.Norm >= norms:
		return invalid("norm %d: expected 0 (RMSNorm), 1 (LayerNorm) or 2 (none)", c.Norm)
	case c.Rows >= rowChoices:
		return invalid("rows %d: expected 0 to %d", c.Rows, rowChoices-1)
	case c.Rows != AllRows && c.Shots == OneShot:
		return invalid("shots 1 with rows %d: expected 0 or 2, as a row is added up by its owner", c.Rows)
	case c.Quantization >= quantizations:
		return invalid("quantization %d: expected 0 to %d", c.Quantization, quantizations-1)
	case c.Shots > TwoShot:
		return invalid("shots %d: expected 0 (automatic), 1 or 2", c.Shots)
	case !(c.Epsilon >= 0) || math.IsInf(float64(c.Epsilon), 0):
		return invalid("epsilon %v: expected a finite number, 0 or more", c.Epsilon)
	}
	return nil
}

// buffer is one of a call.
type buffer struct {
	name    string
	at      unsafe.Pointer
	bytes   uint64
	written bool
	may     bool // be nil
	none    bool // must be nil
	align   uintptr
}

// share is how many rows a rank owns at most, and own how many this one does.
func (c *NormCall) share(rank, ranks int) (share, own uint64) {
	tokens, n := uint64(c.Tokens), uint64(ranks)
	share = (tokens + n - 1) / n
	begin := min(tokens, share*uint64(rank))
	return share, min(tokens-begin, share)
}

func (c *NormCall) buffers(rank, ranks int) [8]buffer {
	row, all := uint64(c.Hidden)*uint64(c.Type.Size()), uint64(c.Tokens)
	_, own := c.share(rank, ranks)
	input, residual, output := all, all, all
	switch c.Rows {
	case OwnResidual:
		residual = own
	case OwnRows:
		residual, output = own, own
	case OwnInput:
		input, residual = own, own
	}
	out, outAlign := output*row, uintptr(16)
	if c.Quantization != NotQuantized {
		out, outAlign = output*uint64(c.Hidden), 8
	}
	plain := c.Norm == NoNorm
	scales := c.Quantization == E4M3PerToken || c.Quantization == Int8PerToken
	scale := c.Quantization == E4M3PerTensor || c.Quantization == Int8PerTensor
	return [8]buffer{
		{"input", c.Input, input * row, false, false, false, 16},
		{"residual", c.Residual, residual * row, false, true, false, 16},
		{"weight", c.Weight, row, false, plain, plain, 16},
		{"bias", c.Bias, row, false, true, plain, 16},
		{"output", c.Output, out, true, false, false, outAlign},
		{"residual_out", c.ResidualOut, residual * row, true, plain && (c.Quantization == NotQuantized || c.Rows == OwnInput && c.Residual == nil), false, 16},
		{"scales", c.Scales, 4 * output, true, !scales, !scales, 4},
		{"scale", c.Scale, 4, false, !scale, !scale, 4},
	}
}

// checkBuffers says what is wrong with the buffers of a call.
func (c *NormCall) checkBuffers(rank, ranks int) error {
	list := c.buffers(rank, ranks)
	for i := range list {
		b := &list[i]
		switch {
		case b.at == nil && !b.may && b.bytes > 0:
			return invalid("%s is nil", b.name)
		case b.at != nil && b.none:
			return invalid("%s was given, which a call with norm %d and quantization %d does not have", b.name, c.Norm, c.Quantization)
		case uintptr(b.at)%b.align != 0:
			return invalid("%s begins at %#x: expected a multiple of %d bytes", b.name, uintptr(b.at), b.align)
		}
	}
	for i := range list {
		for k := range i {
			a, b := &list[k], &list[i]
			if !a.written && !b.written || a.at == nil || b.at == nil || !touch(a, b) || c.together(a, b) {
				continue
			}
			return invalid("%s and %s overlap: expected that output is input or apart, residual_out input, residual or apart, and others apart", a.name, b.name)
		}
	}
	return nil
}

// together reports whether two buffers may be one.
func (c *NormCall) together(a, b *buffer) bool {
	if a.at != b.at || a.bytes != b.bytes {
		return false
	}
	switch b.name {
	case "output":
		return a.name == "input"
	case "residual_out":
		return a.name == "residual" || a.name == "input" && c.Output != c.Input
	}
	return false
}

// touch reports whether two buffers have a byte in common.
func touch(a, b *buffer) bool {
	x, y := uint64(uintptr(a.at)), uint64(uintptr(b.at))
	return a.bytes > 0 && b.bytes > 0 && x < y+b.bytes && y < x+a.bytes
}

// signature is a hash of the arguments that all ranks must have in common: the kernel compares it.
func (a *normArgs) signature(t kernel.DataType) uint32 {
	present := uint32(0)
	if a.Residual != 0 && a.Flags&ownResidual == 0 { // else it is its owner's alone
		present = 1
	}
	if a.Bias != 0 {
		present |= 2
	}
	return ownkernel.Signature(uint32(t), a.Tokens, a.Hidden, a.Flags&^(pairs|quads|early), a.Quantized, math.Float32bits(a.Epsilon), present, a.Ranks, a.First, a.Count)
}
