package loopback

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// A parcel is magic and version, what it is, two numbers, and a checksum, so that
// nothing else is mistaken for one.
const (
	wireMagic   = 0x314b4f4c // "LOK1"
	wireBytes   = 4 + 4 + 8 + 8 + 4
	wireKey     = 1
	wireAddress = 2
)

func encode(what uint32, a, b uint64) []byte {
	d := make([]byte, 0, wireBytes)
	d = binary.LittleEndian.AppendUint32(d, wireMagic)
	d = binary.LittleEndian.AppendUint32(d, what)
	d = binary.LittleEndian.AppendUint64(d, a)
	d = binary.LittleEndian.AppendUint64(d, b)
	return binary.LittleEndian.AppendUint32(d, crc32.ChecksumIEEE(d))
}

func decode(what uint32, d []byte) (a, b uint64, err error) {
	if len(d) != wireBytes {
		return 0, 0, fmt.Errorf("parcel of %d bytes: expected %d: %w", len(d), wireBytes, framework.ErrPeer)
	}
	body := d[:wireBytes-4]
	if binary.LittleEndian.Uint32(d) != wireMagic || binary.LittleEndian.Uint32(d[wireBytes-4:]) != crc32.ChecksumIEEE(body) {
		return 0, 0, fmt.Errorf("parcel of another transport, or damaged: %w", framework.ErrPeer)
	}
	if got := binary.LittleEndian.Uint32(d[4:]); got != what {
		return 0, 0, fmt.Errorf("parcel of type %d: expected %d: %w", got, what, framework.ErrPeer)
	}
	return binary.LittleEndian.Uint64(d[8:]), binary.LittleEndian.Uint64(d[16:]), nil
}

// keyOf is a key with some other number of shares than one.
func keyOf(shares int) uint32 { return wireKey | uint32(shares)<<8 }

// maxShares is more than any device exports.
const maxShares = 8

// decodeKey checks the key of a peer: what it says, and the memory behind it.
func (t *Transport) decodeKey(key framework.Parcel) (offset, bytes uint64, err error) {
	what := uint32(wireKey)
	if t.byRank {
		what = keyOf(len(key.Shares))
	}
	offset, bytes, err = decode(what, key.Data)
	if err != nil {
		return 0, 0, err
	}
	if !t.byRank && (len(key.Shares) != 1 || key.Shares[0].Kind != framework.ShareMemFD) {
		return 0, 0, fmt.Errorf("key with %d shares: expected one of kind %s: %w", len(key.Shares), framework.ShareMemFD, framework.ErrPeer)
	}
	for _, s := range key.Shares {
		if err := checkShare(s, offset, bytes); err != nil {
			return 0, 0, err
		}
	}
	return offset, bytes, nil
}

// checkShare refuses memory that is smaller than its key says, or that its owner could still cut.
// Memory of devices is checked by the code that maps it.
func checkShare(s framework.Share, offset, bytes uint64) error {
	var err error
	switch s.Kind {
	case framework.ShareMemFD:
		err = memfd.Check(s.FD, offset, bytes)
	case framework.ShareVMM, framework.ShareDMABuf, framework.ShareFabric, framework.ShareLegacyIPC, framework.ShareLocal:
		if s.Kind.HasFD() != (s.FD != nil) {
			err = fmt.Errorf("share of kind %s without its descriptor, or with one", s.Kind)
		}
	default:
		err = fmt.Errorf("share of unknown kind %q", s.Kind)
	}
	if err != nil {
		return fmt.Errorf("key: %v: %w", err, framework.ErrPeer)
	}
	return nil
}
