package collectives

import (
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
)

// Names of package kernelargs under which the files of this package know them, until they have moved.
type (
	signature    = kernelargs.Signature
	transfer     = kernelargs.Transfer
	stepArgs     = kernelargs.StepArgs
	exchangeNote = kernelargs.ExchangeNote
	exchangeArgs = kernelargs.ExchangeArgs
	mailNote     = kernelargs.SendRecvNote
	mailArgs     = kernelargs.SendRecvArgs
)

const (
	maxRanks           = kernelargs.MaxRanks
	maxTransfers       = kernelargs.MaxTransfers
	line               = kernelargs.CacheLine
	transferBytes      = kernelargs.TransferBytes
	exchangeHead       = kernelargs.ExchangeHead
	exchangeStateBytes = kernelargs.ExchangeStateBytes
	exchangeNoteBytes  = kernelargs.ExchangeNoteBytes
	mailSlots          = kernelargs.SendRecvSlots
	mailPeers          = kernelargs.SendRecvPeers
	mailBlocks         = kernelargs.SendRecvBlocks
	mailHead           = kernelargs.SendRecvHead
	mailStateBytes     = kernelargs.SendRecvStateBytes
	mailWayBytes       = kernelargs.SendRecvPeerBytes
	mailNoteBytes      = kernelargs.SendRecvNoteBytes
)

func nameID(name string) uint32      { return kernelargs.NameID(name) }
func same(a, b *signature) bool      { return kernelargs.SameCall(a, b) }
func at(addr uintptr) unsafe.Pointer { return kernelargs.At(addr) }

const (
	sumBlocks = 64                     // of a launch that sums
	wordBytes = 16                     // pieces begin at multiples of it
	stallTick = 250 * time.Millisecond // how often the watch looks
)
