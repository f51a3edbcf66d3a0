package collectivetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// movements are the collectives that move data, and change none of it.
func movements() []collectives.Collective {
	return []collectives.Collective{collectives.AllGather, collectives.Broadcast, collectives.AllToAll, collectives.Gather, collectives.Scatter}
}

// patternsOfACall is how many patterns of 16 bits a rank gives in one call: four calls have all of them.
const patternsOfACall = 1 << 14

// EveryPattern moves every pattern of 16 bits, and words and packets of ones, by each algorithm that takes the calls. It says by how many.
// All ranks call it. The buffers of the rig have 36 KiB for each pair of ranks.
func EveryPattern(c *collectives.Comm, rig Rig) (moved int, err error) {
	for _, kind := range movements() {
		for _, algorithm := range append(c.Algorithms(kind), "") {
			x := Trial{Kind: kind, Algorithm: algorithm, Count: (patternsOfACall + 64) / 2, Type: kernel.Float32, Root: rig.Ranks - 1}
			request := x.Request(rig.Ranks)
			request.Registered = true
			if _, err := c.Choice(request, algorithm); errors.Is(err, framework.ErrUnsupported) {
				continue
			} else if err != nil {
				return moved, fmt.Errorf("%v: %w", x, err)
			}
			for part := range 1 << 16 / patternsOfACall {
				if err := x.movePatterns(rig, part); err != nil {
					return moved, fmt.Errorf("%v, part %d: %w", x, part, err)
				}
			}
			moved++
		}
	}
	return moved, nil
}

func (t Trial) movePatterns(rig Rig, part int) error {
	inputs := make([][]byte, rig.Ranks)
	elements, outputs := t.Elements(rig.Ranks)
	for r := range inputs {
		for len(inputs[r]) < elements*t.Type.Size() {
			for i := range patternsOfACall {
				inputs[r] = binary.LittleEndian.AppendUint16(inputs[r], uint16((part+r)*patternsOfACall+i))
			}
			inputs[r] = append(inputs[r], bytes.Repeat([]byte{0xff}, 128)...)
		}
		inputs[r] = inputs[r][:elements*t.Type.Size()]
	}
	got := bytes.Repeat([]byte{untouchedByte}, outputs*t.Type.Size())
	err := errors.Join(rig.In.Write(inputs[rig.Rank], 0), rig.Out.Write(got, 0))
	if err == nil {
		err = rig.Call(t, rig.In.Pointer(0), rig.Out.Pointer(0))
	}
	if err == nil && rig.Settle != nil {
		err = rig.Settle()
	}
	if err == nil {
		err = rig.Out.Read(got, 0)
	}
	if err != nil {
		return err
	}
	if want := t.Expect(rig.Rank, inputs); want != nil && !bytes.Equal(got[:len(want)], want) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		return fmt.Errorf("byte %d is %#x, expected %#x as it was sent", at, got[at], want[at])
	}
	return nil
}
