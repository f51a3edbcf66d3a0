package memory

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var switchTests = []harness.Test{
	{
		Name: "switch/broadcast", Rule: "A store through the window reaches all members.",
		When: harness.SwitchClaimed, Body: testBroadcast,
	},
	{
		Name: "switch/reduce", Rule: "A load through the window sees what all members hold.",
		When: harness.SwitchClaimed, Body: testReduce,
	},
	{
		Name: "switch/barrier-reuse", Rule: "The barrier of a window can be used again and again.",
		When: harness.SwitchClaimed, Body: testSwitchBarrier,
	},
	{
		Name: "switch/again", Rule: "Two groups of the same ranks do not share memory.",
		When: harness.SwitchClaimed, Body: testSwitchAgain,
	},
	{
		Name: "switch/group-of-two", Rule: "Groups have two members or more.",
		When: harness.SwitchClaimed, Body: func(t *harness.T) { testGroupOf(t, 2) },
	},
	{
		Name: "switch/group-of-five", Rule: "Groups have any number of members.",
		When: harness.SwitchClaimed, Body: func(t *harness.T) { testGroupOf(t, 5) },
	},
}

func testBroadcast(t *harness.T) { broadcastAll(t, t.Group(3)) }

// broadcastAll has every member store to all, in its own place.
func broadcastAll(t *harness.T, all []*harness.Member) {
	const part = 4099 // odd, so that parts are not aligned
	t.All(len(all), func(i int) {
		data := make([]byte, part)
		harness.Fill(data, uint64(i))
		all[i].Broadcast(i*part, data)
	})
	for i, m := range all {
		for j := range all {
			if at, bad := harness.Differs(m.Own.Bytes[j*part:(j+1)*part], uint64(j)); bad {
				t.Errorf("broadcast by rank %d to rank %d: byte %d is wrong", j, i, at)
			}
		}
	}
}

// testReduce sums what all members hold, as loads through the window.
func testReduce(t *harness.T) {
	all := t.Group(3)
	const count = 1000
	for i, m := range all {
		for k := range count {
			binary.LittleEndian.PutUint64(m.Own.Bytes[8*k:], uint64((i+1)*(k+1)))
		}
	}
	t.All(len(all), func(i int) {
		for k := range count {
			sum := uint64(0)
			for _, c := range all[i].Copies() {
				sum += binary.LittleEndian.Uint64(c[8*k:])
			}
			if want := uint64((1 + 2 + 3) * (k + 1)); sum != want {
				t.Fatalf("rank %d: element %d reduces to %d, expected %d", i, k, sum, want)
			}
		}
	})
}

// testSwitchBarrier goes through the barrier of the window many times. Data that was broadcast
// before it is there after it, in every round.
func testSwitchBarrier(t *harness.T) {
	all := t.Group(3)
	const rounds = 500
	var inside atomic.Int64
	t.All(len(all), func(i int) {
		m := all[i]
		flag := harness.Word(m.Own.Bytes, harness.WindowBytes-128)
		value := make([]byte, 8)
		for n := range uint64(rounds) {
			binary.LittleEndian.PutUint64(value, n<<8|uint64(i))
			m.Broadcast(64*i, value)
			inside.Add(1)
			m.Arrive()
			t.AwaitCount("barrier of the window", flag, (2*n+1)*uint64(m.N))
			for j := range all {
				if got := binary.LittleEndian.Uint64(m.Own.Bytes[64*j:]); got != n<<8|uint64(j) {
					t.Fatalf("round %d: rank %d sees %#x of rank %d", n, i, got, j)
				}
			}
			m.Arrive() // no rank overwrites what another still reads
			t.AwaitCount("second barrier of the window", flag, (2*n+2)*uint64(m.N))
		}
	})
	if got := inside.Load(); !t.Failed() && got != rounds*int64(len(all)) {
		t.Errorf("%d arrivals, expected %d", got, rounds*len(all))
	}
}

// testSwitchAgain builds two groups of the same ranks. They must not share memory.
func testSwitchAgain(t *harness.T) {
	first, second := t.Group(3), t.Group(3)
	broadcastAll(t, first)
	for i, m := range second {
		for at, b := range m.Own.Bytes {
			if b != 0 {
				t.Fatalf("byte %d of rank %d's memory in the second group was written by the first", at, i)
			}
		}
	}
	broadcastAll(t, second)
}

func testGroupOf(t *harness.T, n int) { broadcastAll(t, t.Group(n)) }
