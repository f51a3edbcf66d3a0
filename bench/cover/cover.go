// Package cover chooses test cases from a space that is too large to walk.
//
// Most defects of a library like this one need one value of one parameter, or two
// values of two: the two-phase algorithm and odd sizes; bf16 and avg. A pairwise
// cover contains every possible pair of values at least once, in about as many
// cases as the product of the two largest parameters, instead of the product of all.
//
// The choice is greedy and uses no randomness: the same space gives the same cases
// in the same order on every rank and in every release.
package cover

// Space is the set of cases: one value for each parameter, values numbered from 0.
type Space struct {
	// Values holds the number of values of each parameter.
	Values []int
	// Allowed says whether a case is possible. It is asked about incomplete cases
	// too, where a parameter not chosen yet is Unset; then false means that no
	// completion is possible, and true promises nothing. Nil allows everything.
	Allowed func(choice []int) bool
}

// Unset marks a parameter that has no value yet.
const Unset = -1

// All calls yield for every possible case, the last parameter varying fastest,
// until yield returns false. The slice is reused.
func (s Space) All(yield func([]int) bool) {
	choice := s.empty()
	s.walk(choice, 0, yield)
}

func (s Space) walk(choice []int, at int, yield func([]int) bool) bool {
	if !s.allowed(choice) {
		return true
	}
	if at == len(choice) {
		return yield(choice)
	}
	defer func() { choice[at] = Unset }()
	for v := range s.Values[at] {
		choice[at] = v
		if !s.walk(choice, at+1, yield) {
			return false
		}
	}
	return true
}

// Pairs returns cases in which every pair of values that some possible case
// contains is contained at least once. With one parameter, every value is.
func (s Space) Pairs() [][]int {
	p := newPending(s.Values)
	var cases [][]int
	for {
		a, b, ok := p.first()
		if !ok {
			return cases
		}
		choice := s.empty()
		choice[a.parameter], choice[b.parameter] = a.value, b.value
		if !s.possible(choice) {
			p.done(a, b) // nothing contains this pair
			continue
		}
		s.extend(choice, p, len(cases))
		p.strike(choice)
		cases = append(cases, choice)
	}
}

// extend gives every free parameter the value that meets the most pending pairs.
// Among equals the turn decides, so that values take turns.
func (s Space) extend(choice []int, p *pending, turn int) {
	for at := range choice {
		if choice[at] != Unset {
			continue
		}
		best, bestGain := Unset, -1
		for i := range s.Values[at] {
			v := (i + turn) % s.Values[at]
			gain := p.gain(choice, cell{at, v})
			if gain <= bestGain {
				continue
			}
			choice[at] = v
			if s.possible(choice) {
				best, bestGain = v, gain
			}
			choice[at] = Unset
		}
		choice[at] = best // possible before this parameter, so some value was
	}
}

// possible says whether some case completes choice.
func (s Space) possible(choice []int) bool {
	if !s.allowed(choice) {
		return false
	}
	for at, v := range choice {
		if v != Unset {
			continue
		}
		defer func() { choice[at] = Unset }()
		for v := range s.Values[at] {
			choice[at] = v
			if s.possible(choice) {
				return true
			}
		}
		return false
	}
	return true
}

func (s Space) allowed(choice []int) bool { return s.Allowed == nil || s.Allowed(choice) }

func (s Space) empty() []int {
	choice := make([]int, len(s.Values))
	for i := range choice {
		choice[i] = Unset
	}
	return choice
}
