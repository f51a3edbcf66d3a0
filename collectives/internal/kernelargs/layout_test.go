package kernelargs

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// The Go mirrors of kernels/args.h have the sizes and offsets that a compiler gives
// the originals.
func TestLayoutsAgree(t *testing.T) {
	twins := []layouttest.Twin{
		{Name: "Signature", Go: Signature{}, Fields: map[string]string{"Sequence": "sequence", "Count": "count", "Collective": "collective", "Algorithm": "algorithm", "Type": "type", "Op": "op", "Root": "root"}},
		{Name: "Common", Go: Common{}, Fields: map[string]string{"Control": "control", "State": "state", "Notes": "notes", "Rank": "rank", "Ranks": "ranks", "Lanes": "lanes", "Check": "check",
			"Packets": "packets", "PacketHalf": "packet_half", "Stages": "stages", "StageSlot": "stage_slot", "Pipes": "pipes", "PipeSlot": "pipe_slot",
			"StageSlots": "stage_slots", "PipeSlots": "pipe_slots", "Signature": "signature", "Scratch": "scratch"}},
		{Name: "Args", Go: Args{}, Fields: map[string]string{"Input": "input", "Output": "output", "Count": "count", "Chunk": "chunk", "Type": "type", "Op": "op", "Root": "root",
			"Element": "element", "Scale": "scale", "InputOffset": "input_offset", "OutputOffset": "output_offset", "Memory": "memory", "Window": "window", "Inputs": "inputs", "Outputs": "outputs", "Processes": "processes"}},
		{Name: "LLArgs", Go: LLArgs{}, Fields: map[string]string{"Control": "control", "State": "state", "Notes": "notes", "Rank": "rank", "Ranks": "ranks", "Check": "check", "Release": "release",
			"Area": "area", "Half": "half", "Slot": "slot", "Input": "input", "Output": "output", "Count": "count", "Op": "op", "Element": "element", "Scale": "scale",
			"Signature": "signature", "Scratch": "scratch"}},
		{Name: "StepArgs", Go: StepArgs{}, Fields: map[string]string{"Control": "control", "State": "state", "Notes": "notes", "Rank": "rank", "Ranks": "ranks", "Signal": "signal", "Wait": "wait",
			"Lag": "lag", "Check": "check", "OutputOffset": "output_offset", "Memory": "memory", "Input": "input", "Output": "output", "Inputs": "inputs",
			"Stride": "stride", "Count": "count", "Op": "op", "Scale": "scale", "Signature": "signature", "Scratch": "scratch"}},
		{Name: "Transfer", Go: Transfer{}, Fields: map[string]string{"Buffer": "buffer", "Bytes": "bytes", "Peer": "peer", "Receive": "receive"}},
		{Name: "TransferArgs", Go: TransferArgs{}, Fields: map[string]string{"Transfers": "transfers", "Listed": "listed", "First": "first", "Memory": "memory", "Lines": "lines", "LongBytes": "long_bytes", "Beside": "beside", "BesideSlots": "beside_slots", "List": "list", "Theirs": "theirs"}},
		{Name: "LinePipes", Go: LinePipes{}, Fields: map[string]string{"Offset": "offset", "Lanes": "lanes", "Active": "active", "Slots": "slots", "Groups": "groups"}},
		{Name: "LLTransferArgs", Go: LLTransferArgs{}, Fields: map[string]string{"Control": "control", "State": "state", "Notes": "notes", "Rank": "rank", "Ranks": "ranks",
			"Transfers": "transfers", "Release": "release", "Signature": "signature", "Lines": "lines", "Scratch": "scratch", "List": "list"}},
	}
	twins = append(twins, []layouttest.Twin{
		{Name: "ExchangeNote", Go: ExchangeNote{}, Fields: map[string]string{"Begun": "begun", "Ended": "ended", "Found": "found", "Host": "host", "Theirs": "theirs", "Ours": "ours"}},
		{Name: "ExchangeArgs", Go: ExchangeArgs{}, Fields: map[string]string{"Control": "control", "Inside": "inside", "State": "state", "Note": "note", "Ports": "ports", "Slots": "slots", "Slot": "slot",
			"Input": "input", "Apart": "input_stride", "Output": "output", "Stride": "stride", "Bytes": "bytes", "Host": "host", "Hosts": "hosts", "Giver": "giver", "Taker": "taker", "Signature": "signature"}},
		{Name: "SendRecvNote", Go: SendRecvNote{}, Fields: map[string]string{"Waits": "waits", "Found": "found", "Peer": "peer", "Sent": "sent", "Expected": "expected"}},
		{Name: "SendRecvArgs", Go: SendRecvArgs{}, Fields: map[string]string{"Control": "control", "Inside": "inside", "State": "state", "Peers": "peers", "Note": "note", "Departed": "departed", "Data": "data", "Credit": "credit",
			"Slots": "slots", "Slot": "slot", "Memory": "memory", "First": "first", "Listed": "listed", "Transfers": "transfers", "Rank": "rank", "Ranks": "ranks",
			"Signature": "signature", "List": "list"}},
	}...)
	source := layouttest.Source{Headers: []string{"exchange_args.h", "links.h"}, Namespace: "mscclpp::collectives", Include: []string{"../../kernels", "../../../framework/kernel/include"}}
	layouttest.Agree(t, source, twins, map[string]uint64{
		"sizeof(Mailbox)":               MailboxBytes,
		"offsetof(Mailbox, signature)":  SignatureOffset,
		"sizeof(Mailbox::signature[0])": SignatureBytes,
		"sizeof(State)":                 StateBytes,
		"offsetof(State, epochs)":       NotesBytes,
		"kLLRanks":                      LLRanks,
		"1 << kStepOpen | 1 << (kStepPushed + 4) | 1 << (kStepTaken + 8) | 1 << (kStepDone + 12)": StepOpen | StepPushed<<4 | StepTaken<<8 | StepDone<<12,
		"kMaxBlocks":                         MaxBlocks,
		"offsetof(State, sequence)":          SequenceOffset,
		"offsetof(State, mismatch)":          MismatchOffset,
		"offsetof(State, elsewhere)":         ElsewhereOffset,
		"offsetof(State, unreachable)":       UnreachableOffset,
		"offsetof(State, reason)":            ReasonOffset,
		"offsetof(State, sent)":              SentOffset,
		"offsetof(State, expected)":          ExpectedOffset,
		"kPullBytes":                         PullBytes,
		"sizeof(Signature)":                  uint64(unsafe.Sizeof(Signature{})),
		"kMaxRanks":                          MaxRanks,
		"kMaxLanes":                          MaxLanes,
		"kMaxTransfers":                      MaxTransfers,
		"kOwnPipeSlot":                       OwnPipeSlot,
		"kLLTransfers":                       LLTransfers,
		"8 * kTransferWords":                 TransferBytes,
		"1 + kWordOffer":                     uint64(len(WaitedFor)),
		"kCheckPublish":                      CheckPublish,
		"kCheckCompare":                      CheckCompare,
		"kReleaseSent":                       uint64(ReleaseSent),
		"kReleaseAtOnce":                     uint64(ReleaseAtOnce),
		"kReleaseMet":                        uint64(ReleaseMet),
		"sizeof(ExchangeHead)":               ExchangeHead,
		"sizeof(ExchangeState)":              ExchangeStateBytes,
		"sizeof(ExchangeNote)":               ExchangeNoteBytes,
		"kSendRecvSlots":                     SendRecvSlots,
		"kSendRecvPeers":                     SendRecvPeers,
		"kSendRecvBlocks":                    SendRecvBlocks,
		"sizeof(SendRecvHead)":               SendRecvHead,
		"sizeof(SendRecvState)":              SendRecvStateBytes,
		"sizeof(SendRecvPeer)":               SendRecvPeerBytes,
		"sizeof(SendRecvNote)":               SendRecvNoteBytes,
		"sizeof(mscclpp::PortChannelHandle)": uint64(unsafe.Sizeof(kernel.PortChannelHandle{})),
		"kMismatchSignature":                 MismatchSignature,
		"kMismatchLength":                    MismatchLength,
	})
}

