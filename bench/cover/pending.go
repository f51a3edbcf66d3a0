package cover

// cell is one value of one parameter.
type cell struct{ parameter, value int }

// pending is the set of pairs that no chosen case contains yet: a square matrix
// over all cells. A single parameter is paired with itself.
type pending struct {
	values []int
	start  []int // number of the first cell of each parameter
	cells  int
	open   []bool
	from   int // every pair before this index is closed
}

func newPending(values []int) *pending {
	p := &pending{values: values}
	for _, n := range values {
		p.start = append(p.start, p.cells)
		p.cells += n
	}
	p.open = make([]bool, p.cells*p.cells)
	for a := range values {
		for b := range values {
			if a < b || len(values) == 1 {
				p.openAll(a, b)
			}
		}
	}
	return p
}

func (p *pending) openAll(a, b int) {
	for i := range p.values[a] {
		for j := range p.values[b] {
			if a != b || i == j {
				p.open[p.index(cell{a, i}, cell{b, j})] = true
			}
		}
	}
}

// index is the same for (a, b) and (b, a).
func (p *pending) index(a, b cell) int {
	i, j := p.start[a.parameter]+a.value, p.start[b.parameter]+b.value
	return min(i, j)*p.cells + max(i, j)
}

// first returns a pair that is still open.
func (p *pending) first() (a, b cell, ok bool) {
	for ; p.from < len(p.open); p.from++ {
		if p.open[p.from] {
			return p.cell(p.from / p.cells), p.cell(p.from % p.cells), true
		}
	}
	return cell{}, cell{}, false
}

func (p *pending) cell(number int) cell {
	at := len(p.start) - 1
	for p.start[at] > number {
		at--
	}
	return cell{at, number - p.start[at]}
}

func (p *pending) done(a, b cell) { p.open[p.index(a, b)] = false }

// gain counts the open pairs that c makes with the values chosen so far.
func (p *pending) gain(choice []int, c cell) int {
	n := 0
	for at, v := range choice {
		if v != Unset && at != c.parameter && p.open[p.index(cell{at, v}, c)] {
			n++
		}
	}
	return n
}

// strike closes every pair of a complete case.
func (p *pending) strike(choice []int) {
	for a, v := range choice {
		for b := range a + 1 {
			p.done(cell{b, choice[b]}, cell{a, v})
		}
	}
}
