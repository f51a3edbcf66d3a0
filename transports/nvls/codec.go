package nvls

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
	"github.com/mscclpp-go/mscclpp/transports/internal/parcel"
)

// Peers send each other messages of a head, then fixed fields, then texts with a byte for their length, nothing after them.
const (
	typeKey      = 1
	typeAddress  = 2
	headBytes    = parcel.HeadBytes
	keyBytes     = headBytes + 8 + 8
	addressFixed = headBytes + link.SideBytes
	maxText      = 255
)

var head = parcel.Head{Magic: [4]byte{'M', 'N', 'V', 'L'}, Version: 1, Transport: Name}

// key says where registered memory lies in its allocation.
type key struct{ offset, bytes uint64 }

func (k key) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(head.Append(b, typeKey), k.offset)
	return binary.LittleEndian.AppendUint64(b, k.bytes)
}

func decodeKey(b []byte) (key, error) {
	if err := head.Check(b, typeKey, "key"); err != nil {
		return key{}, err
	}
	if len(b) != keyBytes {
		return key{}, fmt.Errorf("%w: key of %d bytes: expected %d", framework.ErrPeer, len(b), keyBytes)
	}
	k := key{offset: binary.LittleEndian.Uint64(b[headBytes:]), bytes: binary.LittleEndian.Uint64(b[headBytes+8:])}
	if err := checkRange(k.offset, k.bytes); err != nil {
		return key{}, fmt.Errorf("%w: key: %v", framework.ErrPeer, err)
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

// address identifies, for a peer, the group of which this is one side, and where it is.
type address struct {
	link.Side
	host string
	gpu  string // UUID, else the address on the bus
}

func (a address) append(b []byte) []byte {
	b = a.Side.Append(head.Append(b, typeAddress))
	for _, text := range []string{a.host, a.gpu} {
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

func decodeAddress(b []byte) (address, error) {
	if err := head.Check(b, typeAddress, "address"); err != nil {
		return address{}, err
	}
	if len(b) < addressFixed {
		return address{}, fmt.Errorf("%w: address of %d bytes: expected at least %d", framework.ErrPeer, len(b), addressFixed)
	}
	a := address{Side: link.Decode(b[headBytes:])}
	rest := b[addressFixed:]
	for _, text := range []*string{&a.host, &a.gpu} {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return address{}, fmt.Errorf("%w: address of %d bytes is cut off", framework.ErrPeer, len(b))
		}
		end := 1 + int(rest[0])
		*text, rest = string(rest[1:end]), rest[end:]
	}
	if len(rest) != 0 {
		return address{}, fmt.Errorf("%w: address with %d bytes after its end", framework.ErrPeer, len(rest))
	}
	return a, nil
}
