package framework

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Device is where memory lives or kernels run.
type Device struct {
	Type  string // "host", "cuda", "hip", or that of a device back end
	Index int    // among devices of the type; 0 for host
}

// Host is the CPU and its memory.
var Host = Device{Type: "host"}

// String returns "host" or "cuda:1".
func (d Device) String() string {
	if d.Type == "host" {
		return d.Type
	}
	return d.Type + ":" + strconv.Itoa(d.Index)
}

// maxDeviceType is the longest name of a type of device.
const maxDeviceType = 32

// ParseDevice is the inverse of Device.String. It knows the form of names alone: which devices there are is a matter of the
// configuration.
func ParseDevice(s string) (Device, error) {
	kind, index, numbered := strings.Cut(s, ":")
	d := Device{Type: kind}
	if numbered {
		n, err := strconv.Atoi(index)
		if errors.Is(err, strconv.ErrRange) {
			return Device{}, fmt.Errorf("%w: device %q: its number is out of range", ErrInvalid, s)
		}
		if err != nil || n < 0 {
			return Device{}, fmt.Errorf("%w: device %q: expected host, or a type and a number, as cuda:0", ErrInvalid, s)
		}
		d.Index = n
	}
	if !isDeviceType(kind) || kind == Host.Type && d.Index != 0 {
		return Device{}, fmt.Errorf("%w: device %q: expected host, or a type and a number, as cuda:0", ErrInvalid, s)
	}
	return d, nil
}

// isDeviceType reports whether a name may be a type of device: lower-case letters and digits, a letter first.
func isDeviceType(name string) bool {
	for i, c := range name {
		if (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= maxDeviceType
}

// Segment is memory of the local rank that is offered to a transport: a range of one
// allocation.
type Segment struct {
	Device Device
	Shares []Share // exports of the whole allocation, best first; none for plain heap memory
	Offset uint64  // of the range within the allocation, in bytes
	Bytes  uint64  // of the range; not 0
	Addr   uint64  // of the range in the rank process, and valid there; 0 across the boundary
}

// Share is one way to reach an allocation from another process. Depending on Kind
// it is a descriptor or a blob, never both.
type Share struct {
	Kind ShareKind
	FD   *os.File // for ShareMemFD, ShareDMABuf, ShareVMM, ShareSocket, and kinds that begin with "fd:"
	Blob []byte   // for the others
}

// ShareKind is the kind of a share. Device back ends have kinds of their own, which mean nothing to anybody but them; the name
// says whether there is a descriptor.
type ShareKind string

// Kinds of share.
const (
	ShareMemFD     ShareKind = "memfd"      // sealed host memory
	ShareDMABuf    ShareKind = "dma-buf"    // for NICs
	ShareVMM       ShareKind = "vmm"        // POSIX descriptor of driver memory
	ShareSocket    ShareKind = "socket"     // connected stream socket
	ShareFabric    ShareKind = "fabric"     // driver handle, valid across hosts of one fabric
	ShareLegacyIPC ShareKind = "legacy-ipc" // driver handle; not importable by its exporter
	ShareLocal     ShareKind = "local"      // valid in the exporting process only
)

// descriptorPrefix begins the names of kinds of device back ends whose shares are descriptors.
const descriptorPrefix = "fd:"

// HasFD reports whether shares of this kind carry a descriptor: some of those above do, and of those that device back ends
// name all that begin with "fd:".
func (k ShareKind) HasFD() bool {
	return k == ShareMemFD || k == ShareDMABuf || k == ShareVMM || k == ShareSocket || strings.HasPrefix(string(k), descriptorPrefix)
}

// Close closes the descriptor, if there is one.
func (s Share) Close() error {
	if s.FD == nil {
		return nil
	}
	return s.FD.Close()
}

// Parcel is a message of a transport to its peers: opaque bytes and shares. Between hosts
// the descriptors are dropped; blobs travel everywhere.
type Parcel struct {
	Data   []byte
	Shares []Share
}

// Close closes all descriptors of the parcel.
func (p Parcel) Close() error {
	var first error
	for _, s := range p.Shares {
		if err := s.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
