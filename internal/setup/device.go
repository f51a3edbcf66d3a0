package setup

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/launch"
)

// ChooseDevice settles which device is meant by the configuration or, if that is
// silent, by the program. auto takes a GPU if one can be used.
func ChooseDevice(configured, wanted string, getenv func(string) string, log *slog.Logger) (framework.Device, error) {
	name := configured
	if name == "" {
		name = wanted
	}
	auto := name == "auto"
	switch name {
	case "", "host":
		return framework.Host, nil
	case "auto", "cuda":
	default:
		return framework.ParseDevice(name)
	}
	visible, err := cuda.Count()
	if err == nil && visible == 0 {
		err = fmt.Errorf("%w: device cuda: no GPU is visible: see CUDA_VISIBLE_DEVICES", framework.ErrUnavailable)
	}
	if err != nil {
		if auto {
			log.Debug("the job runs on the host", "reason", err)
			return framework.Host, nil
		}
		return framework.Device{}, err
	}
	local, err := localRank(getenv)
	if err != nil {
		return framework.Device{}, err
	}
	if visible > 1 && hasNoLocalRank(getenv) {
		log.Warn("no variable says which GPU of its host is for this rank, so it takes the first, as all ranks of a host would: set LOCAL_RANK, or device to cuda:N", "visible GPUs", visible)
	}
	if local >= visible && visible > 1 {
		log.Warn("ranks share GPUs, which is for tests: kernels of several processes take turns", "local rank", local, "visible GPUs", visible)
	}
	return framework.Device{Type: "cuda", Index: local % visible}, nil
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

// OpenDevice opens the device, as the configuration would have it. builtIn is the folder of
// the plugins that come with the program.
func OpenDevice(d framework.Device, cfg *config.Config, builtIn string, log *slog.Logger) (device.Device, error) {
	switch d.Type {
	case "host":
		return host.Open(host.Prefault(prefault))
	case "cuda":
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
		opened, err := cuda.Open(d.Index, options...)
		if err != nil {
			return nil, err // and no nil pointer in an interface, which would be closed
		}
		return opened, nil
	}
	return nil, fmt.Errorf("%w: device %v: expected host or cuda", framework.ErrUnsupported, d)
}
