package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// gpu is what is known of a device, and whether it is closed.
type gpu struct {
	*primary
	info   device.Info
	closed atomic.Bool
}

// Info describes the device.
func (d *gpu) Info() device.Info { return d.info }

// Capability returns the compute capability: 9, 0 for Hopper.
func (d *gpu) Capability() (major, minor int) {
	return int(d.facts.major), int(d.facts.minor)
}

// PCI returns the address on the bus, as in /sys/bus/pci/devices: "0000:19:00.0".
func (d *gpu) PCI() string { return busAddress(C.GoString(&d.facts.pci[0])) }

// busAddress spells an address as the kernel does: lower case, and a domain of four
// digits unless it needs more.
func busAddress(s string) string {
	s = strings.ToLower(s)
	domain, rest, ok := strings.Cut(s, ":")
	if n := len(domain) - 4; ok && n > 0 && strings.Trim(domain[:n], "0") == "" {
		return domain[n:] + ":" + rest
	}
	return s
}

// UUID returns the number that the device was made with, which no setting changes.
func (d *gpu) UUID() (id [16]byte) {
	for i := range id {
		id[i] = byte(d.facts.uuid[i])
	}
	return id
}

// MemoryInfo returns the device memory, in bytes, that is free, and all of it.
func (d *gpu) MemoryInfo() (free, total uint64, err error) {
	if err := d.live("memory info"); err != nil {
		return 0, 0, err
	}
	var f, t C.uint64_t
	if err := d.check("memory info", C.cuda_mem_info(d.c, &f, &t)); err != nil {
		return 0, 0, err
	}
	return uint64(f), uint64(t), nil
}

// Reaches reports whether kernels of this device can load and store the memory of
// another one of this process's visible devices.
func (d *gpu) Reaches(index int) (bool, error) {
	if err := d.live("peer access"); err != nil {
		return false, err
	}
	return d.reaches(index)
}

// Close makes further calls fail. Memory, modules, streams, events and graphs live
// until they are closed themselves.
func (d *gpu) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.drop()
}

func (d *gpu) live(op string) error {
	if d.closed.Load() {
		return fmt.Errorf("cuda:%d %s: device: %w", d.index, op, framework.ErrClosed)
	}
	return nil
}

// begin is live for what outlives the device: the caller drops the context.
func (d *gpu) begin(op string) error {
	if err := d.live(op); err != nil {
		return err
	}
	return d.hold(op)
}