// The builder of images and this package see the same headers as those that define
// arguments: it follows the marker, here they are listed.
func TestArgumentsAreMarked(t *testing.T) {
	headers, err := filepath.Glob("../../kernels/*.h")
	if err != nil {
		t.Fatal(err)
	}
	var marked []string
	for _, h := range headers {
		if filepath.Base(h) == "exchange_args.h" { // of one image
			continue
		}
		text, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		if kernel.HasLayout(string(text)) {
			marked = append(marked, string(text))
		}
	}
	if len(marked) == 0 || kernel.Layout(marked...) != Layout() {
		t.Errorf("%d headers of kernels have the line %q: expected those that are embedded in package kernels", len(marked), kernel.LayoutMarker)
	}
}

// The image of the exchange has the layout that its caller asks for, and no other.
func TestLayoutOfTheExchange(t *testing.T) {
	text, err := os.ReadFile("../../kernels/exchange_args.h")
	if err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile("../../kernels/args.h")
	if err != nil {
		t.Fatal(err)
	}
	if !kernel.HasLayout(string(text)) || ExchangeLayout() != kernel.Layout(string(text), string(args)) || ExchangeLayout() == Layout() {
		t.Errorf("layout %s: expected that of both headers with arguments, marked", ExchangeLayout())
	}
}

