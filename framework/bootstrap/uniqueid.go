package bootstrap

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/meeting"
)

// UniqueID names a job and says how to join it: where rank 0 listens, a random job id, and a random
// secret. Any process that has it can join, so it is handed over like a password. It is as long as
// NCCL's, and may be copied as bytes or as text.
//
//	 0  "MSID"
//	 4  u8 version | u8 number of addresses | u8 flags | u8 0
//	 8  job id, 16 bytes
//	24  secret, 32 bytes
//	56  up to 3 addresses: 16 bytes IPv6 (IPv4 mapped), u16 port, big-endian
//	110 14 bytes 0, or the token of a meeting place
//	124 u32 CRC-32 of all before, little-endian
type UniqueID [128]byte

const (
	idMagic     = "MSID"
	idVersion   = 1
	idPrefix    = "mscclpp1-" // of the text form, with its version
	idAddresses = 3

	// idListening: rank 0 has listened since before the id was given out, so one that refuses has gone. idSuccessor: see Successor.
	idListening, idSuccessor = 1, 4 // 2: a meeting place
)

// NewUniqueID makes an id for rank 0 at the given addresses, best first.
func NewUniqueID(addresses ...netip.AddrPort) (UniqueID, error) {
	var id UniqueID
	if len(addresses) == 0 || len(addresses) > idAddresses {
		return id, fmt.Errorf("%w: unique id with %d addresses: expected 1 to %d", framework.ErrInvalid, len(addresses), idAddresses)
	}
	copy(id[:], idMagic)
	id[4], id[5] = idVersion, byte(len(addresses))
	_, _ = rand.Read(id[8:56]) // never fails
	for i, a := range addresses {
		if !a.Addr().IsValid() || a.Addr().IsUnspecified() || a.Port() == 0 {
			return UniqueID{}, fmt.Errorf("%w: unique id with address %q: expected an address and port that others can reach", framework.ErrInvalid, a)
		}
		meeting.PutAddress(id[56+18*i:], a)
	}
	return id.sealed(), nil
}

func (id UniqueID) sealed() UniqueID {
	binary.LittleEndian.PutUint32(id[124:], crc32.ChecksumIEEE(id[:124]))
	return id
}

// Listening returns the id with the promise that rank 0 has listened at its addresses since before
// any rank got it: ranks that are refused there do not try again.
func (id UniqueID) Listening() UniqueID {
	id[6] |= idListening
	return id.sealed()
}

func (id UniqueID) isListening() bool { return id[6]&idListening != 0 }

// Successor returns the id of one of several jobs that are at the addresses one after another. Ranks that find one with
// another name there, or one that ends, wait for theirs.
func (id UniqueID) Successor(name []byte) UniqueID {
	sum := sha256.Sum256(append(id[8:24:24], name...))
	copy(id[8:24], sum[:])
	id[6] |= idSuccessor
	return id.sealed()
}

// ParseUniqueID reads the text form.
func ParseUniqueID(s string) (UniqueID, error) {
	var id UniqueID
	body, ok := strings.CutPrefix(strings.TrimSpace(s), idPrefix)
	if !ok {
		return id, fmt.Errorf("%w: unique id: expected text that begins with %q", framework.ErrInvalid, idPrefix)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		// The text of err would quote the secret.
		return id, fmt.Errorf("%w: unique id: expected base64url after %q", framework.ErrInvalid, idPrefix)
	}
	return UniqueIDFromBytes(b)
}

// UniqueIDFromBytes reads the 128 bytes of an id.
func UniqueIDFromBytes(b []byte) (UniqueID, error) {
	if len(b) != len(UniqueID{}) {
		return UniqueID{}, fmt.Errorf("%w: unique id of %d bytes: expected %d", framework.ErrInvalid, len(b), len(UniqueID{}))
	}
	id := UniqueID(b)
	return id, id.Validate()
}

// Validate reports what is wrong with the bytes of an id.
func (id UniqueID) Validate() error {
	switch {
	case string(id[:4]) != idMagic:
		return fmt.Errorf("%w: unique id: expected bytes that begin with %q", framework.ErrInvalid, idMagic)
	case id[4] != idVersion:
		return fmt.Errorf("%w: unique id of version %d: expected %d", framework.ErrInvalid, id[4], idVersion)
	case binary.LittleEndian.Uint32(id[124:]) != crc32.ChecksumIEEE(id[:124]):
		return fmt.Errorf("%w: unique id: wrong checksum: it was cut or changed on its way", framework.ErrInvalid)
	case id[5] == 0 || id[5] > idAddresses:
		return fmt.Errorf("%w: unique id with %d addresses: expected 1 to %d", framework.ErrInvalid, id[5], idAddresses)
	}
	for _, a := range id.Addresses() {
		if a.Addr().IsUnspecified() || a.Port() == 0 {
			return fmt.Errorf("%w: unique id with address %q: expected an address and port that others can reach", framework.ErrInvalid, a)
		}
	}
	return nil
}

// Addresses says where rank 0 listens.
func (id UniqueID) Addresses() []netip.AddrPort {
	n := min(int(id[5]), idAddresses)
	out := make([]netip.AddrPort, n)
	for i := range out {
		out[i] = meeting.Address(id[56+18*i:])
	}
	return out
}

// Job returns the job id, which is not secret.
func (id UniqueID) Job() [16]byte { return [16]byte(id[8:]) }

func (id UniqueID) secret() []byte { return id[24:56] }

// String returns the text form, which contains the secret, for handing the id over.
// Loggers of log/slog use LogValue instead.
func (id UniqueID) String() string {
	return idPrefix + base64.RawURLEncoding.EncodeToString(id[:])
}

// MarshalText implements encoding.TextMarshaler.
func (id UniqueID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *UniqueID) UnmarshalText(text []byte) error {
	got, err := ParseUniqueID(string(text))
	if err == nil {
		*id = got
	}
	return err
}

// LogValue implements slog.LogValuer. The value does not contain the secret.
func (id UniqueID) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("job %x at %v", id[8:16], id.Addresses()))
}
