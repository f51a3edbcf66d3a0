package verify

import "github.com/mscclpp-go/mscclpp/plan/schema"

// rankMemory is the memory of a rank: user buffers, which may overlap, and the halves of scratch memory.
type rankMemory struct {
	rank         int
	user         *memory // in place: both buffers
	output       *memory // otherwise the output alone; the same as user in place
	scratch      [2]*memory
	inLo, outLo  int32 // where the buffers begin
	inN, outN    int32
	scratchCells int32
	double       bool
}

func newRankMemory(g *schema.GPU, set setting) *rankMemory {
	per := int32(set.chunk / set.cell)
	m := &rankMemory{rank: g.ID, inN: int32(g.InputChunks) * per, outN: int32(g.OutputChunks) * per}
	if set.inPlace {
		switch {
		case g.InputChunks < g.OutputChunks:
			m.inLo = int32(g.ID) * m.inN
		case g.OutputChunks < g.InputChunks:
			m.outLo = int32(g.ID) * m.outN
		}
		m.user = newMemory(g.ID, 'i', max(m.inLo+m.inN, m.outLo+m.outN))
		m.output = m.user
	} else {
		m.user, m.output = newMemory(g.ID, 'i', m.inN), newMemory(g.ID, 'o', m.outN)
	}
	n := 2 * int32(g.ScratchChunks) * per
	m.scratchCells = n
	m.scratch[0] = newMemory(g.ID, 's', n)
	m.scratch[1] = m.scratch[0]
	return m
}

func newMemory(rank int, name byte, n int32) *memory {
	return &memory{rank: rank, buffer: name, cells: make([]cell, n)}
}

// halves gives the scratch memory of the rank a second half.
func (m *rankMemory) halves() {
	m.double = true
	m.scratch[1] = newMemory(m.rank, 's', m.scratchCells)
}

// span returns cells of a buffer in a launch.
func (m *rankMemory) span(b schema.Buffer, lo, n int32, launch int) span {
	switch b {
	case schema.Input:
		return span{m.user, m.inLo + lo, n}
	case schema.Output:
		return span{m.output, m.outLo + lo, n}
	}
	return span{m.scratch[launch&1], lo, n}
}

// input returns the value of a cell of the rank's input in a launch.
func (m *rankMemory) input(v *values, launch int, cell int32) value {
	return v.element(contents{m.rank, launch, 'i'}, m.inN, cell)
}

// fill puts the input of the first launch in place, before anything runs.
func (m *rankMemory) fill(v *values, launch int) {
	if launch > 1 {
		return
	}
	for i := range m.output.cells {
		m.output.cells[i].value = v.element(contents{m.rank, 0, 'o'}, int32(len(m.output.cells)), int32(i))
	}
	for i := range m.inN {
		m.user.cells[m.inLo+i].value = m.input(v, launch, i)
	}
	for k, s := range m.scratch {
		for i := range s.cells {
			s.cells[i].value = v.element(contents{m.rank, -k, 's'}, m.scratchCells, int32(i))
		}
	}
}
