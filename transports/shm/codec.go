package shm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// What peers send each other: a header of magic, version and type, then fixed
// fields, little endian, nothing after them. Peers of one job may run different
// builds, so a change of a layout raises its version.
const (
	codecVersion = 1
	typeKey      = 1
	typeAddress  = 2
	headBytes    = 6
	keyBytes     = headBytes + 8 + 8 + 1
	addressFixed = headBytes + 1 + 4 + digestBytes + 1
	digestBytes  = 16
	maxHost      = 255
)

var magic = [4]byte{'M', 'S', 'H', 'M'}

// key tells peers where registered memory lies in its memfd.
type key struct {
	offset, bytes uint64
	local         bool // a local share precedes the memfd
}

func (k key) append(b []byte) []byte {
	b = appendHead(b, typeKey)
	b = binary.LittleEndian.AppendUint64(b, k.offset)
	b = binary.LittleEndian.AppendUint64(b, k.bytes)
	if k.local {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeKey(b []byte) (key, error) {
	if err := checkHead(b, typeKey, "key"); err != nil {
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

// address tells a peer what link this is one side of.
type address struct {
	kind   framework.Kind
	rank   uint32
	digest [digestBytes]byte // of what both sides must agree on
	host   string
}

func (a address) append(b []byte) []byte {
	b = appendHead(b, typeAddress)
	b = append(b, byte(a.kind))
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	b = append(b, a.digest[:]...)
	b = append(b, byte(len(a.host)))
	return append(b, a.host...)
}

func decodeAddress(b []byte) (address, error) {
	if err := checkHead(b, typeAddress, "address"); err != nil {
		return address{}, err
	}
	if len(b) < addressFixed || len(b) != addressFixed+int(b[addressFixed-1]) {
		return address{}, fmt.Errorf("%w: address of %d bytes: expected %d and the host's name", framework.ErrPeer, len(b), addressFixed)
	}
	a := address{
		kind: framework.Kind(b[headBytes]),
		rank: binary.LittleEndian.Uint32(b[headBytes+1:]),
		host: string(b[addressFixed:]),
	}
	copy(a.digest[:], b[headBytes+5:])
	return a, nil
}

// digest condenses what both sides of a link, or all members of a switch, were
// configured with. It finds mistakes; it is no defense.
func digest(c framework.EndpointConfig) (d [digestBytes]byte) {
	b := binary.LittleEndian.AppendUint64(nil, c.Bytes)
	for _, r := range c.Ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	sum := sha256.Sum256(append(b, c.Group...))
	copy(d[:], sum[:])
	return d
}

func appendHead(b []byte, kind byte) []byte {
	return append(append(b, magic[:]...), codecVersion, kind)
}

func checkHead(b []byte, kind byte, what string) error {
	switch {
	case len(b) < headBytes || !bytes.Equal(b[:4], magic[:]):
		return fmt.Errorf("%w: %d bytes that are no %s of %s", framework.ErrPeer, len(b), what, Name)
	case b[4] != codecVersion:
		return fmt.Errorf("%w: %s of version %d: expected %d; the ranks run different builds", framework.ErrPeer, what, b[4], codecVersion)
	case b[5] != kind:
		return fmt.Errorf("%w: expected a %s, got something else of %s", framework.ErrPeer, what, Name)
	}
	return nil
}
