package exec

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/image"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// Where the memory of a rank lies for the interpreter.
const (
	rankStride = 1 << 40
	atShared   = 1 << 44
	atTables   = atShared + 1<<32
	atControl  = atShared + 2<<32
	atWindow   = 3 << 44
)

func place(base uint64, rank int) uint64 { return base + uint64(rank)*rankStride }

// interpreted is a plan on ranks of the interpreter.
type interpreted struct {
	*interpret.Session
	t      *testing.T
	plan   *schema.Plan
	use    use
	shape  shape
	op     kernel.Op
	packet Packet
	direct bool
	other  bool // it has reductions of its own
	window bool // there is a switch
}

// begin is where the window over a group of all ranks begins.
func (x *interpreted) begin(ranks []int) uint64 {
	if !x.window || len(ranks) != len(x.plan.GPUs) {
		return 0
	}
	return atWindow
}

func (x *interpreted) must(what string, err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatalf("%s: %s: %v", x.plan.Name, what, err)
	}
}

// set maps the memory of all ranks, and enqueues so many launches of each.
func (x *interpreted) set(launches int) {
	x.t.Helper()
	u, all, err := inspect(x.plan)
	x.must("inspect", err)
	x.use = u
	x.shape = newShape(x.plan, &u, x.shape.chunk, true)
	x.must("reset", x.Reset())
	at := make([]uint64, len(all))
	for r := range all {
		at[r] = place(atShared, r)
		x.must("memory", x.Memory(r, fmt.Sprintf("memory-of-rank-%d", r), at[r], windowBytes(x.shape.bytes)))
		x.must("control", x.Memory(r, fmt.Sprintf("control-of-rank-%d", r), place(atControl, r), uint64(unsafe.Sizeof(kernel.WaitControl{}))))
	}
	if x.window {
		x.must("window", x.Window("window", atWindow, windowBytes(x.shape.bytes), at))
	}
	if x.op == kernel.Avg {
		totals, err := verify.Totals(x.plan)
		x.must("totals", err)
		for _, t := range all {
			t.divide(totals)
		}
	}
	for r, t := range all {
		x.other = x.other || slices.ContainsFunc(t.ops, func(o op) bool { return o.Reduction != 0 })
		a := x.tables(r, t, at)
		for range launches {
			x.must("launch", x.Launch(&interpret.Launch{Image: "plan", Entry: x.use.kernel(), Rank: r, Grid: uint32(len(t.blocks)), Block: 64, Overlap: true,
				Arguments: unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a))}))
		}
	}
}

// tables writes those of a rank, as an arena has them.
func (x *interpreted) tables(rank int, t *tables, at []uint64) *args {
	base, a := uintptr(place(atTables, rank)), &arena{shape: x.shape}
	channels := links(&x.plan.GPUs[rank])
	var b builder
	b.add(stateBytes)
	cursors, meetings, expected := b.add(cursorBytes*len(t.blocks)), b.add(meetingBytes*t.meetings), b.add(8*len(channels)+8)
	semaphores := make([]uint32, len(x.plan.GPUs[rank].Semaphores))
	for i, s := range x.plan.GPUs[rank].Semaphores {
		semaphores[i] = uint32(s.Init)
	}
	slots := append(a.slots(at), a.windows(t.groups, true, x.begin)...)
	operands := based(t.operands, slots)
	windows, peers := make([]window, len(at)), make([]uint64, len(at))
	for r := range at {
		if r != rank {
			peers[r] = at[r] + uint64(rank)*noticeBytes
		}
		windows[r] = window{Input: at[r], Output: at[r]}
		if x.use.mates[rank][r] {
			windows[r].Mate = 1
		}
		if x.direct { // buffers of other ranks are where their notices say
			slots[3*r].Address, slots[3*r+1].Address = 0, 0
		}
	}
	memory := make([]kernel.SemaphoreHandle, len(channels))
	for k, peer := range channels {
		memory[k] = kernel.SemaphoreHandle{Inbound: uintptr(at[rank] + a.counter(len(at), k)), Expected: base + uintptr(expected+8*k), Outbound: base + uintptr(expected+8*len(channels)),
			Control: uintptr(place(atControl, rank)), Peer: uint32(peer), ID: uint32(k)}
		if _, other, ok := opposite(x.plan, rank, k); ok {
			memory[k].Outbound = uintptr(at[peer] + a.counter(len(at), other))
		}
	}
	where := func(offset int) uintptr { return base + uintptr(offset) }
	out := &args{
		tableArgs{
			Control: uintptr(place(atControl, rank)), State: base, Cursors: where(cursors), Meetings: where(meetings), Semaphores: where(put(&b, semaphores)),
			Blocks: where(put(&b, t.blocks)), Ops: where(put(&b, reachable(t, slots, x.window))), Operands: where(put(&b, operands)), IDs: where(put(&b, t.ids)), Slots: where(put(&b, slots)),
			Memory: where(put(&b, memory)), Notice: uintptr(at[rank]), Peers: where(put(&b, peers)),
		},
		callArgs{
			Input: uintptr(at[rank] + x.shape.in[rank]), Output: uintptr(at[rank] + x.shape.out[rank]), Chunk: x.shape.chunk,
			ScratchChunk: min(x.shape.chunk, x.shape.scratchChunk), Half: x.shape.half, Signature: 7,
		},
		shapeArgs{BlockCount: uint32(len(t.blocks)), Alignment: uint32(x.plan.Alignment), Rank: uint32(rank), Ranks: uint32(len(at)), Packet: uint32(x.packet), Op: uint32(x.op)},
	}
	if x.direct {
		out.Windows, out.InputOffset, out.OutputOffset = where(put(&b, windows)), x.shape.in[rank], x.shape.out[rank]
		out.Resolved = where(b.add(len(slots) * int(unsafe.Sizeof(slot{})) * len(t.blocks)))
	}
	x.must("tables", x.Memory(rank, fmt.Sprintf("tables-of-rank-%d", rank), uint64(base), uint64(len(b.bytes))))
	x.must("tables", x.Write(uint64(base), b.bytes))
	return out
}

