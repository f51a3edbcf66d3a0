package verbs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/mscclpp-go/mscclpp/framework"
)

// What peers send each other: a header of magic, version, type and mode, then fields, little
// endian, and a checksum. Peers of one job may run different builds, so a change of a
// layout raises its version.
const (
	codecVersion = 2
	typeKey      = 1
	typeAddress  = 2
	headBytes    = 7
	sumBytes     = 4
	keyBytes     = headBytes + 8 + 8 + 8 + 4 + sumBytes
	addressFixed = headBytes + 1 + 4 + digestBytes + 4 + 4 + 16 + 2 + 1 + 1 + 1 + 2 + 8 + 4 + 1 + sumBytes
	digestBytes  = 16
	maxName      = 64
)

var magic = [4]byte{'M', 'S', 'R', 'V'}

// key tells peers where memory is, as adapters name it.
type key struct {
	mode        Mode
	id          framework.ID // at its owner
	addr, bytes uint64
	rkey        uint32
}

func (k key) append(b []byte) []byte {
	start := len(b)
	b = appendHead(b, typeKey, k.mode)
	b = binary.LittleEndian.AppendUint64(b, uint64(k.id))
	b = binary.LittleEndian.AppendUint64(b, k.addr)
	b = binary.LittleEndian.AppendUint64(b, k.bytes)
	b = binary.LittleEndian.AppendUint32(b, k.rkey)
	return appendSum(b, start)
}

// openKey checks a peer's key. It needs no descriptors, so it has none.
func openKey(p framework.Parcel, mode Mode) (key, error) {
	b := p.Data
	if err := check(b, typeKey, "key", mode, func(int) int { return keyBytes }); err != nil {
		return key{}, err
	}
	if len(p.Shares) != 0 {
		return key{}, fmt.Errorf("%w: key with %d shares: expected none", framework.ErrPeer, len(p.Shares))
	}
	k := key{
		mode:  mode,
		id:    framework.ID(binary.LittleEndian.Uint64(b[headBytes:])),
		addr:  binary.LittleEndian.Uint64(b[headBytes+8:]),
		bytes: binary.LittleEndian.Uint64(b[headBytes+16:]),
		rkey:  binary.LittleEndian.Uint32(b[headBytes+24:]),
	}
	if k.bytes == 0 || k.addr+k.bytes < k.addr || k.id == 0 {
		return key{}, fmt.Errorf("%w: key of %d bytes at %#x", framework.ErrPeer, k.bytes, k.addr)
	}
	return k, nil
}

// address tells a peer how to reach one side of a link.
type address struct {
	mode     Mode
	kind     framework.Kind
	rank     uint32
	digest   [digestBytes]byte // of what both sides must agree on
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
	b = appendHead(b, typeAddress, a.mode)
	b = append(b, byte(a.kind))
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	b = append(b, a.digest[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.qpn)
	b = binary.LittleEndian.AppendUint32(b, a.psn)
	b = append(b, a.gid[:]...)
	b = binary.LittleEndian.AppendUint16(b, a.lid)
	b = append(b, a.mtu, 0, a.atomics)
	if a.ethernet {
		b[len(b)-2] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, a.receives)
	b = binary.LittleEndian.AppendUint64(b, a.mailbox)
	b = binary.LittleEndian.AppendUint32(b, a.rkey)
	b = append(b, byte(len(a.device)))
	b = append(b, a.device...)
	return appendSum(b, start)
}

func openAddress(p framework.Parcel, mode Mode) (address, error) {
	b := p.Data
	const name = addressFixed - sumBytes - 1 // where the length of the name is
	if err := check(b, typeAddress, "address", mode, func(n int) int {
		if n < addressFixed {
			return addressFixed
		}
		return addressFixed + int(b[name])
	}); err != nil {
		return address{}, err
	}
	if len(p.Shares) != 0 {
		return address{}, fmt.Errorf("%w: address with %d shares: expected none", framework.ErrPeer, len(p.Shares))
	}
	a := address{mode: mode, kind: framework.Kind(b[headBytes]), rank: binary.LittleEndian.Uint32(b[headBytes+1:])}
	at := headBytes + 5
	at += copy(a.digest[:], b[at:])
	a.qpn, a.psn = binary.LittleEndian.Uint32(b[at:]), binary.LittleEndian.Uint32(b[at+4:])
	at += 8
	at += copy(a.gid[:], b[at:])
	a.lid = binary.LittleEndian.Uint16(b[at:])
	a.mtu, a.ethernet, a.atomics = b[at+2], b[at+3] == 1, b[at+4]
	a.receives = binary.LittleEndian.Uint16(b[at+5:])
	a.mailbox, a.rkey = binary.LittleEndian.Uint64(b[at+7:]), binary.LittleEndian.Uint32(b[at+15:])
	a.device = string(b[name+1 : len(b)-sumBytes])
	if a.mtu < 1 || a.mtu > 5 || a.atomics == 0 || len(a.device) > maxName || a.mode == Immediate && a.receives == 0 {
		return address{}, fmt.Errorf("%w: address with MTU code %d, %d atomics at a time, room for %d signals and a device name of %d bytes", framework.ErrPeer, a.mtu, a.atomics, a.receives, len(a.device))
	}
	return a, nil
}

// digest condenses what both sides of a link were configured with. It finds mistakes; it
// is no defense.
func digest(c framework.EndpointConfig) (d [digestBytes]byte) {
	var b []byte
	for _, r := range c.Ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	sum := sha256.Sum256(append(b, c.Group...))
	copy(d[:], sum[:])
	return d
}

func appendHead(b []byte, kind byte, mode Mode) []byte {
	return append(append(b, magic[:]...), codecVersion, kind, byte(mode))
}

func appendSum(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

func check(b []byte, kind byte, what string, mode Mode, length func(n int) int) error {
	switch {
	case len(b) < headBytes+sumBytes || !bytes.Equal(b[:4], magic[:]):
		return fmt.Errorf("%w: %d bytes that are no %s of a transport over verbs", framework.ErrPeer, len(b), what)
	case b[4] != codecVersion:
		return fmt.Errorf("%w: %s of version %d: expected %d; the ranks run different builds", framework.ErrPeer, what, b[4], codecVersion)
	case b[5] != kind:
		return fmt.Errorf("%w: expected a %s", framework.ErrPeer, what)
	case Mode(b[6]) != mode:
		return fmt.Errorf("%w: %s of a transport that signals in another way: expected ib-host at both ends, or ib-nonatomic", framework.ErrPeer, what)
	case len(b) != length(len(b)):
		return fmt.Errorf("%w: %s of %d bytes: expected %d", framework.ErrPeer, what, len(b), length(len(b)))
	case crc32.ChecksumIEEE(b[:len(b)-sumBytes]) != binary.LittleEndian.Uint32(b[len(b)-sumBytes:]):
		return fmt.Errorf("%w: %s was damaged on its way", framework.ErrPeer, what)
	}
	return nil
}
