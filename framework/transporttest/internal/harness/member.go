package harness

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Member is one rank of a switch group with its window.
type Member struct {
	*Rank
	Own    *Buffer
	Window Window
	N      int // members
}

// Group builds a switch group: the whole vocabulary of steps, in the order that
// the transport says, all members at once because of the barriers.
func (t *T) Group(n int) []*Member {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	all := make([]*Member, n)
	ends := make([]framework.Endpoint, n)
	keys := make([]framework.Parcel, n)
	objects := make([][]device.Object, n)
	for i, r := range t.Ranks(n) {
		cfg := r.Config(framework.KindSwitch, ranks...)
		cfg.Bytes = WindowBytes
		all[i] = &Member{Rank: r, Own: r.Alloc(WindowBytes), N: n}
		ends[i], objects[i] = r.Listening(cfg)
	}
	regs := make([]framework.Registration, n)
	for i, m := range all {
		regs[i] = m.Registered(m.Own.Segment)
		keys[i] = regs[i].Key
	}
	meet := NewBarrier(n)
	t.All(n, func(i int) {
		m := all[i]
		conn := m.Connected(ends[i].ID, PeersOf(i, ends)...)
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
		p := &RecipeRunner{Rank: m.Rank, own: m.Own, objects: objects[i], Meet: meet}
		for j, w := range p.Perform(a) {
			if a.Mappings[j].Role == framework.RoleMulticast {
				m.Window = w
			}
		}
		if m.Window.Bytes == nil {
			t.Fatalf("rank %d: the recipe maps no window", i)
		}
	})
	if t.Failed() {
		t.Fatalf("the group is not complete")
	}
	return all
}

// Copies lists the members' copies in the window of m.
func (m *Member) Copies() [][]byte {
	list := make([][]byte, m.N)
	for i := range list {
		from := uint64(i) * m.Window.Stride
		list[i] = m.Window.Bytes[from : from+WindowBytes]
	}
	return list
}

// Broadcast stores to all members.
func (m *Member) Broadcast(at int, data []byte) {
	for _, c := range m.Copies() {
		copy(c[at:], data)
	}
}

// Arrive raises the barrier counter of every member.
func (m *Member) Arrive() {
	for _, c := range m.Copies() {
		Signal(Word(c, WindowBytes-128))
	}
}