// Scratch of any size is divided without overlap and within its bounds, and every
// part is large enough for the kernels' smallest step.
func TestScratchIsDivided(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5, 8, 64, MaxRanks} {
		for _, lanes := range []uint32{1, 4, 32} {
			for i, scratch := range []uint64{1 << 16, 1 << 20, 32 << 20, 1 << 30, 1<<20 + 12345} {
				g, err := Divide(scratch, ranks, lanes, uint64(lanes/32)*(DeviceLine<<(i%2)))
				if err != nil {
					if scratch >= uint64(ranks)*uint64(lanes)*(1<<16)*2 {
						t.Errorf("%d ranks, %d lanes, %d bytes: %v", ranks, lanes, scratch, err)
					}
					continue
				}
				n, l := uint64(ranks), uint64(lanes)
				if g.Total > scratch || g.Stages < g.Packets+2*g.PacketHalf || g.Pipes < g.Stages+l*(StageSlots*g.StageSlot+PipeSlots*min(g.PipeSlot, OwnPipeSlot)) || g.Total < g.Pipes+l*(n-1)*PipeSlots*g.PipeSlot {
					t.Errorf("%d ranks, %d lanes, %d bytes: overlap in %+v", ranks, lanes, scratch, g)
				}
				if g.PacketHalf/n < 4*64 || g.StageSlot < 64*n || g.PipeSlot < PipeHeader+64*8 || g.PacketHalf%64 != 0 || g.StageSlot%64 != 0 || g.PipeSlot%64 != 0 {
					t.Errorf("%d ranks, %d lanes, %d bytes: too small or crooked: %+v", ranks, lanes, scratch, g)
				}
			}
		}
	}
}

// Packets and lines between two GPUs have one place in each half, as a rank sends nothing to itself: as much room as with a place for
// each rank, in half the memory. It holds what tables send there. Kernels take all of the half for it.
func TestPacketsOfTwoHaveOnePlace(t *testing.T) {
	for _, line := range []uint64{DeviceLine, LineRoom} {
		g, err := Divide(128<<20, 2, 32, line)
		if err != nil {
			t.Fatal(err)
		}
		g = g.WithLamport(2)
		for a, least := range map[Area]uint64{PacketArea: 2*512<<10 + 16, LineArea: 8 << 20, LamportArea: 3<<20 + 32} { // sums of 512 KiB, eight rows of all threads, shares of 3 MiB
			if _, half, apart, room := g.LLArea(a, 2); apart != 0 || half != room || room < least {
				t.Errorf("lines of %d, area %d: halves of %d bytes, places of %d at a distance of %d: expected one of %d or more", line, a, half, room, apart, least)
			}
		}
	}
	for ranks, line := range map[int]uint64{2: 0, 3: LineRoom, 8: LineRoom} { // the host, and more ranks
		g, err := Divide(32<<20, ranks, 4, line)
		if err != nil {
			t.Fatal(err)
		}
		if _, half, apart, room := g.WithLamport(ranks).LLArea(LamportArea, ranks); apart != room || uint64(ranks)*room > half || room == 0 {
			t.Errorf("%d ranks, lines of %d: halves of %d bytes, places of %d at a distance of %d", ranks, line, half, room, apart)
		}
	}
}

