package moe

import "testing"

// A launch ends however few of its blocks run at once: a block that sends does nothing else, and comes before all that receive. A block that
// waited for other ranks between two parts would keep the place of one that they wait for.
func TestBlocksSendOrReceive(t *testing.T) {
	const sms, units = 132, 896
	for kind, op := range operations {
		for _, tokens := range []uint32{0, 1, 8, 16, 17, 32, 128, 4096} {
			for _, ranks := range []uint32{1, 2, 8} {
				for _, phase := range []uint32{sendPhase, receivePhase, sendPhase | receivePhase} {
					for _, brings := range []uint32{0, weighted} {
						a := moeArgs{}
						a.Tokens, a.Ranks, a.Local, a.TopK, a.Flags = tokens, ranks, 32, 8, phase|brings
						l := a.shape(kind, units, sms)
						var sending, receiving uint32
						if phase&sendPhase != 0 {
							sending = 1 + a.HeadersBy + a.Counters + a.Senders
						}
						if phase&receivePhase != 0 {
							receiving = 1 + a.Collectors
						}
						if l.Grid != sending+receiving {
							t.Errorf("%s, %d tokens, %d ranks, phase %d: %d blocks, expected one for each of %d parts that send and %d that receive", op, tokens, ranks, phase, l.Grid, sending, receiving)
						}
					}
				}
			}
		}
	}
}