// expect fills the inputs, and has each schedule end with the outputs that so many launches give.
func (x *interpreted) expect(launches int) {
	x.t.Helper()
	n := len(x.plan.GPUs)
	memory, in, out := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for r := range memory {
		b := buffersOf(&x.plan.GPUs[r], x.shape.chunk)
		memory[r] = make([]byte, x.shape.bytes[r])
		in[r], out[r] = memory[r][x.shape.in[r]:][:b.in], memory[r][x.shape.out[r]:][:b.out]
		for i := 0; i+4 <= len(in[r]); i += 4 {
			binary.LittleEndian.PutUint32(in[r][i:], random.Uint32()>>4)
		}
		x.must("input", x.Write(place(atShared, r)+x.shape.in[r], in[r]))
	}
	x.must("save", x.Save())
	for range launches {
		if !x.launch(in, out) {
			return
		}
	}
	for r := range out {
		if len(out[r]) > 0 {
			x.must("expected", x.Write(place(atShared, r)+x.shape.out[r], out[r]))
			x.must("expect", x.Expect(place(atShared, r)+x.shape.out[r], len(out[r])))
		}
	}
	x.must("restore", x.Restore())
}

// launch computes the outputs; false: the collective has no known result.
func (x *interpreted) launch(inputs, out [][]byte) bool {
	in, reduced := make([][]byte, len(inputs)), make([]byte, len(inputs[0]))
	for r := range in {
		in[r] = slices.Clone(inputs[r]) // outputs may lie there
		for i := 0; i+4 <= len(reduced) && i < len(in[r]); i += 4 {
			binary.LittleEndian.PutUint32(reduced[i:], binary.LittleEndian.Uint32(reduced[i:])+binary.LittleEndian.Uint32(in[r][i:]))
		}
	}
	if x.op == kernel.Avg {
		for i := 0; i+4 <= len(reduced); i += 4 {
			binary.LittleEndian.PutUint32(reduced[i:], uint32(int32(binary.LittleEndian.Uint32(reduced[i:]))/int32(len(in))))
		}
	}
	for r := range out {
		part := len(out[r]) / len(out)
		switch x.plan.Collective {
		case "allreduce":
			copy(out[r], reduced)
		case "reducescatter":
			copy(out[r], reduced[r*len(out[r]):])
		case "allgather":
			for k := range in {
				copy(out[r][k*part:], in[k])
			}
		case "alltoall":
			for k := range in {
				copy(out[r][k*part:][:part], in[k][r*part:])
			}
		default:
			return false
		}
	}
	return !x.other
}

// fitsInterpreter reports whether the interpreter can run a plan: it has no engines of ports.
func fitsInterpreter(p *schema.Plan) bool {
	for r := range p.GPUs {
		if len(p.GPUs[r].Peers(schema.Port)) > 0 {
			return false
		}
	}
	return true
}

