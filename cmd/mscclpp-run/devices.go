package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/setup"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/launch/remote"
)

// countFlag makes mscclpp-run load a back end and print how many devices that finds: a process that has loaded one must not
// start ranks.
const countFlag = "--count-devices"

// countLimit is how long a back end may take. A driver that nobody uses starts its devices first.
const countLimit = time.Minute

// tally is what the process with countFlag prints.
type tally struct {
	Devices int    `json:"devices"`
	None    string `json:"none,omitempty"`   // why there is none
	Failed  string `json:"failed,omitempty"` // why it is not known
}

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
		list = append(list, launch.Devices{Type: b.Type, Count: func() (int, error) { return countApart(ctx, b) }})
	}
	return launch.CountDevices(q.Type, list)
}

// countApart counts the devices of a back end, in a process of its own.
func countApart(ctx context.Context, b remote.Backend) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("own program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	c := exec.CommandContext(ctx, self, countFlag, "--", b.Type, b.Path, b.SHA256)
	c.WaitDelay = time.Second
	out, err := c.Output()
	var t tally
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("devices.%s: %s has not counted its devices within %v: %w", b.Type, b.Path, countLimit, context.Cause(ctx))
	case err != nil:
		return 0, fmt.Errorf("devices.%s: the process that counts the devices of %s: %w", b.Type, b.Path, err)
	case json.Unmarshal(out, &t) != nil:
		return 0, fmt.Errorf("%w: devices.%s: %s has printed %.100q: a back end prints nothing", framework.ErrInvalid, b.Type, b.Path, out)
	case t.None != "":
		return 0, fmt.Errorf("%w: %s", framework.ErrUnavailable, t.None)
	case t.Failed != "":
		return 0, fmt.Errorf("%w: %s", framework.ErrInvalid, t.Failed)
	}
	return t.Devices, nil
}

// printDevices is that process.
func (a *app) printDevices(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%w: %s: expected a type, a path and a checksum", framework.ErrInvalid, countFlag)
	}
	var t tally
	var err error
	if t.Devices, err = setup.CountDevices(args[0], config.DeviceBackend{Path: args[1], SHA256: args[2]}, slog.New(slog.DiscardHandler)); err != nil {
		if t.Failed = err.Error(); errors.Is(err, framework.ErrUnavailable) {
			t.None, t.Failed = err.Error(), ""
		}
	}
	return json.NewEncoder(a.stdout).Encode(t)
}
