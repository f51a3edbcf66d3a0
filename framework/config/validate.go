package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// validate checks what involves more than one key, or more than a type.
func (e *Effective) validate() error {
	var all []error
	bad := func(key, format string, args ...any) {
		all = append(all, fmt.Errorf("%s: %s: %s: %w", e.Origin(key), key, fmt.Sprintf(format, args...), framework.ErrInvalid))
	}
	if err := e.checkDevice(e.Device); err != nil && strings.HasSuffix(err.Error(), "out of range") {
		bad("device", "%q is too large a number: expected one of the GPUs that are visible", e.Device)
	} else if err != nil {
		bad("device", "%q: expected %s", e.Device, e.deviceNames())
	}
	e.validateDevices(bad)
	seen := map[string]bool{}
	for _, name := range e.Transports {
		if !validName().MatchString(name) {
			bad("transports", "name %q: expected lower-case letters, digits and single hyphens", name)
		}
		if seen[name] {
			bad("transports", "%q is listed twice", name)
		}
		seen[name] = true
	}
	for _, name := range e.Plugins.Embed {
		if len(seen) > 0 && !seen[name] {
			bad("plugins.embed", "%q is not in transports", name)
		}
	}
	for _, name := range sortedPins(e.Plugins.Path) {
		p := e.Plugins.Path[name]
		if !filepath.IsAbs(p.File) {
			bad("plugins.path."+name+".file", "%q: expected an absolute path", p.File)
		}
		if b, err := hex.DecodeString(p.SHA256); err != nil || len(b) != 0 && len(b) != 32 {
			bad("plugins.path."+name+".sha256", "%q: expected 64 hexadecimal digits", p.SHA256)
		}
	}
	if e.Comm.MaxBlocks < 0 || e.Comm.MaxBlocks > 1024 {
		bad("comm.max_blocks", "%d: expected 0 to 1024", e.Comm.MaxBlocks)
	}
	if e.Comm.Scratch != 0 && e.Comm.Scratch < 64<<10 || e.Comm.Scratch > 1<<40 {
		bad("comm.scratch", "%v: expected 64KiB to 1TiB, or 0", e.Comm.Scratch)
	}
	if e.Collectives.Sharing < 0 || e.Collectives.Sharing > 1024 {
		bad("collectives.sharing", "%d: expected 0 to 1024", e.Collectives.Sharing)
	}
	if e.Collectives.CopyScratch < 2<<20 || e.Collectives.CopyScratch > 1<<40 {
		bad("collectives.copy_scratch", "%v: expected 2MiB to 1TiB", e.Collectives.CopyScratch)
	}
	if e.Bootstrap.Timeout == 0 {
		bad("bootstrap.timeout", "0s: expected a duration; every wait is bounded")
	}
	if e.Bootstrap.Heartbeat == 0 {
		bad("bootstrap.heartbeat", "0s: expected a duration; without signs of life a silent host would go unnoticed")
	}
	if e.Plugins.StartTimeout == 0 {
		bad("plugins.start_timeout", "0s: expected a duration; every wait is bounded")
	}
	for i, p := range e.Collectives.Plans {
		if p.Path == "" {
			bad("collectives.plans", "entry %d: expected a path", i+1)
		}
		if p.Packets != 0 && p.Packets != 8 && p.Packets != 16 {
			bad("collectives.plans", "entry %d: packets of %d bytes: expected 8 or 16", i+1, p.Packets)
		}
	}
	for i, c := range e.Collectives.Table {
		if c.Algorithm == "" {
			bad("collectives.table", "row %d: expected an algorithm", i+1)
		}
		if c.Blocks < 0 || c.Blocks > 1024 || c.Threads < 0 || c.Threads > 1024 {
			bad("collectives.table", "row %d: blocks %d, threads %d: expected 0 to 1024", i+1, c.Blocks, c.Threads)
		}
		if c.MaxRanks != 0 && c.MaxRanks < c.MinRanks {
			bad("collectives.table", "row %d: max_ranks %d is below min_ranks %d", i+1, c.MaxRanks, c.MinRanks)
		}
	}
	return errors.Join(all...)
}

// builtInDevices are the types of the devices that come with mscclpp-go.
var builtInDevices = []string{"host", "cuda", "hip"}

// reservedDevices may not be types of others.
var reservedDevices = append([]string{"auto"}, builtInDevices...)

// checkDevice takes what framework.ParseDevice does, for devices that there are, and leaves to be chosen.
func (e *Effective) checkDevice(name string) error {
	if name == "" || name == "auto" {
		return nil
	}
	d, err := framework.ParseDevice(name)
	if _, configured := e.Devices[d.Type]; err == nil && !configured && !slices.Contains(builtInDevices, d.Type) {
		err = fmt.Errorf("%w: no program runs on %s", framework.ErrUnsupported, name)
	}
	return err
}

// deviceNames says what device may be.
func (e *Effective) deviceNames() string {
	text := "host, cuda, cuda:N, hip, hip:N or auto"
	for _, name := range slices.Sorted(maps.Keys(e.Devices)) {
		text = name + ", " + name + ":N, " + text
	}
	if len(e.Devices) == 0 {
		text += ", or one that devices names"
	}
	return text
}

// validateDevices checks the back ends of devices.
func (e *Effective) validateDevices(bad func(key, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(e.Devices)) {
		b, key := e.Devices[name], "devices."+name
		if d, err := framework.ParseDevice(name); err != nil || d.Type != name || slices.Contains(reservedDevices, name) {
			bad(key, "%q: expected up to 32 lower-case letters and digits, other than %s", name, strings.Join(reservedDevices, ", "))
		}
		if !filepath.IsAbs(b.Path) {
			bad(key+".path", "%q: expected an absolute path", b.Path)
		}
		if sum, err := hex.DecodeString(b.SHA256); err != nil || len(sum) != 0 && len(sum) != 32 {
			bad(key+".sha256", "%q: expected 64 hexadecimal digits", b.SHA256)
		}
		for _, t := range b.Transports {
			if !validName().MatchString(t) {
				bad(key+".transports", "name %q: expected lower-case letters, digits and single hyphens", t)
			}
		}
		for _, o := range b.Options {
			if k, _, ok := strings.Cut(o, "="); !ok || k == "" || strings.ContainsAny(o, "\n\x00") {
				bad(key+".options", "%q: expected key=value", o)
			}
		}
	}
}

func sortedPins(m map[string]Pinned) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
