package direct

// barrier: who has heard of a rank of each host has heard of all their ranks.
func (t *call) barrier() {
	if !t.Inside.Alone() {
		t.Meet()
	}
	t.exchange(t.Stream, traffic{})
}
