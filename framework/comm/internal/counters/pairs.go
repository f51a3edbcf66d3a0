package counters

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// PairUp begins a call for channels to some peers: they say whether they can go on,
// return what they have closed, and lend each other a semaphore.
func (k *Counters) PairUp(ctx context.Context, rounds preamble.Rounds, op string, peers []int, mine error) ([]Pair, error) {
	pool := &k.Pool
	news := make([][]byte, len(peers))
	for i, r := range peers {
		if mine == nil { // else it would not be sent
			news[i] = appendNumbers(nil, pool.returned(r)...)
		}
	}
	news, err := rounds.Meet(ctx, op, peers, news, mine)
	for i, b := range news {
		numbers, ok := splitNumbers(b)
		if !ok {
			return nil, &framework.Error{Op: op, Peer: peers[i], Err: fmt.Errorf("%w: %d bytes of numbers", framework.ErrPeer, len(b))}
		}
		if err := pool.cease(peers[i], numbers); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	pairs := make([]Pair, 0, len(peers))
	for _, r := range peers {
		n, full := pool.Take(r)
		if mine = full; full != nil {
			break
		}
		pairs = append(pairs, Pair{Peer: r, Mine: n})
	}
	if err := k.lend(ctx, rounds, op, peers, pairs, mine); err != nil {
		for _, p := range pairs {
			pool.Cancel(p.Mine)
		}
		return nil, err
	}
	return pairs, nil
}

// lend tells the peers the numbers of their semaphores here, and learns those of
// this rank over there.
func (k *Counters) lend(ctx context.Context, rounds preamble.Rounds, op string, peers []int, pairs []Pair, mine error) error {
	numbers := make([][]byte, len(peers))
	for i, p := range pairs {
		numbers[i] = appendNumbers(nil, uint32(p.Mine))
	}
	numbers, err := rounds.Meet(ctx, op, peers, numbers, mine)
	if err != nil {
		return err
	}
	for i, b := range numbers {
		got, ok := splitNumbers(b)
		if !ok || len(got) != 1 || got[0] >= Max {
			return &framework.Error{Op: op, Peer: peers[i], Err: fmt.Errorf("%w: semaphore %x, expected 4 bytes below %d", framework.ErrPeer, b, Max)}
		}
		pairs[i].Theirs = int(got[0])
	}
	return nil
}

func appendNumbers(b []byte, numbers ...uint32) []byte {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

func splitNumbers(b []byte) ([]uint32, bool) {
	var numbers []uint32
	for ; len(b) >= 4; b = b[4:] {
		numbers = append(numbers, binary.LittleEndian.Uint32(b))
	}
	return numbers, len(b) == 0
}

// Handle is one end of a semaphore. Outbound is 0 where a proxy raises
// the peer's counter.
func (k *Counters) Handle(p Pair, outbound uintptr) kernel.SemaphoreHandle {
	return kernel.SemaphoreHandle{
		Inbound:  k.InboundAddr(p.Mine),
		Expected: k.ExpectedAddr(p.Mine),
		Outbound: outbound,
		Control:  k.DeviceAddr,
		Peer:     uint32(p.Peer),
		ID:       uint32(p.Mine),
	}
}
