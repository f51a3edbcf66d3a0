package model

// Constants of the kernels: µs that a rank works, and shares of a rate that are reached.
// Unless a line says otherwise a value is what fits the times of two and four H200s
// best, rounded; a test in package collectives holds all predictions against those times.

// A sum by the switch, as published times of others suggest (docs/performance.md): a barrier of all blocks around one of all
// ranks; and the share of stores that NCCL's sums by the switch reach.
const (
	windowBarrier = 2.6
	windowShare   = 0.95
	windowStep    = (31 << 20) / 3 // bytes; as the engine makes it
	windowWork    = 2.0            // of packets through it
)

const launch = 0.40 // an empty kernel, back to back (2-gpus.latency.txt)

// Packets that carry data and flag: of 8 bytes, 4 of them payload, or lines of 128, of which
// 120 are. A rank has work in every step, and for every peer.
const (
	wordWork, wordPeer, wordLoad = 0.45, 0.11, 2.0
	lineWork, linePeer, lineLoad = 0.80, 0.15, 128.0 / 120
	bareWork, barePeer, bareLoad = 0.30, 0.11, 1.0 // without a flag

	packetShare = 0.86
	bareShare   = 0.95
	packetAlone = 1.00 // from one root, or to one
)

// Packets of kernels that take any number of ranks, and look for one peer after the other.
// They are assumed, and not measured on GPUs.
const (
	manyWork, manyPeer = 2.0, 0.40
	manyShare          = 0.60
)

// Lines in pieces, of a launch that fills the device.
const (
	streamWork  = 6.0
	streamSum   = 2.5 // for each rank whose data is summed
	streamTwice = 8.0 // where the others pass on what one sends
	streamShare = 0.95
)

// Kernels that reach into buffers of the peers, or put shares into their scratch, between
// two barriers.
const (
	fence      = 1.85 // all blocks with those of the peers, besides the link
	pushShare  = 0.98
	pullShare  = 0.97
	pullAlone  = 371.0 / 334 // where links carry nothing the other way (2-gpus.links.txt)
	relayWork  = 15.0        // where the others pass on what one sends, piece by piece
	relayShare = 0.85        // of a link that carries what comes and what is passed on
	pipeWork   = 17.0
	pipeShare  = 0.96
	fetchWork  = 3.0
)

// Stages in memory of the sender, from which all load. Measured on two H200s on 2026-11-21, before
// there was anything better for ordinary buffers.
const (
	stageWork  = 5.0
	stageShare = 0.92 // by all from one root
	stageMove  = 0.70
	stageSum   = 0.52
)

// Copy engines: what a call takes besides its copies, and a copy besides its bytes; copyNext where
// copies of pieces follow each other.
const (
	copyWork, copyGap = 17.0, 3.0
	sumWork           = 4.0
	pieceWork         = 24.0
	copyNext          = 8.0
)
