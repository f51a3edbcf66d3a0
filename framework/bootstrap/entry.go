package bootstrap

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// entry is what ranks know of each other. It has no pointers: a job of thousands
// of ranks has thousands of tables of thousands of entries.
//
//	u32 rank | 16 bytes IPv6 (IPv4 mapped) | u16 port | u16 0 | host | socket
//
// An unspecified address stands for the one at which rank 0 was reached.
type entry struct {
	rank   uint32
	ip     [16]byte
	port   uint16
	host   [16]byte // hash of the host's identity
	socket [16]byte // name of the socket that takes descriptors
}

const entrySize = 56

func (e entry) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, e.rank)
	dst = append(dst, e.ip[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, e.port)
	dst = append(dst, 0, 0)
	dst = append(dst, e.host[:]...)
	return append(dst, e.socket[:]...)
}

func decodeEntry(r *wire.Reader, size int) (entry, error) {
	e := entry{rank: r.U32("entry")}
	copy(e.ip[:], r.Bytes(16, "entry"))
	e.port = r.U16("entry")
	r.U16("entry")
	copy(e.host[:], r.Bytes(16, "entry"))
	copy(e.socket[:], r.Bytes(16, "entry"))
	if r.Err != nil {
		return entry{}, r.Err
	}
	if e.rank >= uint32(size) || e.port == 0 {
		return entry{}, fmt.Errorf("%w: entry of rank %d with port %d: expected a rank below %d and a port", framework.ErrPeer, e.rank, e.port, size)
	}
	return e, nil
}

// decodeTable reads entries to the end of b.
func decodeTable(b []byte, size int) ([]entry, error) {
	r := wire.Reader{B: b}
	var table []entry
	for len(r.B) > 0 {
		e, err := decodeEntry(&r, size)
		if err != nil {
			return nil, err
		}
		table = append(table, e)
	}
	return table, nil
}

// addr returns where the rank listens; root is where rank 0 was reached.
func (e entry) addr(root netip.Addr) netip.AddrPort {
	ip := netip.AddrFrom16(e.ip).Unmap()
	if ip.IsUnspecified() {
		ip = root
	}
	if ip.IsLinkLocalUnicast() && ip.Is6() {
		ip = ip.WithZone(root.Zone()) // the zone is a matter of the side that connects
	}
	return netip.AddrPortFrom(ip, e.port)
}