// Chunks between barriers have the memory of pipes, cut for another number of lanes: their slots stay within it,
// hold whole lines, and a lane tells of enough at a time.
func TestChunksFitIntoPipes(t *testing.T) {
	for ranks := 2; ranks <= MaxRanks; ranks++ {
		g, err := Divide(256<<20, ranks, 32, DeviceLine)
		if err != nil {
			t.Fatal(err)
		}
		room := uint64(g.Lanes) * uint64(ranks-1) * PipeSlots * g.PipeSlot
		for _, lanes := range []uint32{1, 32, 100, MaxLanes} {
			for _, share := range []uint64{0, 1, 1 << 20, 16 << 20, 1 << 30} {
				chunk := g.PipeChunk(share, lanes, uint32(ranks-1))
				if used := uint64(lanes) * uint64(ranks-1) * PipeSlots * chunk; used > room || (g.Pipes|chunk)%Burst != 0 || chunk == 0 {
					t.Errorf("%d ranks, %d lanes, a share of %d: chunks of %d bytes take %d of %d", ranks, lanes, share, chunk, used, room)
				}
			}
			for _, bytes := range []uint64{1, 16 << 20, 129<<20 + 4, 200_000_000, 1 << 30} {
				if chunk := g.ChainChunk(bytes, lanes); chunk%Burst != 0 || chunk == 0 || chunk > g.PipeChunk(bytes, lanes, 1) {
					t.Errorf("%d ranks, %d lanes: a chain of %d bytes has chunks of %d: expected whole bursts of %d that pipes have room for", ranks, lanes, bytes, chunk, Burst)
				}
			}
			if announced := g.PipeChunk(1<<30, lanes, uint32(ranks-1)) * uint64(ranks-1); announced < LeastAnnounced && ranks > 2 || announced < MostFetched {
				t.Errorf("%d ranks, %d lanes: a lane tells of %d bytes of a large share at a time: want %d at least", ranks, lanes, announced, LeastAnnounced)
			}
		}
	}
}

// The bytes beside the pipes of lines between two ranks stay within the slots that pipes have between
// them, and begin where lines of links do.
func TestBesidePipesFitsIntoTheirSlots(t *testing.T) {
	for ranks := 2; ranks <= MaxRanks; ranks++ {
		g, err := Divide(256<<20, ranks, 32, DeviceLine)
		if err != nil {
			t.Fatal(err)
		}
		for lanes := uint32(1); lanes <= MostLineLanes; lanes *= 2 {
			each := uint64(g.Beside(lanes))
			if ranks <= 4 && each == 0 {
				t.Errorf("%d ranks, %d lanes: no room beside pipes", ranks, lanes)
			}
			shared := uint64(max(1, lanes/g.Lanes))
			if used := shared * BesideSlots * each; used > PipeSlots*g.PipeSlot || (each|g.Pipes|g.PipeSlot)%Burst != 0 {
				t.Errorf("%d ranks, %d lanes: %d parts of %d bytes for each take %d of %d", ranks, lanes, BesideSlots, each, used, PipeSlots*g.PipeSlot)
			}
		}
	}
	if BesideSlots < 2 || BesideSlots > LineSlots || BesideSlots&(BesideSlots-1) != 0 {
		t.Errorf("%d slots beside a pipe of %d: want a power of two from 2 on", BesideSlots, LineSlots)
	}
}
