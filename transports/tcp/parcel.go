package tcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Addresses and keys, as ranks send them through the bootstrap: a head, fixed fields, and a checksum.
const (
	typeAddress  = 1
	typeKey      = 2
	keyBytes     = 16 + 8 + 16 + 8 + 1
	addressFixed = 16 + 8 + 4 + 32 + 1 + 1
	maxStack     = 128
	maxPlaces    = 32
)

var (
	head  = parcel.Head{Magic: [4]byte{'M', 'T', 'C', 'P'}, Version: 1, Transport: Name}
	order = binary.LittleEndian
)

// address tells a peer where an endpoint receives, and how to prove that it has it.
type address struct {
	owner    [16]byte
	endpoint uint64
	rank     uint32
	secret   [32]byte
	stack    string // the network stack, for loopback addresses
	places   []netip.AddrPort
}

// key names memory of the transport that owns it.
type key struct {
	owner [16]byte
	id    uint64
	token [16]byte
	bytes uint64
	align byte // of the first byte, modulo 8
}

func (a address) append(b []byte) []byte {
	start := len(b)
	b = head.Append(b, typeAddress)
	b = append(b, a.owner[:]...)
	b = order.AppendUint64(b, a.endpoint)
	b = order.AppendUint32(b, a.rank)
	b = append(b, a.secret[:]...)
	b = append(append(b, byte(len(a.stack))), a.stack...)
	b = append(b, byte(len(a.places)))
	for _, p := range a.places {
		ip := p.Addr().As16()
		b = order.AppendUint16(append(b, ip[:]...), p.Port())
	}
	return parcel.Seal(b, start)
}

func decodeAddress(p framework.Parcel) (a address, err error) {
	b, err := head.Unseal(p, typeAddress, "address")
	if err != nil {
		return a, err
	}
	short := fmt.Errorf("%w: address of %d bytes: expected %d, and the places", framework.ErrPeer, len(b), addressFixed)
	if len(b) < addressFixed {
		return a, short
	}
	copy(a.owner[:], b)
	a.endpoint = order.Uint64(b[16:])
	a.rank = order.Uint32(b[24:])
	copy(a.secret[:], b[28:])
	n := int(b[60])
	if b = b[61:]; n > maxStack || len(b) < n+1 {
		return address{}, short
	}
	a.stack = string(b[:n])
	n, b = int(b[n]), b[n+1:]
	if n == 0 || n > maxPlaces || len(b) != 18*n {
		return address{}, short
	}
	for ; len(b) > 0; b = b[18:] {
		place := netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), order.Uint16(b[16:]))
		if place.Port() == 0 || place.Addr().IsUnspecified() || place.Addr().IsMulticast() {
			return address{}, fmt.Errorf("%w: address with the place %v", framework.ErrPeer, place)
		}
		a.places = append(a.places, place)
	}
	return a, nil
}

func (k key) append(b []byte) []byte {
	start := len(b)
	b = head.Append(b, typeKey)
	b = append(b, k.owner[:]...)
	b = order.AppendUint64(b, k.id)
	b = append(b, k.token[:]...)
	b = order.AppendUint64(b, k.bytes)
	return parcel.Seal(append(b, k.align), start)
}

func decodeKey(p framework.Parcel) (k key, err error) {
	b, err := head.Unseal(p, typeKey, "key")
	if err != nil {
		return k, err
	}
	if len(b) != keyBytes {
		return k, fmt.Errorf("%w: key of %d bytes: expected %d", framework.ErrPeer, len(b), keyBytes)
	}
	copy(k.owner[:], b)
	k.id = order.Uint64(b[16:])
	copy(k.token[:], b[24:])
	k.bytes = order.Uint64(b[40:])
	k.align = b[48]
	if k.bytes == 0 || k.align > 7 {
		return key{}, fmt.Errorf("%w: key of %d bytes of memory at %d modulo 8", framework.ErrPeer, k.bytes, k.align)
	}
	return k, nil
}
