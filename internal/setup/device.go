package setup

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// kind is a type of device that programs can run on.
type kind struct {
	name string
	own  bool // it comes with mscclpp-go, and may be missing for any reason
	// count says how many a process sees. nil: there is one, always.
	count func() (int, error)
	// open opens a device, as the configuration would have it. builtIn is the folder of the plugins that come with the program.
	open func(index int, builtIn string) (device.Device, error)
}

// kinds are those of mscclpp-go and those that the configuration names, in the order in which "auto" tries them. The last one
// is always there.
func kinds(cfg *config.Config, log *slog.Logger) []kind {
	list := []kind{{
		name:  "cuda",
		own:   true,
		count: countGPUs,
		open:  func(index int, builtIn string) (device.Device, error) { return openGPU(index, cfg, builtIn, log) },
	}, {
		name:  "hip",
		own:   true,
		count: countHIP,
		open:  func(index int, _ string) (device.Device, error) { return openHIP(index, cfg) },
	}}
	for _, name := range slices.Sorted(maps.Keys(cfg.Devices)) {
		b := cfg.Devices[name]
		list = append(list, kind{
			name: name,
			count: func() (int, error) {
				back, err := backend(name, b, log)
				if err != nil {
					return 0, err
				}
				return back.Count()
			},
			open: func(index int, _ string) (device.Device, error) {
				back, err := backend(name, b, log)
				if err != nil {
					return nil, err
				}
				return back.Open(index, strings.Join(b.Options, "\n"), memoryOf(cfg)...)
			},
		})
	}
	return append(list, kind{name: framework.Host.Type, open: func(int, string) (device.Device, error) { return host.Open(host.Prefault(prefault)) }})
}

// memoryOf are the options of a configured device for the kind of its memory.
func memoryOf(cfg *config.Config) []native.Option {
	if cfg.GPUMemory == "host" {
		return []native.Option{native.Hosted()}
	}
	return nil
}

// kindOf finds a type of device.
func kindOf(name string, cfg *config.Config, log *slog.Logger) (kind, error) {
	var names []string
	for _, k := range kinds(cfg, log) {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return kind{}, fmt.Errorf("%w: device %q%s: expected one of %s; devices.%s.path names the back end of others",
		framework.ErrInvalid, name, suggest.Hint(suggest.Name(name, names)), strings.Join(names, ", "), name)
}

// chooseDevice settles which device is meant by the configuration or, if that is silent, by the program. auto takes the first
// kind of which there is one.
func chooseDevice(cfg *config.Config, wanted string, getenv func(string) string, log *slog.Logger) (framework.Device, error) {
	name := cfg.Device
	if name == "" {
		name = wanted
	}
	switch name {
	case "", framework.Host.Type:
		return framework.Host, nil
	case "auto":
		return firstDevice(cfg, getenv, log)
	}
	d, err := framework.ParseDevice(name)
	if err != nil {
		return d, err
	}
	k, err := kindOf(d.Type, cfg, log)
	if err != nil || strings.Contains(name, ":") {
		return d, err
	}
	return k.choose(getenv, log)
}

// firstDevice is the choice of auto.
func firstDevice(cfg *config.Config, getenv func(string) string, log *slog.Logger) (framework.Device, error) {
	for _, k := range kinds(cfg, log) {
		if k.count == nil {
			return framework.Device{Type: k.name}, nil
		}
		if _, err := k.visible(); err != nil {
			if !k.own && !errors.Is(err, framework.ErrUnavailable) {
				return framework.Device{}, err // a mistake in what was configured
			}
			log.Debug("auto passes over a type of device", "device", k.name, "reason", err)
			continue
		}
		return k.choose(getenv, log)
	}
	return framework.Host, nil
}

// visible counts devices, and does not take none for an answer.
func (k *kind) visible() (int, error) {
	n, err := k.count()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: device %s: none is visible", framework.ErrUnavailable, k.name)
	}
	return n, err
}

// choose takes the device of the local rank.
func (k *kind) choose(getenv func(string) string, log *slog.Logger) (framework.Device, error) {
	visible, err := k.visible()
	if err != nil {
		return framework.Device{}, err
	}
	local, err := localRank(getenv)
	if err != nil {
		return framework.Device{}, err
	}
	if visible > 1 && hasNoLocalRank(getenv) {
		log.Warn("no variable says which "+k.name+" device of its host is for this rank, so it takes the first, as all ranks of a host would: set LOCAL_RANK, or device to "+k.name+":N", "visible devices", visible)
	}
	if local >= visible && visible > 1 {
		log.Warn("ranks share devices, which is for tests: kernels of several processes take turns", "device", k.name, "local rank", local, "visible devices", visible)
	}
	return framework.Device{Type: k.name, Index: local % visible}, nil
}

