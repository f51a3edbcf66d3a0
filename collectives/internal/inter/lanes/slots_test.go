package lanes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// duo are the slots of two ranks, and the channels between them.
type duo struct {
	ranks [2]*Lanes
	ended []func() error
}

// newDuo opens them as a first collective does.
func newDuo(ctx context.Context, piece uint64) (*duo, error) {
	d := &duo{}
	var both sync.WaitGroup
	var failed [2]error
	boots := bootstrap.InProcess(2)
	for i, boot := range boots {
		dev, err := host.Open()
		if err != nil {
			return nil, err
		}
		inner, err := shm.New(shm.Config{}.Defaults())
		if err != nil {
			return nil, err
		}
		t, err := comm.NewTransport(ctx, inner, "embedded")
		if err != nil {
			return nil, err
		}
		both.Go(func() {
			world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{t}, Facts: framework.Facts{Host: "here", NUMA: -1}})
			if err != nil {
				failed[i] = err
				return
			}
			p := &Lanes{Comm: world, Piece: piece, Describe: func(s *kernelargs.Signature) string { return fmt.Sprint(*s) }}
			d.ranks[i], failed[i] = p, errors.Join(p.Allocate(), p.Link(ctx))
		})
		d.ended = append(d.ended, boot.Close, dev.Close)
	}
	both.Wait()
	return d, errors.Join(failed[:]...)
}

func (d *duo) close() {
	for _, p := range d.ranks {
		if p != nil {
			_ = p.Comm.Close() // one that was aborted has an error
		}
	}
	for _, f := range d.ended {
		_ = f()
	}
}

// sends is write of whatever stands in the slot, its head included.
func (l *Lanes) sends(peer int, raw []byte) error {
	to := &l.To[peer]
	own, far := l.Slot(peer, to.Sent), l.Slot(l.Comm.Rank(), to.Sent)
	to.Sent++
	clear(device.Bytes(l.Out)[own:][:SlotHead+l.Piece])
	copy(device.Bytes(l.Out)[own:], raw)
	return to.Data.PutWithSignal(far, own, SlotHead+l.Piece)
}

// A peer may put anything into a slot: the piece that is taken is the one that was expected, from
// its first byte to its last, or the call ends with an error that names the peer, and nobody sees
// any of it. No more is ever looked at than the slot has.
func FuzzTake(f *testing.F) {
	const piece = 256
	call := kernelargs.Signature{Sequence: 9, Count: 64, Collective: uint32(collective.AllReduce), Algorithm: kernelargs.NameID(Name), Type: uint32(kernel.Float32), Op: uint32(kernel.Sum)}
	sample := func(s kernelargs.Signature, number uint64, data string) []byte {
		b := make([]byte, SlotHead, SlotHead+len(data))
		(*Lanes)(nil).Preamble(b, &s, number)
		return append(b, data...)
	}
	other := call
	other.Sequence++
	for _, number := range []uint64{0, 5, piece, piece + 1, 1 << 40, AnyBytes} {
		f.Add(sample(call, number, "12345"), uint16(5), false)
		f.Add(sample(call, number, "12345"), uint16(0), true)
	}
	f.Add(sample(other, 5, "12345"), uint16(5), false)
	f.Add(sample(kernelargs.Signature{}, 8, ""), uint16(8), false)
	f.Add([]byte{}, uint16(0), false)
	f.Add(bytes.Repeat([]byte{0xff}, SlotHead+piece), uint16(piece), true)
	f.Add([]byte("shorter than a head"), uint16(1), true)

	var d *duo
	f.Cleanup(func() {
		if d != nil {
			d.close()
		}
	})
	f.Fuzz(func(t *testing.T, raw []byte, expected uint16, anything bool) {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		if d == nil {
			var err error
			if d, err = newDuo(ctx, piece); err != nil {
				t.Fatal(err)
			}
		}
		raw = raw[:min(len(raw), SlotHead+piece)]
		slot := append(bytes.Clone(raw), make([]byte, SlotHead+piece-len(raw))...)
		bytesWanted, number := uint64(expected)%(piece+1), binary.LittleEndian.Uint64(slot[PreambleBytes-8:])
		wanted := bytesWanted
		if anything {
			bytesWanted, wanted = AnyBytes, min(number, piece)
		}
		head := make([]byte, PreambleBytes)
		d.ranks[0].Call = call
		d.ranks[0].Preamble(head, &call, wanted)
		good := bytes.Equal(slot[:PreambleBytes], head)

		if err := d.ranks[1].sends(0, raw); err != nil {
			t.Fatal(err)
		}
		var got []byte
		used := 0
		err := d.ranks[0].Take(ctx, 1, bytesWanted, func(b []byte) {
			used++
			got = bytes.Clone(b)
		})
		if good {
			if err != nil || used != 1 || !bytes.Equal(got, slot[SlotHead:SlotHead+wanted]) {
				t.Fatalf("%v, used %d times: %q: expected %q", err, used, got, slot[SlotHead:SlotHead+wanted])
			}
			return
		}
		if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != 1 || used != 0 {
			t.Errorf("%v, used %d times: expected ErrInvalid that names rank 1, and no use", err, used)
		}
		if d.ranks[0].Comm.Err() == nil {
			t.Error("the communicator goes on after a piece of another call")
		}
		d.close()
		d = nil
	})
}
