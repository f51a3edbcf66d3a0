package direct

// barrier: a rank that has a message from one rank of each host knows that all of them have come.
func (t *call) barrier() {
	if !t.Inside.Alone() {
		t.Meet()
	}
	t.exchange(t.Stream, traffic{})
}
