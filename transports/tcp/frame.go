package tcp

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// kind is what a frame asks for.
type kind uint8

// Frames from the sender. All but stripes travel on the first stream alone.
const (
	frameOpen   kind = 1 // handle stands for a registration; 24 bytes follow: id, token
	framePut    kind = 2 // bytes follow
	frameStripe kind = 3 // part of a put; number is the put's among those with stripes
	frameSignal kind = 4
	frameFlush  kind = 5 // number is answered when all before it is done
)

// frameBytes is the size of a frame's head: kind, 3 bytes 0, handle, offset, bytes,
// number. In the first stream's stripe the first of the three bytes says how many
// other streams have a part.
const (
	frameBytes = 32
	openBytes  = 24
)

// frame is the head of one request.
type frame struct {
	kind   kind
	others uint8
	handle uint32 // of memory at the receiver
	offset uint64 // in that memory
	bytes  uint64 // that follow
	number uint64
}

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), f.others, 0, 0)
	b = order.AppendUint32(b, f.handle)
	b = order.AppendUint64(b, f.offset)
	b = order.AppendUint64(b, f.bytes)
	return order.AppendUint64(b, f.number)
}

// decodeFrame checks all that does not depend on what was said before.
func decodeFrame(b []byte) (frame, error) {
	if len(b) != frameBytes {
		return frame{}, fmt.Errorf("%w: frame of %d bytes: expected %d", framework.ErrPeer, len(b), frameBytes)
	}
	f := frame{
		kind: kind(b[0]), others: b[1], handle: order.Uint32(b[4:]),
		offset: order.Uint64(b[8:]), bytes: order.Uint64(b[16:]), number: order.Uint64(b[24:]),
	}
	ok := false
	switch f.kind {
	case frameOpen:
		ok = f.bytes == openBytes && f.offset == 0 && f.number == 0
	case framePut:
		ok = f.number == 0
	case frameStripe:
		ok = f.number != 0 && f.bytes != 0
	case frameSignal:
		ok = f.bytes == 0 && f.number == 0
	case frameFlush:
		ok = f.bytes == 0 && f.offset == 0 && f.handle == 0 && f.number != 0
	}
	if !ok || b[2] != 0 || b[3] != 0 || f.others != 0 && f.kind != frameStripe || f.others >= maxStreams || f.handle >= handles {
		return frame{}, fmt.Errorf("%w: frame of kind %d that makes no sense: handle %d, offset %d, bytes %d, number %d",
			framework.ErrPeer, f.kind, f.handle, f.offset, f.bytes, f.number)
	}
	return f, nil
}

// Answers from the receiver, on the first stream.
type verdict uint8

const (
	answerDone    verdict = 1 // the flush of this number, and all before it
	answerLeft    verdict = 2 // the endpoint was closed: nothing more is received
	answerRefused verdict = 3 // a frame could not be performed; a text follows
)

const (
	answerBytes = 16 // verdict, 3 bytes 0, u32 length of the text, number
	maxText     = 512
)

// answer is one of them.
type answer struct {
	verdict verdict
	number  uint64
	text    string
}

func (a answer) append(b []byte) []byte {
	text := a.text
	if len(text) > maxText {
		text = text[:maxText]
	}
	b = append(b, byte(a.verdict), 0, 0, 0)
	b = order.AppendUint32(b, uint32(len(text)))
	b = order.AppendUint64(b, a.number)
	return append(b, text...)
}

// decodeAnswer reads the head of an answer; text is how many bytes follow.
func decodeAnswer(b []byte) (a answer, text int, err error) {
	if len(b) != answerBytes {
		return a, 0, fmt.Errorf("%w: answer of %d bytes: expected %d", framework.ErrPeer, len(b), answerBytes)
	}
	a = answer{verdict: verdict(b[0]), number: order.Uint64(b[8:])}
	n := order.Uint32(b[4:])
	ok := b[1] == 0 && b[2] == 0 && b[3] == 0
	switch a.verdict {
	case answerDone:
		ok = ok && n == 0 && a.number != 0
	case answerLeft:
		ok = ok && n == 0 && a.number == 0
	case answerRefused:
		ok = ok && n <= maxText && a.number == 0
	default:
		ok = false
	}
	if !ok {
		return answer{}, 0, fmt.Errorf("%w: answer of kind %d that makes no sense: text of %d bytes, number %d", framework.ErrPeer, b[0], n, a.number)
	}
	return a, int(n), nil
}
