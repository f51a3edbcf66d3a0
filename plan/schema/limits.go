package schema

import "math"

// Limits bound what a reader takes from a file. They exist so that a broken file cannot take all memory; every one of
// them can be raised.
type Limits struct {
	Bytes  int64 // of the text, uncompressed
	Ranks  int
	Blocks int // of one rank
	Ops    int // of one block, those of pipelines included
	List   int // elements of any other list
	Chunks int // of one buffer
}

// DefaultLimits are those of Parse and ReadFile.
var DefaultLimits = Limits{Bytes: 1 << 30, Ranks: 8192, Blocks: 4096, Ops: 1 << 20, List: 1 << 16, Chunks: 1 << 24}

// maxNumber is the largest number of a field that counts no chunks and no bytes of a message.
const maxNumber = math.MaxInt32
