package exec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// collection is where plans for development lie beside the repository, on machines that have them.
const collection = "../../../shared/plans"

// Every plan of the collection that ends gives its result: for several sizes, in place and not, with both formats of
// packets, launch after launch without a barrier between.
func TestCollection(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(collection, "INDEX.md"))
	if err != nil {
		t.Skip("this machine has no collection of plans beside the repository")
	}
	n := 0
	for line := range strings.Lines(string(index)) {
		x, ok := row(line)
		if !ok {
			continue
		}
		n++
		t.Run(x.file, func(t *testing.T) {
			p, err := schema.ReadFile(filepath.Join(collection, x.file))
			if err != nil {
				t.Fatal(err)
			}
			runAll(t, p, x)
		})
	}
	if n < 45 {
		t.Errorf("the index names %d plans that end, expected 45 or more", n)
	}
}

// entry is a plan of the collection, and what it computes.
type entry struct{ file, result string }

func row(line string) (x entry, ok bool) {
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	if len(cells) < 4 || !strings.Contains(cells[1], ".json") {
		return x, false
	}
	x.file = cells[1]
	verdict := cells[2]
	if len(cells) > 13 {
		x.result, verdict = cells[12], cells[13]
	}
	switch {
	case strings.HasSuffix(x.file, "switch_reduce_alone-2ranks.json"):
		x.result = "AR-o"
		return x, true
	case strings.HasPrefix(x.file, "own/"):
		x.result = "AG"
		if strings.Contains(x.file, "base") || strings.Contains(x.file, "switch_key") {
			x.result = "AR"
		}
	}
	return x, strings.HasPrefix(verdict, "right") || verdict == "ends"
}

// runAll runs a plan with all that may vary.
func runAll(t *testing.T, p *schema.Plan, x entry) {
	formats := []exec.Packet{exec.LL16}
	if p.Protocol == schema.LL {
		formats = []exec.Packet{exec.LL8, exec.LL16}
	}
	job(t, len(p.GPUs), func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		defer e.Close()
		mine, err := exchanged(ctx, c, p)
		if err != nil {
			return err
		}
		seed := uint64(0)
		for _, chunk := range chunks(p) {
			for _, packet := range formats {
				for launch := range 4 {
					seed++
					m := memory(mine, launch%2 == 1, p, c.Rank(), chunk)
					if err := runOnce(e, c.Rank(), chunk, packet, x, seed, launch >= 2, m); err != nil {
						return fmt.Errorf("chunks of %d bytes, packets of %d, launch %d: %w", chunk, packet, launch, err)
					}
				}
			}
		}
		return nil
	})
}

// chunks are sizes of chunks: the smallest, one that groups do not divide evenly, and several turns of pipelines.
func chunks(p *schema.Plan) []int {
	n := p.GPUs[0].InputChunks
	if p.Collective == "allgather" || n == 0 {
		n = p.GPUs[0].OutputChunks
	}
	a := p.Alignment
	if n == 0 {
		return []int{a}
	}
	legal := func(chunk int) bool { return uint64(chunk*n) >= p.MinSize && uint64(chunk*n) <= p.MaxSize }
	least := a
	for !legal(least) {
		least += a
	}
	out := []int{least}
	list := []int{least + 7*a, 1040 * a}
	if len(p.GPUs) > 8 {
		list = list[:1]
	}
	for b := range p.GPUs[0].Blocks {
		for _, o := range p.GPUs[0].Blocks[b].Ops {
			if o.Iter != nil && o.Iter.Unit < 1<<22 {
				list = append(list, (o.Iter.Unit*5/2)/a*a+a)
			}
		}
	}
	for _, c := range list {
		if legal(c) {
			out = append(out, c)
		}
	}
	return out
}

// fill makes the input of a rank for a launch, which all ranks know.
func fill(bytes int, seed uint64, rank int) []byte {
	b := make([]byte, bytes)
	r := rand.New(rand.NewPCG(seed, uint64(rank)))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// sum adds parts as integers of 32 bits.
func sum(parts ...[]byte) []byte {
	out := make([]byte, len(parts[0]))
	for _, p := range parts {
		for i := 0; i+4 <= len(out); i += 4 {
			binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(out[i:])+binary.LittleEndian.Uint32(p[i:]))
		}
	}
	return out
}

// exchanged is memory that all ranks know, for the largest buffers of a plan.
func exchanged(ctx context.Context, c *comm.Communicator, p *schema.Plan) (*comm.Memory, error) {
	bytes := 0
	for r := range p.GPUs {
		bytes = max(bytes, (p.GPUs[r].InputChunks+p.GPUs[r].OutputChunks)*slices.Max(chunks(p)))
	}
	m, err := c.Alloc(uint64(bytes + 256))
	if err != nil {
		return nil, err
	}
	_, err = c.Exchange(ctx, m)
	return m, err
}

// memory is where a launch has its buffers: of each rank at another place of its exchanged memory, or not there at all.
func memory(m *comm.Memory, direct bool, p *schema.Plan, rank, chunk int) []byte {
	bytes := (p.GPUs[rank].InputChunks + p.GPUs[rank].OutputChunks) * chunk
	if !direct {
		return make([]byte, bytes)
	}
	return device.Bytes(m)[16*(rank%4):][:bytes]
}

func runOnce(e *exec.Executor, rank, chunk int, packet exec.Packet, x entry, seed uint64, apart bool, m []byte) error {
	p := e.Plan()
	g := &p.GPUs[rank]
	in, out := make([][]byte, len(p.GPUs)), m[:g.OutputChunks*chunk]
	clear(out)
	for r := range in {
		in[r] = fill(p.GPUs[r].InputChunks*chunk, seed, r)
	}
	own := m[len(out):][:len(in[rank])]
	copy(own, in[rank])
	if !apart { // where the plan works in place
		switch x.result {
		case "AR", "A2A":
			copy(out, own)
			own = out
		case "AG", "AG-alias":
			part := out[rank*len(own):][:len(own)]
			copy(part, own)
			own = part
		case "RS":
			out = own[rank*len(out):][:len(out)]
		}
	}
	c := &exec.Call{Input: pointer(own), Output: pointer(out), InputBytes: uint64(len(own)), OutputBytes: uint64(len(out)), Type: kernel.Int32, Packet: packet}
	if err := e.Execute(c); err != nil {
		return err
	}
	return expect(p, rank, chunk, x, in, own, out)
}
