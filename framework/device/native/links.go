package native

// #include "table.h"
import "C"

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

var _ device.Linked = (*Device)(nil)

// The most devices to which links may lead, and the most links to one: more is a mistake.
const mostLinks = 4096

// Links implements [device.Linked].
func (d *Device) Links() (self string, list []framework.DeviceLink, known bool) {
	return d.address(), d.links, d.linked
}

func (o *opened) address() string { return addressOf(o.facts.pci[:], o.facts.uuid) }

// readLinks takes the links of a device that is being opened. A back end that has the entry, and on this machine no way to know,
// says that it is unsupported: then the device is as one whose table has no links.
func (o *opened) readLinks() error {
	if o.b.has&hasLinks == 0 {
		return nil
	}
	own := o.address()
	if own == "" {
		return o.badLinks("the device has neither an address on the bus nor a UUID: expected one, by which the others list it")
	}
	seen := map[string]bool{}
	for i := C.uint32_t(0); ; i++ {
		row := C.mscclpp_device_link{size: C.sizeof_mscclpp_device_link}
		st := C.native_link(o.t, o.d, i, &row)
		switch st.code {
		case C.MSCCLPP_DEVICE_NOT_FOUND:
			o.linked = true
			return nil
		case C.MSCCLPP_DEVICE_UNSUPPORTED:
			o.links = nil
			return nil
		}
		if err := o.check("links", st); err != nil {
			return err
		}
		l := linkOf(&row)
		switch {
		case i == mostLinks:
			return o.badLinks("the list has no end: expected up to %d, and then MSCCLPP_DEVICE_NOT_FOUND", mostLinks)
		case l.Peer == "":
			return o.badLinks("link %d names no device: expected its address on the bus, or its UUID", i)
		case l.Peer == own:
			return o.badLinks("link %d leads to the device itself", i)
		case seen[l.Peer]:
			return o.badLinks("link %d leads to %s, as one before it does: expected each device once", i, l.Peer)
		case l.Count < 1 || l.Count > mostLinks:
			return o.badLinks("link %d has a count of %d: expected 1 to %d", i, l.Count, mostLinks)
		}
		seen[l.Peer] = true
		o.links = append(o.links, l)
	}
}

func (o *opened) badLinks(format string, args ...any) error {
	return fmt.Errorf("%s links: %w: %s", o.info.Device, framework.ErrInvalid, fmt.Sprintf(format, args...))
}

func linkOf(c *C.mscclpp_device_link) framework.DeviceLink {
	return framework.DeviceLink{
		Peer: addressOf(c.pci[:], c.uuid), Kind: text(c.kind[:]), Count: int(c.count), Switch: c.switched != 0,
		Rate: float64(c.rate) / 1e9, Latency: float64(c.latency) / 1e3,
	}
}

// addressOf is the address on the bus, as the kernel writes it, else the UUID.
func addressOf(pci []C.char, uuid [16]C.uint8_t) string {
	if at := strings.ToLower(text(pci)); at != "" {
		return at
	}
	var id [16]byte
	for i := range id {
		id[i] = byte(uuid[i])
	}
	return FormatUUID(id)
}

// FormatUUID writes a UUID with its dashes; "" if all of it is 0.
func FormatUUID(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	x := hex.EncodeToString(id[:])
	return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-")
}
