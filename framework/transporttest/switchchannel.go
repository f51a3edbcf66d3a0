package transporttest

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

var switchTests = []test{
	{name: "switch/broadcast", when: switchClaimed, body: testBroadcast},
	{name: "switch/reduce", when: switchClaimed, body: testReduce},
	{name: "switch/barrier-reuse", when: switchClaimed, body: testSwitchBarrier},
	{name: "switch/again", when: switchClaimed, body: testSwitchAgain},
	{name: "switch/group-of-two", when: switchClaimed, body: func(t *T) { testGroupOf(t, 2) }},
	{name: "switch/group-of-five", when: switchClaimed, body: func(t *T) { testGroupOf(t, 5) }},
}

// member is one rank of a switch group with its window.
type member struct {
	*rank
	own    *buffer
	window window
	n      int // members
}

// group builds a switch group: the whole vocabulary of steps, in the order that
// the transport says, all members at once because of the barriers.
func (t *T) group(n int) []*member {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	all := make([]*member, n)
	ends := make([]framework.Endpoint, n)
	keys := make([]framework.Parcel, n)
	objects := make([][]device.Object, n)
	for i, r := range t.ranks(n) {
		cfg := r.config(framework.KindSwitch, ranks...)
		cfg.Bytes = windowBytes
		all[i] = &member{rank: r, own: r.alloc(windowBytes), n: n}
		ends[i], objects[i] = r.listening(cfg)
	}
	regs := make([]framework.Registration, n)
	for i, m := range all {
		regs[i] = m.registered(m.own.segment)
		keys[i] = regs[i].Key
	}
	meet := newMeeting(n)
	t.all(n, func(i int) {
		m := all[i]
		conn := m.connected(ends[i].ID, peersOf(i, ends)...)
		var others []framework.Parcel
		for j, k := range keys {
			if j != i {
				others = append(others, k)
			}
		}
		a, err := m.Attach(t.ctx, conn, regs[i].ID, others)
		if err != nil {
			t.Fatalf("rank %d: attach: %v", i, err)
		}
		p := &performer{rank: m.rank, own: m.own, objects: objects[i], meet: meet}
		for j, w := range p.perform(a) {
			if a.Mappings[j].Role == framework.RoleMulticast {
				m.window = w
			}
		}
		if m.window.bytes == nil {
			t.Fatalf("rank %d: the recipe maps no window", i)
		}
	})
	if t.failed() {
		t.Fatalf("the group is not complete")
	}
	return all
}

// copies lists the members' copies in the window of m.
func (m *member) copies() [][]byte {
	list := make([][]byte, m.n)
	for i := range list {
		from := uint64(i) * m.window.stride
		list[i] = m.window.bytes[from : from+windowBytes]
	}
	return list
}

// broadcast stores to all members.
func (m *member) broadcast(at int, data []byte) {
	for _, c := range m.copies() {
		copy(c[at:], data)
	}
}

// arrive raises the barrier counter of every member.
func (m *member) arrive() {
	for _, c := range m.copies() {
		signal(word(c, windowBytes-128))
	}
}

func testBroadcast(t *T) { broadcastAll(t, t.group(3)) }

// broadcastAll has every member store to all, in its own place.
func broadcastAll(t *T, all []*member) {
	const part = 4099 // odd, so that parts are not aligned
	t.all(len(all), func(i int) {
		data := make([]byte, part)
		fill(data, uint64(i))
		all[i].broadcast(i*part, data)
	})
	for i, m := range all {
		for j := range all {
			if at, bad := differs(m.own.bytes[j*part:(j+1)*part], uint64(j)); bad {
				t.Errorf("broadcast by rank %d to rank %d: byte %d is wrong", j, i, at)
			}
		}
	}
}

// testReduce sums what all members hold, as loads through the window.
func testReduce(t *T) {
	all := t.group(3)
	const count = 1000
	for i, m := range all {
		for k := range count {
			binary.LittleEndian.PutUint64(m.own.bytes[8*k:], uint64((i+1)*(k+1)))
		}
	}
	t.all(len(all), func(i int) {
		for k := range count {
			sum := uint64(0)
			for _, c := range all[i].copies() {
				sum += binary.LittleEndian.Uint64(c[8*k:])
			}
			if want := uint64((1 + 2 + 3) * (k + 1)); sum != want {
				t.Fatalf("rank %d: element %d reduces to %d, expected %d", i, k, sum, want)
			}
		}
	})
}

// testSwitchBarrier goes through the barrier of the window many times. What was
// broadcast before it is there after it, in every round.
func testSwitchBarrier(t *T) {
	all := t.group(3)
	const rounds = 500
	var inside atomic.Int64
	t.all(len(all), func(i int) {
		m := all[i]
		flag := word(m.own.bytes, windowBytes-128)
		value := make([]byte, 8)
		for n := range uint64(rounds) {
			binary.LittleEndian.PutUint64(value, n<<8|uint64(i))
			m.broadcast(64*i, value)
			inside.Add(1)
			m.arrive()
			t.awaitCount("barrier of the window", flag, (2*n+1)*uint64(m.n))
			for j := range all {
				if got := binary.LittleEndian.Uint64(m.own.bytes[64*j:]); got != n<<8|uint64(j) {
					t.Fatalf("round %d: rank %d sees %#x of rank %d", n, i, got, j)
				}
			}
			m.arrive() // nobody overwrites what another still reads
			t.awaitCount("second barrier of the window", flag, (2*n+2)*uint64(m.n))
		}
	})
	if got := inside.Load(); !t.failed() && got != rounds*int64(len(all)) {
		t.Errorf("%d arrivals, expected %d", got, rounds*len(all))
	}
}

// testSwitchAgain builds two groups of the same ranks. They must not share memory.
func testSwitchAgain(t *T) {
	first, second := t.group(3), t.group(3)
	broadcastAll(t, first)
	for i, m := range second {
		for at, b := range m.own.bytes {
			if b != 0 {
				t.Fatalf("byte %d of rank %d's memory in the second group was written by the first", at, i)
			}
		}
	}
	broadcastAll(t, second)
}

func testGroupOf(t *T, n int) { broadcastAll(t, t.group(n)) }
