package model

// Copy engines leave the multiprocessors to others: they are worth that share of time.
const copyWorth = 1.1

// Best is the algorithm among some that takes the least time by the model, and that time; of
// equals the first. Copies may take a tenth longer. false: the model knows none of them.
func (l Links) Best(c Call, among []string) (name string, us float64, known bool) {
	worth := 0.0
	for _, a := range among {
		c.Algorithm = a
		t, ok := l.Time(c)
		if !ok {
			continue
		}
		v := t
		if a == "copy" {
			v /= copyWorth
		}
		if !known || v < worth {
			name, us, worth, known = a, t, v, true
		}
	}
	return name, us, known
}
