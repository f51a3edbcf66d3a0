package model

// Copy engines leave the multiprocessors to others: they may take a tenth longer.
const copyWorth = 1.1

// Best is the place of the cost among some that takes the least time by the model, and that time; of equals the first.
// false: none of them has a time.
func (l Links) Best(c Call, among []*Cost) (at int, us float64, known bool) {
	worth := 0.0
	for i, by := range among {
		t, ok := l.Time(by, c)
		if !ok {
			continue
		}
		v := t
		if by.worth != 0 {
			v /= by.worth
		}
		if !known || v < worth {
			at, us, worth, known = i, t, v, true
		}
	}
	return at, us, known
}
