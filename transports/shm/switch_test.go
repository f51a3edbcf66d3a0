package shm

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// group takes n ranks through everything up to Attach, and returns their recipes.
type group struct {
	sides   []*side
	objects []device.Object // the root's
	memory  []device.Memory
	recipes []framework.Attachment
	conns   []framework.ID
	keys    []framework.Registration
}

func newGroup(t *testing.T, n int, offset uint64) *group {
	t.Helper()
	g := &group{sides: ranks(t, n)}
	members := make([]int, n)
	for i := range members {
		members[i] = 2 * i // ranks of a group need not be dense
	}
	var ends []framework.Endpoint
	for i, s := range g.sides {
		e := s.listen(config(framework.KindSwitch, members[i], members...))
		if root := i == 0; root != (len(e.Create) == 1) {
			t.Fatalf("rank %d is to create %v", members[i], e.Create)
		}
		for _, o := range e.Create {
			object := must[device.Object](t)(s.dev.Object(o, nil))
			t.Cleanup(func() { object.Close() })
			g.objects = append(g.objects, object)
			share := must[framework.Share](t)(object.Share())
			t.Cleanup(func() { share.Close() })
			e.Address.Shares = append(e.Address.Shares, share)
		}
		ends = append(ends, e)
		m := s.alloc(offset + window)
		g.memory = append(g.memory, m)
		g.keys = append(g.keys, s.register(m, offset, window))
	}
	for i, s := range g.sides {
		var peers []framework.Peer
		var keys []framework.Parcel
		for j := range g.sides {
			if j != i {
				peers = append(peers, framework.Peer{Rank: members[j], Address: ends[j].Address})
				keys = append(keys, g.keys[j].Key)
			}
		}
		conn := must[framework.ID](t)(s.tr.Connect(bound(t), ends[i].ID, peers))
		g.conns = append(g.conns, conn)
		recipe := must[framework.Attachment](t)(s.tr.Attach(bound(t), conn, g.keys[i].ID, keys))
		t.Cleanup(func() { recipe.Close() })
		g.recipes = append(g.recipes, recipe)
	}
	return g
}

func verbs(a framework.Attachment) string {
	names := map[framework.StepOp]string{framework.StepImport: "import", framework.StepAdd: "add", framework.StepBind: "bind", framework.StepMap: "map", framework.StepBarrier: "barrier"}
	var words []string
	for _, s := range a.Steps {
		words = append(words, names[s.Op])
	}
	return strings.Join(words, " ")
}

func TestSwitchGroup(t *testing.T) {
	leakFree(t, "broadcast and reduce", func(t *testing.T) {
		offset := memfd.PageSize()
		g := newGroup(t, 3, offset)
		if v := verbs(g.recipes[0]); v != "add barrier bind bind bind barrier map" {
			t.Errorf("root: %s", v)
		}
		if v := verbs(g.recipes[2]); v != "import add barrier bind bind bind barrier map" {
			t.Errorf("member: %s", v)
		}
		// Steps between two barriers, all members, then the next: as in a job.
		objects := make([]device.Object, 3)
		objects[0] = g.objects[0]
		next := make([]int, 3)
		windows, stride := make([]device.Memory, 3), uint64(0)
		for range 3 {
			for i, s := range g.sides {
				for ; next[i] < len(g.recipes[i].Steps); next[i]++ {
					step := g.recipes[i].Steps[next[i]]
					if step.Op == framework.StepBarrier {
						next[i]++
						break
					}
					switch step.Op {
					case framework.StepImport:
						objects[i] = must[device.Object](t)(s.dev.Object(framework.Object{Kind: framework.ObjectMulticast}, &g.recipes[i].Mappings[step.Mapping].Shares[0]))
						t.Cleanup(func() { objects[i].Close() })
					case framework.StepAdd:
						if err := objects[i].Add(); err != nil {
							t.Fatal(err)
						}
					case framework.StepBind:
						if own := step.Share == nil; own != (step.Slot == i) {
							t.Fatalf("member %d binds slot %d, own memory: %v", i, step.Slot, own)
						}
						if err := objects[i].Bind(step.Slot, g.memory[i], step.Share, step.Offset, step.Bytes); err != nil {
							t.Fatal(err)
						}
					case framework.StepMap:
						var err error
						if windows[i], stride, err = objects[i].Map(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		for i, w := range windows { // member i stores to all copies, as kernels do
			for slot := range 3 {
				device.Bytes(w)[uint64(slot)*stride+100] += byte(1 << i)
			}
		}
		for i, m := range g.memory {
			if got := device.Bytes(m)[offset+100]; got != 7 {
				t.Errorf("member %d sees %d: expected the sum of all, 7", i, got)
			}
		}
	})
}

func TestSwitchRefuses(t *testing.T) {
	g := newGroup(t, 2, 0)
	root := g.sides[0]
	small := g.sides[1].register(g.memory[1], 0, window-1)
	odd := g.sides[1].register(g.sides[1].alloc(2*window), 16, window)
	ownOdd := root.register(root.alloc(2*window), 16, window)
	for name, c := range map[string]struct {
		local framework.ID
		key   framework.Parcel
		class error
		blame int
	}{
		"no own memory": {0, g.keys[1].Key, framework.ErrInvalid, framework.NoPeer},
		"small key":     {g.keys[0].ID, small.Key, framework.ErrPeer, 2},
		"odd key":       {g.keys[0].ID, odd.Key, framework.ErrPeer, 2},
		"odd own":       {ownOdd.ID, g.keys[1].Key, framework.ErrInvalid, framework.NoPeer},
	} {
		_, err := root.tr.Attach(bound(t), g.conns[0], c.local, []framework.Parcel{c.key})
		if framework.Class(err) != c.class || framework.PeerOf(err) != c.blame {
			t.Errorf("%s: %v: expected %v that blames %d", name, err, c.class, c.blame)
		}
	}
	// A member that got no object from the root cannot join.
	end := g.sides[1].listen(config(framework.KindSwitch, 2, 0, 2))
	address := root.listen(config(framework.KindSwitch, 0, 0, 2)).Address
	_, err := g.sides[1].tr.Connect(bound(t), end.ID, []framework.Peer{{Rank: 0, Address: address}})
	if framework.Class(err) != framework.ErrPeer || !strings.Contains(err.Error(), "0 shares: expected 1") {
		t.Errorf("%v: expected ErrPeer that misses the object", err)
	}
}
