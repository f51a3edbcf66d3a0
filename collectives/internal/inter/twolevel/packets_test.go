package twolevel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Each bit of the data, its length and the epoch are part of a seal.
func TestSealDependsOnEverything(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 8, 24, 56, 64, 72, 128, 200, 1024} {
		b := make([]byte, n)
		for _, fill := range []func() byte{func() byte { return 0 }, func() byte { return 0xff }, func() byte { return byte(random.Uint32()) }} {
			for i := range b {
				b[i] = fill()
			}
			seen := map[uint64]string{sealOf(7, b): "the data itself"}
			note := func(seal uint64, what string) {
				if other, ok := seen[seal]; ok {
					t.Fatalf("%d bytes: %s has the seal of %s", n, what, other)
				}
				seen[seal] = what
			}
			for _, epoch := range []uint64{0, 1, 6, 8, 7 + 1<<32, 7 + 1<<63, math.MaxUint64} {
				note(sealOf(epoch, b), "another epoch")
			}
			note(sealOf(7, append(append([]byte(nil), b...), make([]byte, 8)...)), "data with zeros behind it")
			for i := range 8 * n {
				b[i/8] ^= 1 << (i % 8)
				note(sealOf(7, b), "another bit")
				b[i/8] ^= 1 << (i % 8)
			}
			for i := 0; i+16 <= n; i += 8 { // words that changed places
				x, y := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:])
				if x == y {
					continue
				}
				binary.LittleEndian.PutUint64(b[i:], y)
				binary.LittleEndian.PutUint64(b[i+8:], x)
				note(sealOf(7, b), "words in another order")
				binary.LittleEndian.PutUint64(b[i:], x)
				binary.LittleEndian.PutUint64(b[i+8:], y)
			}
		}
	}
}

// packet makes one in a slot of x, as give does.
func packet(x *packets, slot []byte, epoch uint64, data []byte) (bytes uint64) {
	bytes = uint64(len(data))
	end := lanes.SlotHead + wholeWords(bytes)
	x.Lanes.Preamble(slot[packetHead:], &x.Lanes.Call, bytes)
	clear(slot[lanes.SlotHead:end])
	copy(slot[lanes.SlotHead:], data)
	binary.LittleEndian.PutUint64(slot[end:], epoch)
	binary.LittleEndian.PutUint64(slot[end+8:], sealOf(epoch, slot[packetHead:end]))
	return bytes
}

// In whatever order and units its bytes come, over whatever was in the slot before, a packet is
// taken when all are there and no sooner. The slot holds the worst that can be: nothing, the packet
// of two epochs ago, and the same data once more.
func TestPacketIsWholeOrAbsent(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	x := &packets{Engine: &Engine{Level: &crosshost.Level{Lanes: &lanes.Lanes{Call: kernelargs.Signature{Sequence: 9, Count: 1, Collective: uint32(collective.AllReduce)}}}}, room: 1 << 10}
	for _, epoch := range []uint64{0, 1, 2, 1<<32 - 1, 1 << 32, 1<<32 + 1, math.MaxUint64} {
		for _, n := range []int{0, 1, 8, 100, 1024} {
			for _, before := range []string{"nothing", "other data", "the same data", "a longer packet"} {
				for _, unit := range []int{1, 4, 8, 64} {
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(random.Uint32())
					}
					slot, full := make([]byte, x.stride()), make([]byte, x.stride())
					switch before {
					case "other data":
						other := append([]byte(nil), data...)
						if n > 0 {
							other[random.IntN(n)] ^= 1
						}
						packet(x, slot, epoch-2, other)
					case "the same data":
						packet(x, slot, epoch-2, data)
					case "a longer packet":
						packet(x, slot, epoch-2, append(append([]byte(nil), data...), 1, 2, 3, 4, 5, 6, 7, 8, 9))
					}
					bytes := packet(x, full, epoch, data)
					end := int(lanes.SlotHead + wholeWords(bytes) + packetTail)
					units := random.Perm((end - packetHead + unit - 1) / unit)
					same := func() bool { return string(slot[packetHead:end]) == string(full[packetHead:end]) }
					for _, u := range units {
						if x.whole(slot, epoch, bytes) != same() {
							t.Fatalf("epoch %d, %d bytes by %d over %s: taken is %v with a part of the packet", epoch, n, unit, before, !same())
						}
						from := packetHead + u*unit
						copy(slot[from:min(from+unit, end)], full[from:])
					}
					if !x.whole(slot, epoch, bytes) {
						t.Fatalf("epoch %d, %d bytes by %d over %s: the whole packet is not taken", epoch, n, unit, before)
					}
					if x.whole(slot, epoch+2, bytes) || x.whole(slot, epoch+1<<32, bytes) {
						t.Fatalf("epoch %d, %d bytes: taken in another epoch", epoch, n)
					}
				}
			}
		}
	}
}

// Packets to several counterparts, each with its own data, fit the memory they are sent
// from, and those of all hosts what they come to.
func TestPacketsFitTheirMemory(t *testing.T) {
	for _, hosts := range []int{2, 3, 16, 100} {
		for _, ranks := range []int{1, 2, 8} {
			for _, room := range []uint64{4 << 10, 32 << 10} {
				n := hosts * ranks
				x := &packets{Engine: &Engine{Level: &crosshost.Level{Sizes: crosshost.Sizes{Placement: &placement.Placement{Hosts: make([][]int, hosts), Local: make([]bool, n)}}}}, room: room, base: 1 << 20}
				if end := x.place(hosts-1, 1) + x.stride(); end > x.base+x.memory() {
					t.Errorf("%d hosts: the last slot ends at %d of %d", hosts, end, x.base+x.memory())
				}
				part := room / uint64(n) / 8 * 8
				end := x.base + x.half()
				for range n { // more than there are counterparts
					end += lanes.WholeLines(part) + packetMore
				}
				if end > x.base+2*x.half() || end > x.base+x.memory() {
					t.Errorf("%d hosts of %d, %d bytes: parts end %d behind their half", hosts, ranks, room, end-x.base-2*x.half())
				}
				if last := x.base + x.half() + x.stride(); last > x.base+x.memory() {
					t.Errorf("%d hosts of %d: a packet for all ends %d behind the memory", hosts, ranks, last-x.base-x.memory())
				}
			}
		}
	}
}

// Packets are for adapters, which write by themselves, and signal by a message more.
func TestSealable(t *testing.T) {
	for _, x := range []struct {
		what framework.Description
		want bool
	}{
		{framework.Description{Signal: framework.SignalAtomic}, true},
		{framework.Description{Signal: framework.SignalImmediate}, true},
		{framework.Description{Signal: framework.SignalAtomic, Streams: true}, false},
		{framework.Description{Signal: framework.SignalProxy}, false},
		{framework.Description{Signal: framework.SignalProxy, Streams: true}, false},
		{framework.Description{Signal: framework.SignalDirect}, false},
		{framework.Description{Signal: framework.SignalMultimem}, false},
	} {
		if got := sealable(x.what); got != x.want {
			t.Errorf("%+v: %v, expected %v", x.what, got, x.want)
		}
	}
}
