package toylink

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Both messages begin with a word that names their form.
const (
	wordAddress = "TYA1"
	wordKey     = "TYK1"
	maxBytes    = 1 << 46 // keeps sums from wrapping
)

// address is one side of a link, for the other one.
type address struct {
	Owner [16]byte
	Rank  uint32
}

func (a address) encode() []byte {
	b := append([]byte(wordAddress), a.Owner[:]...)
	return binary.LittleEndian.AppendUint32(b, a.Rank)
}

func decodeAddress(p framework.Parcel) (address, error) {
	b := p.Data
	if len(b) != 24 || string(b[:4]) != wordAddress || len(p.Shares) != 0 {
		return address{}, fmt.Errorf("address of %d bytes with %d shares: expected 24 that begin with %s, and none: %w", len(b), len(p.Shares), wordAddress, framework.ErrPeer)
	}
	return address{Owner: [16]byte(b[4:20]), Rank: binary.LittleEndian.Uint32(b[20:])}, nil
}

// key says where registered memory lies in its allocation. The shares of that travel beside it.
type key struct{ Offset, Bytes uint64 }

func (k key) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte(wordKey), k.Offset)
	return binary.LittleEndian.AppendUint64(b, k.Bytes)
}

func decodeKey(b []byte) (key, error) {
	if len(b) != 20 || string(b[:4]) != wordKey {
		return key{}, fmt.Errorf("key of %d bytes: expected 20 that begin with %s: %w", len(b), wordKey, framework.ErrPeer)
	}
	k := key{Offset: binary.LittleEndian.Uint64(b[4:]), Bytes: binary.LittleEndian.Uint64(b[12:])}
	if k.Bytes == 0 || k.Bytes > maxBytes || k.Offset > maxBytes {
		return key{}, fmt.Errorf("key of %d bytes at %d: expected 1 to %d: %w", k.Bytes, k.Offset, uint64(maxBytes), framework.ErrPeer)
	}
	return k, nil
}
