package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Peers send each other messages of a head, the mode, then fields, and a checksum.
const (
	typeKey     = 1
	typeAddress = 2
	keyBytes    = 1 + 8 + 8 + 8 + 4
	// addressFixed is an address up to the name of the device.
	addressFixed = 1 + link.SideBytes + 4 + 4 + 16 + 2 + 1 + 1 + 1 + 2 + 8 + 4 + 1
	maxName      = 64
)

var (
	head  = parcel.Head{Magic: [4]byte{'M', 'S', 'R', 'V'}, Version: 3, Transport: "a transport over verbs"}
	order = binary.LittleEndian
)

// key says where memory is, as adapters name it.
type key struct {
	mode        Mode
	id          framework.ID // at its owner
	addr, bytes uint64
	rkey        uint32
}

func (k key) append(b []byte) []byte {
	start := len(b)
	b = append(head.Append(b, typeKey), byte(k.mode))
	b = order.AppendUint64(b, uint64(k.id))
	b = order.AppendUint64(b, k.addr)
	b = order.AppendUint64(b, k.bytes)
	b = order.AppendUint32(b, k.rkey)
	return parcel.Seal(b, start)
}

// openKey checks a peer's key.
func openKey(p framework.Parcel, mode Mode) (key, error) {
	b, err := open(p, typeKey, "key", mode, func([]byte) int { return keyBytes })
	if err != nil {
		return key{}, err
	}
	k := key{
		mode: mode, id: framework.ID(order.Uint64(b[1:])),
		addr: order.Uint64(b[9:]), bytes: order.Uint64(b[17:]), rkey: order.Uint32(b[25:]),
	}
	if k.bytes == 0 || k.addr+k.bytes < k.addr || k.id == 0 {
		return key{}, fmt.Errorf("%w: key of %d bytes at %#x", framework.ErrPeer, k.bytes, k.addr)
	}
	return k, nil
}

// address says how a peer reaches one side of a link.
type address struct {
	mode     Mode
	side     link.Side
	qpn, psn uint32
	gid      [16]byte
	lid      uint16
	mtu      uint8
	ethernet bool
	atomics  uint8  // reads and atomics at a time that it accepts
	receives uint16 // immediates that it has room for
	mailbox  uint64
	rkey     uint32
	device   string
}

func (a address) append(b []byte) []byte {
	start := len(b)
	b = append(head.Append(b, typeAddress), byte(a.mode))
	b = a.side.Append(b)
	b = order.AppendUint32(b, a.qpn)
	b = order.AppendUint32(b, a.psn)
	b = append(b, a.gid[:]...)
	b = order.AppendUint16(b, a.lid)
	b = append(b, a.mtu, 0, a.atomics)
	if a.ethernet {
		b[len(b)-2] = 1
	}
	b = order.AppendUint16(b, a.receives)
	b = order.AppendUint64(b, a.mailbox)
	b = order.AppendUint32(b, a.rkey)
	b = append(b, byte(len(a.device)))
	b = append(b, a.device...)
	return parcel.Seal(b, start)
}

func openAddress(p framework.Parcel, mode Mode) (address, error) {
	b, err := open(p, typeAddress, "address", mode, func(b []byte) int {
		if len(b) < addressFixed {
			return addressFixed
		}
		return addressFixed + int(b[addressFixed-1])
	})
	if err != nil {
		return address{}, err
	}
	a := address{mode: mode, side: link.Decode(b[1:]), device: string(b[addressFixed:])}
	b = b[1+link.SideBytes:]
	a.qpn, a.psn, a.gid = order.Uint32(b), order.Uint32(b[4:]), [16]byte(b[8:24])
	a.lid, a.mtu, a.ethernet, a.atomics = order.Uint16(b[24:]), b[26], b[27] == 1, b[28]
	a.receives, a.mailbox, a.rkey = order.Uint16(b[29:]), order.Uint64(b[31:]), order.Uint32(b[39:])
	if a.mtu < 1 || a.mtu > 5 || a.atomics == 0 || len(a.device) > maxName || a.mode == Immediate && a.receives == 0 {
		return address{}, fmt.Errorf("%w: address with MTU code %d, %d atomics at a time, room for %d signals and a device name of %d bytes", framework.ErrPeer, a.mtu, a.atomics, a.receives, len(a.device))
	}
	return a, nil
}

// open checks what comes before the fields, and how long all of it is.
func open(p framework.Parcel, kind byte, what string, mode Mode, length func(b []byte) int) ([]byte, error) {
	b, err := head.Unseal(p, kind, what)
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0 || Mode(b[0]) != mode:
		return nil, fmt.Errorf("%w: %s of a transport that signals in another way: expected ib-host at both ends, or ib-nonatomic", framework.ErrPeer, what)
	case len(b) != length(b):
		return nil, fmt.Errorf("%w: %s of %d bytes: expected %d", framework.ErrPeer, what, len(b), length(b))
	}
	return b, nil
}
