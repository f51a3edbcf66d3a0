// Package link holds the properties that every link has, whatever carries it: the ranks at its
// ends, the configuration that both must share, and which host one is on.
package link

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// SideBytes is the length of an encoded Side.
const SideBytes = 1 + 4 + digestBytes

const digestBytes = 16

// Side is the first part of addresses: which end of which link they are of.
type Side struct {
	Kind   framework.Kind
	Rank   uint32
	Digest [digestBytes]byte // of what all ends must agree on
}

// SideOf is the end that a configuration describes.
func SideOf(c framework.EndpointConfig) Side {
	return Side{Kind: c.Kind, Rank: uint32(c.Rank), Digest: digest(c)}
}

// digest condenses what all ends of a link were configured with. It finds mistakes; it
// is no defense.
func digest(c framework.EndpointConfig) (d [digestBytes]byte) {
	b := binary.LittleEndian.AppendUint64(nil, c.Bytes)
	for _, r := range c.Ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	sum := sha256.Sum256(append(b, c.Group...))
	copy(d[:], sum[:])
	return d
}

// Append encodes a side, in SideBytes.
func (s Side) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, byte(s.Kind)), s.Rank)
	return append(b, s.Digest[:]...)
}

// Decode is the inverse of Append. Whether b has SideBytes the caller knows.
func Decode(b []byte) Side {
	return Side{Kind: framework.Kind(b[0]), Rank: binary.LittleEndian.Uint32(b[1:]), Digest: [digestBytes]byte(b[5:SideBytes])}
}

// Check says why far is not the end of the same link at which rank is: ErrPeer.
func (s Side) Check(rank int, far Side) error {
	switch {
	case far.Kind != s.Kind:
		return fmt.Errorf("%w: address of a %v link: expected %v", framework.ErrPeer, far.Kind, s.Kind)
	case int64(far.Rank) != int64(rank):
		return fmt.Errorf("%w: address of rank %d: expected rank %d", framework.ErrPeer, far.Rank, rank)
	case far.Digest != s.Digest:
		return fmt.Errorf("%w: address of a link of another group, with other ranks, or of another size", framework.ErrPeer)
	}
	return nil
}

// CheckRanks says what is wrong with the ranks of a link that has so many members:
// ErrInvalid.
func CheckRanks(c framework.EndpointConfig, members int) error {
	r := c.Ranks
	ascending := true
	for i := 1; i < len(r); i++ {
		ascending = ascending && r[i-1] < r[i]
	}
	if members < 1 || len(r) != members || !ascending || r[0] < 0 || r[members-1] > math.MaxInt32 || !slices.Contains(r, c.Rank) {
		return fmt.Errorf("%w: ranks %v with own rank %d: expected %d, ascending, with the own one", framework.ErrInvalid, r, c.Rank, members)
	}
	return nil
}

// Others returns the other ranks of a link, ascending. The peers with which it is
// connected have to be these: else the error is ErrInvalid.
func Others(c framework.EndpointConfig, peers []framework.Peer) ([]int, error) {
	others := slices.DeleteFunc(slices.Clone(c.Ranks), func(r int) bool { return r == c.Rank })
	given := make([]int, len(peers))
	for i, p := range peers {
		given[i] = p.Rank
	}
	if !slices.Equal(given, others) {
		return nil, fmt.Errorf("%w: peers %v: expected ranks %v", framework.ErrInvalid, given, others)
	}
	return others, nil
}

// Object is what the root of a switch group sends along with its address: a share of this kind, a duplicate. From others, and on
// other links, nothing is expected; then it has no descriptor.
func Object(c framework.EndpointConfig, p framework.Peer, kind framework.ShareKind) (s framework.Share, err error) {
	want := 0
	if c.Kind == framework.KindSwitch && p.Rank == c.Ranks[0] {
		want = 1
	}
	if len(p.Address.Shares) != want {
		return s, fmt.Errorf("%w: address with %d shares: expected %d", framework.ErrPeer, len(p.Address.Shares), want)
	}
	if want == 0 {
		return s, nil
	}
	if s := p.Address.Shares[0]; s.Kind != kind || s.FD == nil {
		return framework.Share{}, fmt.Errorf("%w: group object as %s: expected %s", framework.ErrPeer, s.Kind, kind)
	}
	return p.Address.Shares[0].Dup()
}

// SameHost says why a peer is not where this end is: ErrPeer.
func SameHost(own, far string) error {
	if far != own {
		return fmt.Errorf("%w: it is on host %q, this is %q", framework.ErrPeer, far, own)
	}
	return nil
}

// Host names the host of a rank: as facts have it, else by the running kernel.
func Host(f framework.Facts) string {
	if f.Host != "" {
		return f.Host
	}
	return BootID()
}

// BootID identifies the running kernel, whatever containers and names say.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		return name
	}
	return strings.TrimSpace(string(text))
}
