package loopnet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Everything that goes to another rank begins with magic and what it is, and
// parcels end with a checksum: nothing else is mistaken for one.
const (
	magic       = 0x31544e4c // "LNT1"
	kindAddress = 1
	kindKey     = 2
)

var order = binary.LittleEndian

// address is where an endpoint receives.
type address struct {
	Owner [16]byte // the transport's secret
	Rank  uint32
	Host  netip.AddrPort
}

// key names memory of the transport that owns it.
type key struct {
	Owner [16]byte
	ID    uint64
	Bytes uint64
}

func seal(d []byte) []byte { return order.AppendUint32(d, crc32.ChecksumIEEE(d)) }

// unseal returns what is between the head and the checksum.
func unseal(p framework.Parcel, kind uint32, least, most int) ([]byte, error) {
	d := p.Data
	if len(p.Shares) != 0 || len(d) < 12+least || len(d) > 12+most {
		return nil, fmt.Errorf("parcel of %d bytes and %d shares: %w", len(d), len(p.Shares), framework.ErrPeer)
	}
	body := d[:len(d)-4]
	if order.Uint32(d) != magic || order.Uint32(d[4:]) != kind || order.Uint32(d[len(d)-4:]) != crc32.ChecksumIEEE(body) {
		return nil, fmt.Errorf("parcel of another transport, or damaged: %w", framework.ErrPeer)
	}
	return body[8:], nil
}

func head(kind uint32) []byte { return order.AppendUint32(order.AppendUint32(nil, magic), kind) }

func (a address) encode() []byte {
	d := append(head(kindAddress), a.Owner[:]...)
	d = order.AppendUint32(d, a.Rank)
	return seal(append(d, a.Host.String()...))
}

func decodeAddress(p framework.Parcel) (a address, err error) {
	d, err := unseal(p, kindAddress, 20, 20+64)
	if err != nil {
		return a, err
	}
	copy(a.Owner[:], d)
	a.Rank = order.Uint32(d[16:])
	if a.Host, err = netip.ParseAddrPort(string(d[20:])); err != nil {
		return a, fmt.Errorf("address: %v: %w", err, framework.ErrPeer)
	}
	return a, nil
}

func (k key) encode() []byte {
	d := append(head(kindKey), k.Owner[:]...)
	return seal(order.AppendUint64(order.AppendUint64(d, k.ID), k.Bytes))
}

func decodeKey(p framework.Parcel) (k key, err error) {
	d, err := unseal(p, kindKey, 32, 32)
	if err != nil {
		return k, err
	}
	copy(k.Owner[:], d)
	k.ID, k.Bytes = order.Uint64(d[16:]), order.Uint64(d[24:])
	return k, nil
}

// A stream begins with the receiver's secret. Then come frames; a put is followed
// by its data. Each flush is answered by its own number, a uint64, and nothing
// else ever comes back.
const (
	framePut    = 1
	frameSignal = 2
	frameFlush  = 3
	frameBytes  = 32
)

// frame is the head of one request.
type frame struct {
	Kind   uint64
	Region uint64 // put, signal: id of the receiver's registration
	Offset uint64 // in the region; for a flush, its number
	Bytes  uint64 // of a put
}

func (f frame) append(d []byte) []byte {
	for _, v := range [...]uint64{f.Kind, f.Region, f.Offset, f.Bytes} {
		d = order.AppendUint64(d, v)
	}
	return d
}

func decodeFrame(d []byte) frame {
	return frame{order.Uint64(d), order.Uint64(d[8:]), order.Uint64(d[16:]), order.Uint64(d[24:])}
}

// hello is the start of a stream.
func hello(secret [16]byte) []byte { return append(head(0), secret[:]...) }

const helloBytes = 24
