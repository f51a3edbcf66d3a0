package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
)

// Devices are those of one type that a program started here would see.
type Devices struct {
	Type  string              // "cuda"
	Count func() (int, error) // at least one; if there is none, the error wraps framework.ErrUnavailable and says why
}

// BuiltIn are the types of devices that need no back end, in the order in which programs try them. They are counted by the files
// of their drivers.
func BuiltIn(root fs.FS, lookup func(name string) (string, bool)) []Devices {
	return []Devices{
		{"cuda", func() (int, error) { return GPUs(root, lookup) }},
		{kfd.Type, func() (int, error) { return amdGPUs(root, lookup) }},
	}
}

// CountDevices counts the devices of a type, or, where it is "", "auto" or "host", those of the first type in the list of which there is one.
func CountDevices(wanted string, list []Devices) (int, error) {
	var types, reasons []string
	for _, d := range list {
		types = append(types, d.Type)
		if d.Type == wanted {
			return d.Count()
		}
	}
	switch wanted {
	case "", "auto", framework.Host.Type:
	default:
		return 0, fmt.Errorf("%w: devices of type %s: expected one of %s", framework.ErrInvalid, wanted, strings.Join(types, ", "))
	}
	for _, d := range list {
		n, err := d.Count()
		if err == nil || !errors.Is(err, framework.ErrUnavailable) {
			return n, err
		}
		reasons = append(reasons, d.Type+": "+err.Error())
	}
	return 0, fmt.Errorf("%w: no device: %s", framework.ErrUnavailable, strings.Join(reasons, "; "))
}

// amdGPUs is GPUs for AMD's.
func amdGPUs(root fs.FS, lookup func(name string) (string, bool)) (int, error) {
	all, err := kfd.GPUs(root)()
	if err != nil {
		return 0, err
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("%w: AMD's driver shows no GPU", framework.ErrUnavailable)
	}
	seen, reasons := kfd.Visible(all, lookup)
	if len(seen) == 0 {
		return 0, fmt.Errorf("%w: no GPU: %s hides all %d", framework.ErrUnavailable, strings.Join(reasons, ", "), len(all))
	}
	return len(seen), nil
}
