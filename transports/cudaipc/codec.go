package cudaipc

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// What peers send each other: a header of magic, version and type, then fixed
// fields, little endian, then texts with a byte for their length, nothing after
// them. Peers of one job may run different builds, so a change of a layout raises
// its version.
const (
	codecVersion = 1
	typeKey      = 1
	typeAddress  = 2
	headBytes    = 6
	digestBytes  = 16
	keyFixed     = headBytes + 8 + 8 + 1
	addressFixed = headBytes + 1 + 4 + digestBytes + 16 + 1
	maxText      = 255
	maxShares    = 8
)

var magic = [4]byte{'M', 'C', 'I', 'P'}

// wireKinds number the kinds of share that a key can come with.
var wireKinds = []framework.ShareKind{
	1: framework.ShareLocal, 2: framework.ShareVMM, 3: framework.ShareFabric, 4: framework.ShareLegacyIPC, 5: framework.ShareMemFD,
}

// key tells peers where registered memory lies in its allocation, and which shares
// of that come with it, in this order.
type key struct {
	offset, bytes uint64
	kinds         []framework.ShareKind
}

func (k key) append(b []byte) []byte {
	b = appendHead(b, typeKey)
	b = binary.LittleEndian.AppendUint64(b, k.offset)
	b = binary.LittleEndian.AppendUint64(b, k.bytes)
	b = append(b, byte(len(k.kinds)))
	for _, kind := range k.kinds {
		b = append(b, byte(slices.Index(wireKinds, kind)))
	}
	return b
}

func decodeKey(b []byte) (key, error) {
	if err := checkHead(b, typeKey, "key"); err != nil {
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

// address tells a peer what link this is one side of, and where its end is.
type address struct {
	kind     framework.Kind
	rank     uint32
	digest   [digestBytes]byte // of what both sides must agree on
	instance instance
	host     string
	gpu      identity
	fabric   string // token of the NVLink network that the GPU is in; "" for none
}

func (a address) append(b []byte) []byte {
	b = appendHead(b, typeAddress)
	b = append(b, byte(a.kind))
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	b = append(b, a.digest[:]...)
	b = append(b, a.instance[:]...)
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

func decodeAddress(b []byte) (address, error) {
	if err := checkHead(b, typeAddress, "address"); err != nil {
		return address{}, err
	}
	if len(b) < addressFixed {
		return address{}, fmt.Errorf("%w: address of %d bytes: expected at least %d", framework.ErrPeer, len(b), addressFixed)
	}
	a := address{kind: framework.Kind(b[headBytes]), rank: binary.LittleEndian.Uint32(b[headBytes+1:])}
	copy(a.digest[:], b[headBytes+5:])
	copy(a.instance[:], b[headBytes+5+digestBytes:])
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

// digest condenses what both sides of a link were configured with. It finds
// mistakes; it is no defense.
func digest(c framework.EndpointConfig) (d [digestBytes]byte) {
	var b []byte
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