const mostInterpreted = 500e6 // instructions of threads, in one schedule

// interpreter is a session that has the executor.
func interpreter(t *testing.T) *interpret.Session {
	t.Helper()
	s, err := interpret.Start(t.Context(), emulated.BuildInterpreter(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	images, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	text, err := images.Read("plan-i32-sm_90")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Image("plan", text); err != nil {
		t.Fatal(err)
	}
	return s
}

// The PTX of the executor gives the results of plans, bit for bit, launch after launch, and nothing that it does is without an order: with
// LL8 and LL16, with buffers that are staged and such as ranks reach where they are,
// and through a switch. INTERPRET=full runs all plans of the collection on more schedules.
func TestPlansInTheInterpreter(t *testing.T) {
	s := interpreter(t)
	full := os.Getenv("INTERPRET") == "full"
	var plans []*schema.Plan
	for _, name := range []string{"allreduce-1pa", "allreduce-2pa-packets", "allreduce-2pa-chunks", "allreduce-2pa-switch", "allreduce-pipelined", "allgather-packets", "allgather-chunks", "alltoall"} {
		for _, ranks := range []int{2, 3} {
			p, err := library.Compile(name, library.Shape{Ranks: ranks, Blocks: 2, InPlace: name == "allreduce-2pa-switch"})
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
	}
	files, _ := filepath.Glob("../verify/testdata/right/*.json")
	if full {
		more, _ := filepath.Glob("../../../shared/plans/*/*.json")
		files = append(files, more...)
	}
	for _, file := range files {
		p, err := schema.ReadFile(file)
		if err != nil || full && verify.Plan(p).Verdict != verify.Right {
			continue
		}
		plans = append(plans, p)
	}
	ran, schedules := 0, uint64(1)
	if full {
		schedules = 50
	}
	for i, p := range plans {
		if !fitsInterpreter(p) {
			continue
		}
		formats := []Packet{LL16}
		if p.Protocol == schema.LL {
			formats = append(formats, LL8)
		}
		for _, packet := range formats {
			for _, how := range []struct{ direct, window bool }{{}, {direct: true}, {window: true}} {
				direct := how.direct
				if how.window && len(p.GPUs[0].Switches()) == 0 {
					continue
				}
				x := &interpreted{Session: s, t: t, plan: p, packet: packet, direct: direct, window: how.window}
				x.shape.chunk = chunkFor(p)
				if u, _, err := inspect(p); err != nil || direct && !u.apart {
					continue
				}
				if _, err := verify.Totals(p); err == nil && i%2 == 1 {
					x.op = kernel.Avg
				}
				launches := 3
				x.set(launches)
				if x.use.writes[0] && !x.use.alias { // the input of the next launch is gone
					launches = 1
					x.set(launches)
				}
				x.expect(launches)
				if _, err := s.Run(1, schedules, true, mostInterpreted); err != nil {
					t.Errorf("%s, packets of %d, %v, %+v: %v", p.Name, packet, x.op, how, err)
				}
				ran++
			}
		}
	}
	if ran < 30 {
		t.Errorf("%d cases ran, expected 30 or more", ran)
	}
	t.Logf("%d cases", ran)
}

// A plan that races is found by what its kernels do, too.
func TestRacesInTheInterpreter(t *testing.T) {
	s := interpreter(t)
	for _, name := range []string{"alltoall_no_wait", "alltoall_no_nop_after_wait", "two_signalers_one_wait"} {
		p, err := schema.ReadFile("../verify/testdata/race/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		x := &interpreted{Session: s, t: t, plan: p, packet: LL16}
		x.shape.chunk = chunkFor(p)
		x.set(2)
		x.must("save", s.Save())
		if _, err := s.Run(1, 4, true, mostInterpreted); err == nil || !strings.Contains(err.Error(), "race") {
			t.Errorf("%s: %v: expected a race", name, err)
		}
	}
}

// chunkFor is a small size that the plan takes, and that groups do not divide evenly.
func chunkFor(p *schema.Plan) uint64 {
	a := uint64(p.Alignment)
	n := uint64(max(p.GPUs[0].InputChunks, 1))
	if p.Collective == "allgather" {
		n = uint64(max(p.GPUs[0].OutputChunks, 1))
	}
	return max(5*a, (p.MinSize+n*a-1)/(n*a)*a)
}
