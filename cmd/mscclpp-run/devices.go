package main

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/apart"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/launch/remote"
)

// question is which devices gpu and auto mean, by the configuration.
func question(cfg *config.Config) remote.Count {
	q := remote.Count{Type: cfg.Device}
	if d, err := framework.ParseDevice(cfg.Device); err == nil {
		q.Type = d.Type // acme:1 counts those of acme
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Devices)) {
		b := cfg.Devices[name]
		q.Backends = append(q.Backends, remote.Backend{Type: name, Path: b.Path, SHA256: b.SHA256})
	}
	return q
}

// countDevices answers it for this host, whose files are below root.
func countDevices(ctx context.Context, root fs.FS, q remote.Count) (int, error) {
	list := launch.BuiltIn(root, os.LookupEnv)
	for _, b := range q.Backends {
		count := func() (int, error) {
			return apart.Count(ctx, b.Type, config.DeviceBackend{Path: b.Path, SHA256: b.SHA256})
		}
		list = append(list, launch.Devices{Type: b.Type, Count: count})
	}
	return launch.CountDevices(q.Type, list)
}
