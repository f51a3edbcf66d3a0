package host

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Memory is host memory. It implements device.Memory.
type Memory struct {
	addr   uintptr
	bytes  uint64
	region *region // the owner of the mapping; nil for wrapped memory
	mapped bool    // made by Map: exports nothing
	closed atomic.Bool
}

// Addr returns the address of the first byte.
func (m *Memory) Addr() uintptr { return m.addr }

// Bytes returns the size.
func (m *Memory) Bytes() uint64 { return m.bytes }

// Export returns two shares of allocated memory: one that only this process can
// map, at the address that it has already, and the descriptor for all others.
func (m *Memory) Export() ([]framework.Share, error) {
	if m.closed.Load() {
		return nil, fmt.Errorf("host export: memory: %w", framework.ErrClosed)
	}
	if m.mapped || m.region == nil {
		return nil, nil
	}
	fd, err := framework.Share{Kind: framework.ShareMemFD, FD: m.region.memory.File()}.Dup()
	if err != nil {
		return nil, fmt.Errorf("host export: %w", err)
	}
	return []framework.Share{{Kind: framework.ShareLocal, Blob: m.region.blob()}, fd}, nil
}

// Close gives the memory back. Mappings of it that others made stay valid.
func (m *Memory) Close() error {
	if m.closed.Swap(true) || m.region == nil {
		return nil
	}
	return m.region.release()
}

// Map makes memory of another process, or of this one, addressable.
func (d *Device) Map(m framework.Mapping) (device.Memory, error) {
	if err := d.live("map"); err != nil {
		return nil, err
	}
	if len(m.Shares) == 0 {
		return nil, fmt.Errorf("host map: %w: mapping without shares", framework.ErrInvalid)
	}
	var reasons []error
	for _, s := range m.Shares {
		memory, err := d.mapShare(s, m.Offset, m.Bytes)
		if err == nil {
			return memory, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", s.Kind, err))
	}
	return nil, fmt.Errorf("host map %d bytes at %d: %w", m.Bytes, m.Offset, join(reasons))
}

func (d *Device) mapShare(s framework.Share, offset, bytes uint64) (*Memory, error) {
	switch s.Kind {
	case framework.ShareLocal:
		return openLocal(s.Blob, offset, bytes)
	case framework.ShareMemFD:
		m, err := memfd.OpenWith(s.FD, offset, bytes, d.options)
		if err != nil {
			return nil, err
		}
		return &Memory{addr: uintptr(m.Addr()), bytes: bytes, region: newRegion(m), mapped: true}, nil
	}
	return nil, fmt.Errorf("%w: the CPU maps shares of kind %s and %s", framework.ErrUnsupported, framework.ShareMemFD, framework.ShareLocal)
}

// join reports every reason on one line.
func join(reasons []error) error {
	if len(reasons) == 1 {
		return reasons[0]
	}
	return &tried{errors.Join(reasons...)}
}

type tried struct{ error }

func (t *tried) Error() string { return strings.ReplaceAll(t.error.Error(), "\n", "; ") }
func (t *tried) Unwrap() error { return t.error }
