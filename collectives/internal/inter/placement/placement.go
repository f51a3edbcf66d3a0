// Package placement says which ranks of a job share a host, and which of them serves which on the other hosts.
// It computes, and communicates nothing.
package placement

import "slices"

// Placement is where the ranks are. Hosts need not have the same number of ranks.
type Placement struct {
	Rank  int
	Hosts [][]int // ranks by host and index
	Host  int     // of this rank
	Index int     // on its host
	Local []bool  // by rank: on this host

	Cuts         uint64 // in how many segments a vector is cut for two steps
	Fewest, Most int    // ranks of a host
	Multiple     uint64 // a number that every host's number of ranks divides; 1 if that is large
}

// New places a rank among hosts, of which there is one at least.
func New(hosts [][]int, rank int) *Placement {
	ranks := 0
	p := &Placement{Rank: rank, Hosts: hosts, Fewest: len(hosts[0]), Multiple: commonMultiple(hosts)}
	for i, on := range hosts {
		p.Fewest, p.Most = min(p.Fewest, len(on)), max(p.Most, len(on))
		ranks += len(on)
		if at := slices.Index(on, rank); at >= 0 {
			p.Host, p.Index = i, at
		}
	}
	if p.Cuts = p.Multiple; p.Cuts == 1 {
		p.Cuts = uint64(p.Most)
	}
	p.Local = make([]bool, ranks)
	for _, r := range hosts[p.Host] {
		p.Local[r] = true
	}
	return p
}

// commonMultiple is the least one of the numbers of ranks, or 1 if that is large.
func commonMultiple(hosts [][]int) uint64 {
	multiple := uint64(1)
	for _, ranks := range hosts {
		a, b := multiple, uint64(len(ranks))
		for b != 0 {
			a, b = b, a%b
		}
		if multiple = multiple / a * uint64(len(ranks)); multiple > 1<<10 {
			return 1
		}
	}
	return multiple
}

// Ranks is the number of all ranks.
func (p *Placement) Ranks() int { return len(p.Local) }

// Size is the number of ranks on this host.
func (p *Placement) Size() int { return len(p.Hosts[p.Host]) }

// Find says where a rank is.
func (p *Placement) Find(rank int) (host, index int) {
	for g, ranks := range p.Hosts {
		for i, r := range ranks {
			if r == rank {
				return g, i
			}
		}
	}
	return -1, -1
}

// InOrder reports whether the ranks of each host are one behind another, and hosts are of
// one size.
func (p *Placement) InOrder() bool {
	for g, ranks := range p.Hosts {
		for i, r := range ranks {
			if r != g*p.Most+i {
				return false
			}
		}
	}
	return true
}

// Counterparts are the ranks that this one sends the part of its host to: where a host
// has more ranks than this one, some have to serve two.
func (p *Placement) Counterparts(f func(rank int) error) error {
	return p.OtherHosts(func(g int) error {
		for j := p.Index; j < len(p.Hosts[g]); j += p.Size() {
			if err := f(p.Hosts[g][j]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Counterpart is the rank of another host from which this one has its part.
func (p *Placement) Counterpart(g int) int { return p.Hosts[g][p.Index%len(p.Hosts[g])] }

// OtherHosts calls f for the hosts behind this one, and then for those before.
func (p *Placement) OtherHosts(f func(g int) error) error {
	for d := 1; d < len(p.Hosts); d++ {
		if err := f((p.Host + d) % len(p.Hosts)); err != nil {
			return err
		}
	}
	return nil
}

// Rounds calls f for all ranks of other hosts, as many at a time as this one has ranks:
// they are the counterparts of these.
func (p *Placement) Rounds(f func(g, first int) error) error {
	return p.OtherHosts(func(g int) error {
		for first := 0; first < len(p.Hosts[g]); first += p.Size() {
			if err := f(g, first); err != nil {
				return err
			}
		}
		return nil
	})
}

// CountRounds is how many there are.
func (p *Placement) CountRounds() (n uint64) {
	_ = p.Rounds(func(int, int) error { n++; return nil })
	return n
}

// Runs calls f for the ranks of other hosts, with as many at a time as have their parts
// one behind another, if parts are whole.
func (p *Placement) Runs(whole bool, f func(first, n uint64)) {
	for r := 0; r < len(p.Local); {
		n := 1
		for whole && r+n < len(p.Local) && !p.Local[r] && !p.Local[r+n] {
			n++
		}
		if !p.Local[r] {
			f(uint64(r), uint64(n))
		}
		r += n
	}
}

// Share is what one of n ranks has of a vector; the last ones may have less.
func Share(count uint64, n int) uint64 { return (count + uint64(n) - 1) / uint64(n) }

// Span is what one rank has of a vector.
type Span struct {
	Rank     int
	From, To uint64 // elements
}

// Mine is what this rank has of a vector, by the division of its host.
func (p *Placement) Mine(count uint64) Span {
	each := Share(count, p.Size())
	from := min(uint64(p.Index)*each, count)
	return Span{p.Hosts[p.Host][p.Index], from, min(from+each, count)}
}

// Overlaps calls f for the ranks of another host that have some of what this one has,
// each with what both have.
func (p *Placement) Overlaps(count uint64, g int, f func(s Span) error) error {
	own, each := p.Mine(count), Share(count, len(p.Hosts[g]))
	for at := own.From; at < own.To; {
		i := at / each
		end := min((i+1)*each, own.To)
		if err := f(Span{p.Hosts[g][i], at, end}); err != nil {
			return err
		}
		at = end
	}
	return nil
}
