package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Peers send each other messages of a head, then fixed fields, nothing after them.
const (
	typeKey      = 1
	typeAddress  = 2
	headBytes    = parcel.HeadBytes
	keyBytes     = headBytes + 8 + 8 + 1
	addressFixed = headBytes + link.SideBytes + 1
	maxHost      = 255
)

var head = parcel.Head{Magic: [4]byte{'M', 'S', 'H', 'M'}, Version: 1, Transport: Name}

// key says where registered memory lies in its memfd.
type key struct {
	offset, bytes uint64
	local         bool // a local share precedes the memfd
}

func (k key) append(b []byte) []byte {
	b = head.Append(b, typeKey)
	b = binary.LittleEndian.AppendUint64(b, k.offset)
	b = binary.LittleEndian.AppendUint64(b, k.bytes)
	if k.local {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeKey(b []byte) (key, error) {
	if err := head.Check(b, typeKey, "key"); err != nil {
		return key{}, err
	}
	if len(b) != keyBytes || b[headBytes+16] > 1 {
		return key{}, fmt.Errorf("%w: key of %d bytes: expected %d", framework.ErrPeer, len(b), keyBytes)
	}
	k := key{
		offset: binary.LittleEndian.Uint64(b[headBytes:]),
		bytes:  binary.LittleEndian.Uint64(b[headBytes+8:]),
		local:  b[headBytes+16] == 1,
	}
	if k.bytes == 0 || k.offset+k.bytes < k.offset {
		return key{}, fmt.Errorf("%w: key of %d bytes at offset %d", framework.ErrPeer, k.bytes, k.offset)
	}
	return k, nil
}

// address identifies, for a peer, the link of which this is one side.
type address struct {
	link.Side
	host string
}

func (a address) append(b []byte) []byte {
	b = head.Append(b, typeAddress)
	b = append(a.Side.Append(b), byte(len(a.host)))
	return append(b, a.host...)
}

func decodeAddress(b []byte) (address, error) {
	if err := head.Check(b, typeAddress, "address"); err != nil {
		return address{}, err
	}
	if len(b) < addressFixed || len(b) != addressFixed+int(b[addressFixed-1]) {
		return address{}, fmt.Errorf("%w: address of %d bytes: expected %d and the host's name", framework.ErrPeer, len(b), addressFixed)
	}
	return address{Side: link.Decode(b[headBytes:]), host: string(b[addressFixed:])}, nil
}
