package kernelargs

const (
	blockThreads = 512         // of one block at most
	piece        = 16          // bytes that a thread moves
	groupBytes   = 120 * piece // of payload in 16 lines
	groupColumn  = 32          // threads that move them
)

// Cut says how a message is cut into chunks, as the function cut_message of the
// kernels: how many there are, and how many groups of lines a full one has.
func (p *LinePipes) Cut(bytes uint64) (chunks, groups uint64) {
	if bytes <= groupBytes-piece {
		return 1, 1
	}
	up := func(n, unit uint64) uint64 { return (n + unit - 1) / unit }
	share, most := up(bytes, uint64(p.Lanes)), uint64(p.Groups)*groupBytes-piece
	each := up(share, up(share, most))
	groups = up(each+piece, groupBytes)
	return up(bytes, groups*groupBytes-piece), groups
}

// Shape says how many lanes a group of messages takes and how its kernel is launched:
// two blocks for each lane, one that sends and one that receives, with a warp for each
// group of lines that a lane has at once.
func (p *LinePipes) Shape(list []Transfer) (active, grid, block uint32) {
	var chunks, columns uint64
	for i := range list {
		n, groups := p.Cut(list[i].Bytes)
		chunks = max(chunks, n)
		columns = max(columns, groups*min((n+uint64(p.Lanes)-1)/uint64(p.Lanes), LineSlots/2)*groupColumn)
	}
	active = uint32(min(chunks, uint64(p.Lanes)))
	return active, 2 * active, uint32(min(columns, blockThreads))
}
