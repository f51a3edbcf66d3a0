package gpulink

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Peers send each other messages of a head, then fixed fields, then texts with a byte for
// their length, nothing after them.
const (
	typeKey      = 1
	typeAddress  = 2
	headBytes    = parcel.HeadBytes
	sideEnd      = headBytes + link.SideBytes
	keyFixed     = headBytes + 8 + 8 + 1
	addressFixed = sideEnd + 16 + 1
	maxText      = 255
	maxShares    = 8
)

// wireKinds number the kinds of share that a key can come with.
var wireKinds = []framework.ShareKind{
	1: framework.ShareLocal, 2: framework.ShareVMM, 3: framework.ShareFabric, 4: framework.ShareLegacyIPC, 5: framework.ShareMemFD,
}

// key says where registered memory lies in its allocation, and which shares of that
// come with it, in this order.
type key struct {
	offset, bytes uint64
	kinds         []framework.ShareKind
}

func (k key) append(head parcel.Head, b []byte) []byte {
	b = head.Append(b, typeKey)
	b = binary.LittleEndian.AppendUint64(b, k.offset)
	b = binary.LittleEndian.AppendUint64(b, k.bytes)
	b = append(b, byte(len(k.kinds)))
	for _, kind := range k.kinds {
		b = append(b, byte(slices.Index(wireKinds, kind)))
	}
	return b
}

func decodeKey(head parcel.Head, b []byte) (key, error) {
	if err := head.Check(b, typeKey, "key"); err != nil {
		return key{}, err
	}
	if len(b) < keyFixed || len(b) != keyFixed+int(b[keyFixed-1]) {
		return key{}, fmt.Errorf("%w: key of %d bytes: expected %d and one for each share", framework.ErrPeer, len(b), keyFixed)
	}
	k := key{offset: binary.LittleEndian.Uint64(b[headBytes:]), bytes: binary.LittleEndian.Uint64(b[headBytes+8:])}
	if err := checkRange(k.offset, k.bytes); err != nil {
		return key{}, fmt.Errorf("%w: key: %v", framework.ErrPeer, err)
	}
	if n := len(b) - keyFixed; n < 1 || n > maxShares {
		return key{}, fmt.Errorf("%w: key with %d shares: expected 1 to %d", framework.ErrPeer, n, maxShares)
	}
	for _, code := range b[keyFixed:] {
		if code == 0 || int(code) >= len(wireKinds) {
			return key{}, fmt.Errorf("%w: key with a share of kind %d: expected 1 to %d", framework.ErrPeer, code, len(wireKinds)-1)
		}
		k.kinds = append(k.kinds, wireKinds[code])
	}
	return k, nil
}

// maxBytes is beyond the memory of any GPU, and keeps sums from wrapping.
const maxBytes = 1 << 46

func checkRange(offset, bytes uint64) error {
	if bytes == 0 || bytes > maxBytes || offset > maxBytes {
		return fmt.Errorf("%w: %d bytes at offset %d: expected at least 1, and at most %d of both", framework.ErrInvalid, bytes, offset, uint64(maxBytes))
	}
	return nil
}

// instance is a number that no other instance has.
type instance [16]byte

// address identifies, for a peer, the link of which this is one side, and where its end is.
type address struct {
	link.Side
	instance instance
	host     string
	gpu      identity
	fabric   string // token of the network of links that the GPU is in; "" for none
}

func (a address) append(head parcel.Head, b []byte) []byte {
	b = head.Append(b, typeAddress)
	b = append(a.Side.Append(b), a.instance[:]...)
	texts := a.texts()
	b = append(b, byte(len(texts)))
	for _, t := range texts {
		b = append(b, byte(len(*t)))
		b = append(b, *t...)
	}
	return b
}

// texts are the fields of variable length, in their order.
func (a *address) texts() []*string {
	return []*string{&a.host, &a.gpu.uuid, &a.gpu.pci, &a.gpu.name, &a.fabric}
}

func decodeAddress(head parcel.Head, b []byte) (address, error) {
	if err := head.Check(b, typeAddress, "address"); err != nil {
		return address{}, err
	}
	if len(b) < addressFixed {
		return address{}, fmt.Errorf("%w: address of %d bytes: expected at least %d", framework.ErrPeer, len(b), addressFixed)
	}
	a := address{Side: link.Decode(b[headBytes:]), instance: instance(b[sideEnd : sideEnd+16])}
	texts := a.texts()
	rest := b[addressFixed:]
	if n := int(b[addressFixed-1]); n != len(texts) {
		return address{}, fmt.Errorf("%w: address with %d texts: expected %d", framework.ErrPeer, n, len(texts))
	}
	for _, t := range texts {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return address{}, fmt.Errorf("%w: address of %d bytes is cut off", framework.ErrPeer, len(b))
		}
		end := 1 + int(rest[0])
		*t, rest = string(rest[1:end]), rest[end:]
	}
	if len(rest) != 0 {
		return address{}, fmt.Errorf("%w: address with %d bytes after its end", framework.ErrPeer, len(rest))
	}
	return a, nil
}
