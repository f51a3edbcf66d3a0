package host

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Object emulates a multicast object. Hardware stores once and the switch fans
// out; here the window holds every member's memory side by side, and the kernel
// stores to each. A small memfd identifies the object, and says how large
// the window is; binding is local to each process, and so needs the memory of all
// members.
type Object struct {
	bytes  uint64 // of the window, per member
	ranks  int
	stride uint64
	id     *memfd.Memory
	share  framework.Share

	mu     sync.Mutex
	space  *memfd.Reservation
	bound  []uint64 // bytes bound to each slot
	added  bool
	closed bool
}

const (
	objectMagic   = 0x48435449574d4d53 // "SMMWITCH"
	objectVersion = 1
	objectBytes   = 32
	maxMembers    = 1 << 16
	// hugePage: windows of at least one are spaced so that huge pages can be used.
	hugePage = 2 << 20
)

// Object creates an object, or opens the one behind share. When opening, the
// object's own size and number of members are checked against those in o that are
// not 0.
func (d *Device) Object(o framework.Object, share *framework.Share) (device.Object, error) {
	if err := d.live("object"); err != nil {
		return nil, err
	}
	if o.Kind != framework.ObjectMulticast {
		return nil, fmt.Errorf("host object: %w: kind %d: expected a multicast object", framework.ErrUnsupported, o.Kind)
	}
	var made *Object
	var err error
	if share == nil {
		made, err = createObject(o)
	} else {
		made, err = openObject(o, *share)
	}
	if err != nil {
		return nil, fmt.Errorf("host object: %w", err)
	}
	made.stride = stride(made.bytes)
	made.bound = make([]uint64, made.ranks)
	if made.space, err = memfd.Reserve(made.stride*uint64(made.ranks), align(made.bytes)); err != nil {
		made.Close()
		return nil, fmt.Errorf("host object: window of %d members: %w", made.ranks, err)
	}
	return made, nil
}

func createObject(o framework.Object) (*Object, error) {
	if err := checkWindow(o.Bytes, uint64(max(o.Ranks, 0))); err != nil {
		return nil, err
	}
	id, err := memfd.New("mscclpp-switch", objectBytes, memfd.Options{})
	if err != nil {
		return nil, err
	}
	b := id.Bytes()
	binary.LittleEndian.PutUint64(b, objectMagic)
	binary.LittleEndian.PutUint64(b[8:], objectVersion)
	binary.LittleEndian.PutUint64(b[16:], o.Bytes)
	binary.LittleEndian.PutUint64(b[24:], uint64(o.Ranks))
	return &Object{bytes: o.Bytes, ranks: o.Ranks, id: id, share: framework.Share{Kind: framework.ShareMemFD, FD: id.File()}}, nil
}

func openObject(o framework.Object, s framework.Share) (*Object, error) {
	if s.Kind != framework.ShareMemFD {
		return nil, fmt.Errorf("%w: share of kind %s: expected %s", framework.ErrUnsupported, s.Kind, framework.ShareMemFD)
	}
	id, err := memfd.Open(s.FD, 0, objectBytes)
	if err != nil {
		return nil, err
	}
	defer id.Close()
	// The maker may write to it while we read: copy, then check, then use.
	var b [objectBytes]byte
	copy(b[:], id.Bytes())
	if magic := binary.LittleEndian.Uint64(b[:]); magic != objectMagic {
		return nil, fmt.Errorf("%w: memfd is no switch object", framework.ErrInvalid)
	}
	if v := binary.LittleEndian.Uint64(b[8:]); v != objectVersion {
		return nil, fmt.Errorf("%w: switch object of version %d: expected %d", framework.ErrInvalid, v, objectVersion)
	}
	bytes, ranks := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if err := checkWindow(bytes, ranks); err != nil {
		return nil, err
	}
	if o.Bytes != 0 && o.Bytes != bytes || o.Ranks != 0 && uint64(o.Ranks) != ranks {
		return nil, fmt.Errorf("%w: switch object of %d bytes for %d members: expected %d bytes for %d", framework.ErrInvalid, bytes, ranks, o.Bytes, o.Ranks)
	}
	own, err := s.Dup()
	if err != nil {
		return nil, err
	}
	return &Object{bytes: bytes, ranks: int(ranks), share: own}, nil
}

func checkWindow(bytes, ranks uint64) error {
	if bytes == 0 || bytes > 1<<40 || ranks == 0 || ranks > maxMembers || bytes*ranks > 1<<46 {
		return fmt.Errorf("%w: window of %d bytes for %d members: expected 1 byte to 1 TiB and 1 to %d members", framework.ErrInvalid, bytes, ranks, maxMembers)
	}
	return nil
}

func align(bytes uint64) uint64 {
	if bytes >= hugePage {
		return hugePage
	}
	return memfd.PageSize()
}

func stride(bytes uint64) uint64 {
	a := align(bytes)
	return (bytes + a - 1) &^ (a - 1)
}

// Share returns what other members open the object by; the caller owns it.
func (o *Object) Share() (framework.Share, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return framework.Share{}, fmt.Errorf("host object share: %w", framework.ErrClosed)
	}
	s, err := o.share.Dup()
	if err != nil {
		return framework.Share{}, fmt.Errorf("host object share: %w", err)
	}
	return s, nil
}
