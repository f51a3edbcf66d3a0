package moe

import "testing"

// On NVIDIA's GPUs all blocks of a whole call run at once, and no block has two parts of a phase where one for each would do.
func TestWholeCallsHaveBlocksThatRunAtOnce(t *testing.T) {
	const sms = 132
	for kind, units := range [2]int{dispatching: 896, combining: 896} {
		for _, tokens := range []uint32{0, 1, 8, 16, 17, 32, 128, 4096} {
			for _, ranks := range []uint32{1, 2, 8} {
				for _, phase := range []uint32{sendPhase, receivePhase, sendPhase | receivePhase} {
					a := moeArgs{}
					a.Tokens, a.Ranks, a.Local, a.TopK, a.Flags = tokens, ranks, 32, 8, phase
					l := a.shape(kind, units, sms, true)
					var sending, receiving uint32
					if phase&sendPhase != 0 {
						sending = 1 + a.HeadersBy + a.Counters + a.Senders
					}
					if phase&receivePhase != 0 {
						receiving = 1 + a.Collectors
					}
					room := uint32(sms * blocksOfUnit[kind])
					apart := [2]uint32{dispatching: room / 2, combining: room}[kind]
					switch both := sending + receiving; {
					case phase != sendPhase|receivePhase || both <= apart:
						if l.Grid != both {
							t.Errorf("kind %d, %d tokens, %d ranks, phase %d: %d blocks, expected one for each of %d and %d parts", kind, tokens, ranks, phase, l.Grid, sending, receiving)
						}
					case l.Grid > room || l.Grid < room && (sending > l.Grid || receiving > l.Grid):
						t.Errorf("kind %d, %d tokens, %d ranks: %d blocks for %d and %d parts, expected at most %d, and fewer than these only where there is no room", kind, tokens, ranks, l.Grid, sending, receiving, room)
					}
				}
			}
		}
	}
}
