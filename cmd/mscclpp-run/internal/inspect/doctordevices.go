package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/apart"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// transports are those that jobs on the host use, and on the devices that the configuration names or brings, in words and as a list.
func transports(cfg *config.Config) (text string, all []string) {
	all = slices.Clone(cfg.TransportsOn(framework.Host.Type))
	text = fmt.Sprintf("transports %v", all)
	types := slices.Sorted(maps.Keys(cfg.Devices))
	if typ := deviceType(cfg); typ != "" && typ != framework.Host.Type && !slices.Contains(types, typ) {
		types = append(types, typ)
	}
	for _, typ := range types {
		list := cfg.TransportsOn(typ)
		text += fmt.Sprintf("; on %s %v", typ, list)
		for _, name := range list {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return text, all
}

// deviceType is the type of device on which jobs run by the configuration; "" if programs say, or if the first that there is.
func deviceType(cfg *config.Config) string {
	d, err := framework.ParseDevice(cfg.Device)
	if err != nil || cfg.Device == "auto" {
		return ""
	}
	return d.Type
}

// examineBackends lists the devices of other makers, whose back ends other processes load. Jobs cannot run if they are to be on such a
// device and there is none.
func examineBackends(ctx context.Context, cfg *config.Config) (out []finding) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Devices)) {
		area, bad := name+" devices", warn
		if deviceType(cfg) == name {
			bad = fail
		}
		found, err := apart.Find(ctx, name, cfg)
		switch {
		case err != nil:
			out = append(out, finding{area, bad, err.Error()})
		case len(found) == 0:
			out = append(out, finding{area, bad, "none is visible: " + cfg.Devices[name].Path + " finds no device"})
		default:
			text := fmt.Sprintf("%d of %s", len(found), found[0].Name)
			if found[0].Arch != "" {
				text += ", " + found[0].Arch
			}
			if len(found) > 1 {
				text += "; " + joined(found)
			}
			out = append(out, finding{area, good, text})
		}
	}
	return out
}
