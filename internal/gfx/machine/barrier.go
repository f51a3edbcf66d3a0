package machine

// barrier stops the wave until all waves of its block that have not ended are there.
func (w *wave) barrier() {
	b := w.block
	w.state = waiting
	b.arrived++
	b.release()
}

func (b *block) release() {
	if b.arrived == 0 || b.arrived < b.running {
		return
	}
	b.arrived = 0
	for _, w := range b.waves {
		if w.state == waiting {
			w.state = running
		}
	}
}

// end ends the wave. Its stores take effect.
func (w *wave) end() error {
	w.state = ended
	for len(w.pending) > 0 {
		if err := w.retire(0); err != nil {
			return err
		}
	}
	w.block.running--
	w.block.release()
	return nil
}
