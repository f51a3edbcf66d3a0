package cuda

import (
	"log/slog"

	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// Option changes a device.
type Option func(*options)

type options struct {
	legacy, fabric, dmaBuf, hosted, noGDRCopy bool

	machineCode []string
	log         *slog.Logger
}

// lines are the options of the table.
func (o *options) lines(library string) []string {
	lines := []string{"library=" + library}
	for _, l := range []struct {
		on   bool
		text string
	}{{o.legacy, "memory=legacy"}, {o.fabric, "memory=fabric"}, {o.noGDRCopy, "gdrcopy=off"}} {
		if l.on {
			lines = append(lines, l.text)
		}
	}
	return lines
}

// native are those of package native.
func (o *options) native() (all []native.Option) {
	if o.hosted {
		all = append(all, native.Hosted())
	}
	if o.dmaBuf {
		all = append(all, native.OnDemand())
	}
	return all
}

// Legacy makes Alloc use the driver's older memory and sharing, which it otherwise
// falls back to where memory behind descriptors is not to be had.
func Legacy() Option { return func(o *options) { o.legacy = true } }

// Fabric makes Alloc ask for memory that other hosts of one NVLink fabric can
// import as well. Where that is refused, memory is made without.
func Fabric() Option { return func(o *options) { o.fabric = true } }

// DMABuf makes Export add a share for NICs where the device has it. Without it,
// Memory.DMABuf gives one on demand.
func DMABuf() Option { return func(o *options) { o.dmaBuf = true } }

// Hosted makes Alloc use memory of the host that is registered with the device, for
// GPUs that cannot address each other's memory. Every GPU and process of the host
// reaches it, over PCIe; kernels and copy engines use it as they use their own.
func Hosted() Option { return func(o *options) { o.hosted = true } }

// WithoutGDRCopy makes MapForHost refuse.
func WithoutGDRCopy() Option { return func(o *options) { o.noGDRCopy = true } }

// MachineCode names containers (NAME-sm_90.cubins, made by mscclpp-kernels assemble) in
// which Load and LoadAssembled look for machine code of images. The log tells which form
// of an image was loaded, and why machine code was not.
func MachineCode(files []string, log *slog.Logger) Option {
	return func(o *options) { o.machineCode, o.log = files, log }
}
