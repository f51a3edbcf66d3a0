// Package isa decodes the machine code of AMD's GPUs gfx90a and gfx942, as far as the kernels of this tree use it.
//
// It is strict: an encoding that no committed kernel has is an error with its address and bytes, also where the
// processor knows it. So nothing is interpreted by a rule that no test has compared with LLVM's disassembler.
package isa

// Format is an encoding of instructions.
type Format uint8

// Formats, in the words of the manuals.
const (
	SOP2 Format = iota
	SOPK
	SOP1
	SOPC
	SOPP
	SMEM
	VOP1
	VOP2
	VOPC
	VOP3
	VOP3P
	DS
	Flat
	Global
	MUBUF
)

// Form is an operation in one format.
type Form struct {
	Format Format
	Code   uint16 // number of the operation in its format
	Name   string // without the suffix of the format
	Arch   string // of the only processor that has it, or ""

	// Results and sources, a letter each, which says type and size:
	//
	//	u 32 bits     q 64 bits          o 128 bits, t 96 bits
	//	w 16 bits     m a bit per lane, in two scalar registers
	//	h f f16, f32  d f64
	//
	// For data in memory a number of 32-bit registers.
	Results, Sources string

	ID int // place in Forms
}

// Kind is what an operand is.
type Kind uint8

// Kinds of operands.
const (
	None Kind = iota
	Scalar
	Vector
	Constant
)

// Operand is a source or a result.
type Operand struct {
	Kind  Kind
	N     uint16 // first register, or the code of the constant
	Type  byte   // as in Form
	Value uint64 // of a constant, as its type has it

	// Modifiers of sources.
	Neg, Abs, Sext bool
	Part           uint8 // of the register, for SDWA
}

// Scalar registers with names.
const (
	FlatScratch = 102
	VCC         = 106
	M0          = 124
	EXEC        = 126
)

// Parts of a register that SDWA instructions take.
const (
	Byte0 = 0
	Word0 = 4
	DWord = 6
)

// Inst is an instruction.
type Inst struct {
	*Form
	Addr uint64
	Size uint8 // in bytes

	Dst, Mask Operand // Mask is a second result: carries, or what v_div_scale says
	Src       [3]Operand
	Imm       int32   // of SOPK and SOPP
	Offset    int32   // of memory
	Offset2   int32   // of DS instructions with two
	Base      Operand // scalar base of an address; None if there is none

	SDWA     bool
	Part     uint8 // of the result, for SDWA
	Unused   uint8 // the rest of the result: 0 zero, 1 sign, 2 kept
	Clamp    bool
	SC0, SC1 bool // glc is SC0 on gfx90a
	NT       bool // slc on gfx90a
	OpSel    uint8
	OpSelHi  uint8
	NegLo    uint8 // sources of the low half of a packed operation whose sign is turned, a bit each
	NegHi    uint8
	vop3     bool
	literal  bool
	gfx90a   bool
}

// Width is how many 32-bit registers a value of a type takes.
func Width(t byte) int {
	switch t {
	case 'q', 'd', 'm', '2':
		return 2
	case 't', '3':
		return 3
	case 'o', '4':
		return 4
	case '8':
		return 8
	case 'x':
		return 16
	}
	return 1
}
