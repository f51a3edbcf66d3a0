package object

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// Kernel is an entry point and what it needs.
type Kernel struct {
	Name  string
	Entry uint64 // address of its first instruction

	Args      []Arg
	ArgsBytes uint64 // size of the segment of arguments
	Group     uint64 // bytes of memory that the threads of a block share
	Private   uint64 // bytes of memory of each thread
	Dynamic   bool   // it has a stack of unknown size
	Threads   uint64 // of a block, at most
	SGPRs     uint64
	VGPRs     uint64
	AGPRs     uint64
	// SGPRSpills counts scalar registers that are kept in lanes of vector registers; VGPRSpills those in memory.
	SGPRSpills, VGPRSpills uint64
	Wave                   uint64 // threads of a wave

	// From the descriptor:
	FloatMode     uint32 // rounding and denormals, as in the hardware's register MODE
	UserSGPRs     int    // scalar registers that are set before the block's number
	ArgsSGPR      int    // the pair with the address of the arguments, or -1
	BlockX        bool   // the number of the block follows them
	BlockY        bool
	BlockZ        bool
	ThreadNumbers int // dimensions of the thread's number in v0

	descriptor string
}

// Arg is one argument, or one of the values that a runtime adds to them.
type Arg struct {
	Offset, Size uint64
	Kind         string // "by_value", "hidden_block_count_x", …
}

const descriptorBytes = 64

// describe reads the descriptor, which has to agree with the notes.
func (k *Kernel) describe(d []byte, address uint64, text Range) error {
	group, private, args := uint64(le32(d)), uint64(le32(d[4:])), uint64(le32(d[8:]))
	if group != k.Group || private != k.Private || args != k.ArgsBytes {
		return fmt.Errorf("code object: kernel %s: descriptor says %d, %d and %d bytes of group memory, private memory and arguments, the notes %d, %d and %d",
			k.Name, group, private, args, k.Group, k.Private, k.ArgsBytes)
	}
	k.Entry = address + binary.LittleEndian.Uint64(d[16:])
	if k.Entry < text.Start || k.Entry >= text.End {
		return fmt.Errorf("code object: kernel %s: entry %#x: expected it in the code, %#x to %#x", k.Name, k.Entry, text.Start, text.End)
	}
	rsrc1, rsrc2, properties := le32(d[48:]), le32(d[52:]), binary.LittleEndian.Uint16(d[56:])
	k.FloatMode = rsrc1 >> 12 & 0xff
	k.UserSGPRs = int(rsrc2 >> 1 & 0x1f)
	k.BlockX, k.BlockY, k.BlockZ = rsrc2>>7&1 != 0, rsrc2>>8&1 != 0, rsrc2>>9&1 != 0
	k.ThreadNumbers = int(rsrc2>>11&3) + 1
	return k.user(properties)
}

// user finds the registers that a runtime fills. The bits of the properties say which, in this order.
func (k *Kernel) user(properties uint16) error {
	sizes := []int{4, 2, 2, 2, 2, 2, 1}      // private segment buffer, dispatch, queue, arguments, dispatch id, flat scratch, private size
	const scratch, arguments, flat = 0, 3, 5 // a kernel that spills nothing may still ask where its private memory is
	next := 0
	k.ArgsSGPR = -1
	for i, size := range sizes {
		if properties>>i&1 == 0 {
			continue
		}
		switch i {
		case scratch, flat:
		case arguments:
			k.ArgsSGPR = next
		default:
			return fmt.Errorf("code object: kernel %s: descriptor properties %#x: expected the address of the arguments, and at most that of private memory", k.Name, properties)
		}
		next += size
	}
	if next != k.UserSGPRs {
		return fmt.Errorf("code object: kernel %s: %d user registers, of which properties %#x explain %d", k.Name, k.UserSGPRs, properties, next)
	}
	return nil
}

// noteMetadata is the type of the note with what a runtime has to know, NT_AMDGPU_METADATA.
const noteMetadata = 32

// metadata finds the note.
func metadata(f *elf.File) ([]byte, error) {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		data, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("code object: notes: %w", err)
		}
		for len(data) >= 12 {
			name, size, kind := uint64(le32(data)), uint64(le32(data[4:])), le32(data[8:])
			start := 12 + (name+3)&^3
			end := start + size
			if end > uint64(len(data)) {
				return nil, fmt.Errorf("code object: a note ends at byte %d of %d", end, len(data))
			}
			if kind == noteMetadata && string(data[12:12+name]) == "AMDGPU\x00" {
				return data[start:end], nil
			}
			data = data[min((end+3)&^3, uint64(len(data))):]
		}
	}
	return nil, fmt.Errorf("code object: no note of type %d of AMDGPU", noteMetadata)
}