// hasNoLocalRank reports whether the place in a job of several ranks is given by RANK and
// WORLD_SIZE alone.
func hasNoLocalRank(getenv func(string) string) bool {
	e, err := launch.Detect(getenv)
	size, invalid := strconv.Atoi(getenv(bootstrap.EnvSize))
	return err == nil && e.Role != launch.RoleRank && getenv(bootstrap.EnvRank) != "" && invalid == nil && size > 1
}

// localRank is the number of this rank among those of its host.
func localRank(getenv func(string) string) (int, error) {
	e, err := launch.Detect(getenv)
	if err != nil || e.Role != launch.RoleRank {
		return 0, err
	}
	return e.LocalRank, nil
}

// prefault is how much of each shared allocation is given its pages at start: what
// small collectives use. The rest gets them on first use; with several ranks on a
// few processors, filling all of it would take most of the start.
const prefault = 1 << 20

// openDevice opens the device, as the configuration would have it. builtIn is the folder of
// the plugins that come with the program.
func openDevice(d framework.Device, cfg *config.Config, builtIn string, log *slog.Logger) (device.Device, error) {
	k, err := kindOf(d.Type, cfg, log)
	if err != nil {
		return nil, err
	}
	return k.open(d.Index, builtIn)
}

// countGPUs says that none is visible with the reason that is likely.
func countGPUs() (int, error) {
	n, err := cuda.Count()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: device cuda: no GPU is visible: see CUDA_VISIBLE_DEVICES", framework.ErrUnavailable)
	}
	return n, err
}

// countHIP is countGPUs for AMD's.
func countHIP() (int, error) {
	n, err := hip.Count()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: device hip: no GPU is visible: see ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES", framework.ErrUnavailable)
	}
	return n, err
}

// openHIP opens one of AMD's.
func openHIP(index int, cfg *config.Config) (device.Device, error) {
	var options []hip.Option
	switch cfg.GPUMemory {
	case "host":
		options = append(options, hip.Hosted())
	case "fabric":
		return nil, fmt.Errorf("%w: gpu_memory fabric on device hip: expected device or host, since HIP shares no memory between hosts", framework.ErrUnsupported)
	}
	opened, err := hip.Open(index, options...)
	if err != nil {
		return nil, err // and no nil pointer in an interface, which would be closed
	}
	return opened, nil
}

// openGPU opens one of NVIDIA's.
func openGPU(index int, cfg *config.Config, builtIn string, log *slog.Logger) (device.Device, error) {
	var options []cuda.Option
	switch cfg.GPUMemory {
	case "host":
		options = append(options, cuda.Hosted())
	case "fabric":
		options = append(options, cuda.Fabric())
	}
	if !cfg.GDRCopy {
		options = append(options, cuda.WithoutGDRCopy())
	}
	files := []string{}
	if cfg.GPUCode != "ptx" {
		files = Catalog(cfg, builtIn).Beside(image.MachineCodeFile)
	}
	options = append(options, cuda.MachineCode(files, log))
	opened, err := cuda.Open(index, options...)
	if err != nil {
		return nil, err // and no nil pointer in an interface, which would be closed
	}
	return opened, nil
}

// backends are those that this process has loaded. They stay: a driver leaves threads behind.
var backends = struct {
	sync.Mutex
	of map[config.Pinned]*native.Backend
}{of: map[config.Pinned]*native.Backend{}}

// backend loads the back end that the configuration names for a type of device, or finds it loaded.
func backend(name string, b config.DeviceBackend, log *slog.Logger) (*native.Backend, error) {
	key := config.Pinned{File: b.Path, SHA256: strings.ToLower(b.SHA256)}
	backends.Lock()
	defer backends.Unlock()
	back := backends.of[key]
	if back == nil {
		file, err := plugins.OpenLibrary(b.Path, b.SHA256)
		if err != nil {
			return nil, fmt.Errorf("devices.%s: %w", name, err)
		}
		defer file.Close()
		if needs, err := native.Dependencies(file); err == nil {
			log.Info("the back end of a device is loaded into this process", "device", name, "file", b.Path, "pinned", b.SHA256 != "", "loaded with it, unchecked", needs)
		}
		if back, err = native.Load(file, b.Path); err != nil {
			return nil, fmt.Errorf("devices.%s: %w", name, err)
		}
		backends.of[key] = back
	}
	if back.Type() != name {
		return nil, fmt.Errorf("%w: devices.%s: %s is a back end for devices of type %s: write devices.%s", framework.ErrInvalid, name, b.Path, back.Type(), back.Type())
	}
	return back, nil
}
