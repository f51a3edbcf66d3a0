package scaling

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Sum is a PreMulSum of one rank: the calls of Sum that it becomes, each behind a multiplication.
//
// An all-reduce multiplies into its output, and sums there in place. A reduce has no output on most ranks, and a
// reduce-scatter one that is too small: they multiply into a Room, piece by piece if it is smaller than the input. The
// pieces depend on nothing that differs between ranks.
type Sum struct {
	Kind          collective.Kind
	Type          kernel.DataType
	Input, Output unsafe.Pointer
	Count, Ranks  uint64
	Factor        Factor
	Stream        device.Stream

	// The call of this piece: buffers, and elements as the caller counts them.
	In, Out unsafe.Pointer
	Part    uint64

	scaler *Scaler
	room   *Room
	at     uint64 // elements before this piece
}

// Begin makes ready what the pieces need, and begins with the first.
func (s *Scaler) Begin(x *Sum) (err error) {
	x.scaler = s
	if s.gpu && x.Count > 0 {
		if _, err := s.kernel(x.Type); err != nil {
			return err
		}
	}
	if x.Kind != collective.AllReduce && x.Count > 0 {
		if x.room, err = s.Room(); err != nil {
			return err
		}
		if err := x.room.Begin(x.Stream); err != nil {
			return err
		}
	}
	x.cut()
	return nil
}

// pieceUnit divides pieces, in elements, so that each begins as well aligned as the whole.
const pieceUnit = 128

// cut sets the call of the piece that begins at x.at.
func (x *Sum) cut() {
	if x.room == nil {
		x.In, x.Out, x.Part = x.Output, x.Output, x.Count
		return
	}
	element := uint64(max(1, x.Type.Size()))
	most := max(1, roomBytes/(element*x.slices())/pieceUnit*pieceUnit)
	x.In, x.Out, x.Part = x.room.Memory(), x.Output, min(most, x.Count-x.at)
	if x.Output != nil {
		x.Out = unsafe.Add(x.Output, x.at*element)
	}
}

// slices are the parts of the input, one for each rank of a reduce-scatter.
func (x *Sum) slices() uint64 {
	if x.Kind == collective.ReduceScatter {
		return x.Ranks
	}
	return 1
}

// Multiply multiplies the input of this piece.
func (x *Sum) Multiply() error {
	element := uint64(x.Type.Size())
	in := x.Input
	if x.at > 0 {
		in = unsafe.Add(x.Input, x.at*element)
	}
	return x.scaler.Scale(Slices{
		In: in, Out: x.In, InStride: x.Count * element, OutStride: x.Part * element, Number: x.slices(), Count: x.Part, Type: x.Type,
	}, x.Factor, x.Stream)
}

// Next goes on with the next piece. It reports whether there is one.
func (x *Sum) Next() bool {
	if x.at+x.Part >= x.Count {
		return false
	}
	x.at += x.Part
	x.cut()
	return true
}

// End says that the calls of all pieces were made.
func (x *Sum) End() error {
	if x.room == nil {
		return nil
	}
	err := x.room.End(x.Stream)
	x.scaler.Return(x.room)
	x.room = nil
	return err
}

// Call makes a request for a PreMulSum one for the call of Sum that its first piece becomes.
func Call(r *engine.Request) {
	r.Op = kernel.Sum
	if r.Collective == collective.AllReduce {
		r.InPlace = true
		return
	}
	r.InPlace, r.Registered = false, false
	x := Sum{Kind: r.Collective, Type: r.Type, Count: r.Count, Ranks: uint64(max(1, r.Ranks)), room: &Room{}}
	if x.cut(); r.Count > 0 {
		r.Bytes = r.Bytes / r.Count * x.Part
	}
	r.Count = x.Part
}
