package verbs

// #include "abi.h"
import "C"

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// choose opens the adapter that the options and the machine suggest: of those that are
// allowed and usable, the nearest to the rank's device. Of these, one with an address as preferred.
func choose(lib *library, c Config, mode Mode, nics []framework.NIC, netdev func(string) string) (*adapter, error) {
	d, err := nearest(lib, c, mode, nics, netdev)
	if err == nil || c.GIDIndex >= 0 || c.gidWanted() == "" {
		return d, err
	}
	loose := c
	loose.GIDFamily, loose.GIDRange = "", ""
	if d, e := nearest(lib, loose, mode, nics, netdev); e == nil {
		slog.Warn("no adapter has an address on RoCE"+c.gidWanted()+": another one is used", "device", d.name, "port", d.port, "gid", fmt.Sprintf("%x at %d", d.gid, d.gidIndex))
		return d, nil
	}
	return nil, err
}

// nearest takes no address but such as are preferred.
func nearest(lib *library, c Config, mode Mode, nics []framework.NIC, netdev func(string) string) (*adapter, error) {
	there, err := lib.devices()
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("%w: no RDMA device: expected one in /sys/class/infiniband; is the adapter's driver loaded?", framework.ErrUnavailable)
	}
	names, err := candidates(there, c.Devices, nics, netdev)
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, name := range names {
		d, err := lib.open(name)
		if err == nil {
			if err = d.prepare(c, mode); err == nil {
				return d, nil
			}
			d.close()
		}
		reasons = append(reasons, err.Error())
	}
	return nil, fmt.Errorf("%w: no RDMA device can be used: %s", framework.ErrUnavailable, strings.Join(reasons, "; "))
}

// candidates orders the names of devices. Without allowed ones it is the order of nics,
// in which ranks of a host already take turns; with them the nearest come first, and
// equally near ones as they were named.
func candidates(there, allowed []string, nics []framework.NIC, netdev func(string) string) ([]string, error) {
	names := slices.Clone(there)
	if len(allowed) > 0 {
		names = nil
		for _, a := range allowed {
			name := a
			if !slices.Contains(there, a) {
				name = netdev(a)
			}
			if !slices.Contains(there, name) {
				return nil, fmt.Errorf("%w: devices: there is no RDMA device %q, nor a network device of that name with one: expected some of %s", framework.ErrUnavailable, a, strings.Join(there, " "))
			}
			names = append(names, name)
		}
	}
	rank := func(name string) int {
		i := slices.IndexFunc(nics, func(n framework.NIC) bool { return n.Name == name })
		switch {
		case i < 0:
			return len(nics)
		case len(allowed) == 0:
			return i
		}
		return slices.IndexFunc(nics, func(n framework.NIC) bool { return n.Distance == nics[i].Distance })
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names, nil
}

// prepare picks port and address.
func (d *adapter) prepare(c Config, mode Mode) error {
	if mode == Atomic && !d.atomics() {
		return fmt.Errorf("%w: device %s has no remote atomics: use ib-nonatomic", framework.ErrUnavailable, d.name)
	}
	ports := []int{c.Port}
	if c.Port == 0 {
		ports = nil
		for p := 1; p <= d.ports(); p++ {
			ports = append(ports, p)
		}
	} else if c.Port > d.ports() {
		return fmt.Errorf("%w: device %s has no port %d: expected 1 to %d", framework.ErrUnavailable, d.name, c.Port, d.ports())
	}
	var reasons []string
	for _, port := range ports {
		f, err := d.queryPort(port)
		if err == nil && !f.active {
			err = fmt.Errorf("device %s port %d is down: expected an active one; look at ip link or ibstat", d.name, port)
		}
		if err == nil {
			d.port, d.portAttr = port, f
			if c.MTU != 0 {
				d.portAttr.mtu = min(f.mtu, mtuCode(c.MTU))
			}
			if err = d.pickGID(c); err == nil {
				return nil
			}
		}
		reasons = append(reasons, err.Error())
	}
	return fmt.Errorf("%w: %s", framework.ErrUnavailable, strings.Join(reasons, "; "))
}

// pickGID finds the port's address. On Ethernet packets are sent to it, so it must
// be one of RoCE v2, and preferably a routed one, of the family and the network that are asked for.
func (d *adapter) pickGID(c Config) error {
	index, best, worth := c.GIDIndex, -1, 0
	for i := range d.portAttr.gids {
		if index >= 0 && i != index {
			continue
		}
		gid, kind, err := d.queryGID(d.port, i)
		if err != nil || gid == [16]byte{} || index < 0 && d.portAttr.ethernet && !c.wantsGID(gid) {
			continue
		}
		if v := d.gidWorth(gid, kind); v > worth || index >= 0 {
			best, worth, d.gid = i, v, gid
		}
	}
	if best < 0 {
		if index >= 0 {
			return fmt.Errorf("device %s port %d has no address at gid_index %d: expected an index of its %d that is in use", d.name, d.port, index, d.portAttr.gids)
		}
		return fmt.Errorf("device %s port %d has no usable address among %d: expected one of RoCE v2%s; give its network device an IP address", d.name, d.port, d.portAttr.gids, c.gidWanted())
	}
	d.gidIndex = best
	return nil
}

// wantsGID reports whether an address is of the family and the network that are asked for.
func (c Config) wantsGID(gid [16]byte) bool {
	ip := netip.AddrFrom16(gid).Unmap()
	if c.GIDFamily != "" && ip.Is4() != (c.GIDFamily == "inet") {
		return false
	}
	network, err := netip.ParsePrefix(c.GIDRange) // checked by Validate
	return err != nil || network.Contains(ip)
}

// gidWanted says it in words.
func (c Config) gidWanted() string {
	text := ""
	if c.GIDFamily != "" {
		text += " with gid_family " + c.GIDFamily
	}
	if c.GIDRange != "" {
		text += " in gid_range " + c.GIDRange
	}
	return text
}

func (d *adapter) gidWorth(gid [16]byte, kind int) int {
	if !d.portAttr.ethernet {
		return 1 // the first: it has the subnet
	}
	if kind != C.rv_gid_roce_v2 && kind != -1 {
		return 0
	}
	switch {
	case bytes.Equal(gid[:12], []byte{10: 0xff, 11: 0xff}): // IPv4
		return 4
	case gid[0] == 0xfe && gid[1]&0xc0 == 0x80: // link local
		return 2
	}
	return 3
}

// fabric is the name under which ranks find out that they can reach each other.
func (d *adapter) fabric(c Config) string {
	switch {
	case c.Fabric != "":
		return "fabric:" + c.Fabric
	case d.portAttr.ethernet:
		return "roce:v2"
	}
	return "ib:" + hex.EncodeToString(d.gid[:8])
}
