package main

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/launch"
)

var (
	fourGPUs = fstest.MapFS{
		"dev/nvidia0": {Mode: fs.ModeDevice}, "dev/nvidia1": {Mode: fs.ModeDevice},
		"dev/nvidia2": {Mode: fs.ModeDevice}, "dev/nvidia3": {Mode: fs.ModeDevice},
	}
	noGPU = fstest.MapFS{}
)

func TestRanksForEachGPU(t *testing.T) {
	agent := launch.Engine{Name: "Kubeflow Trainer", Role: launch.RoleAgent, Node: 1, Nodes: 2, MasterAddr: "m"}
	gpuAgent, autoAgent := agent, agent
	gpuAgent.PerNodeOf, autoAgent.PerNodeOf = "gpu", "auto"
	for name, c := range map[string]struct {
		root    fs.FS
		visible string // "unset" is no variable
		opts    options
		engine  launch.Engine
		want    int
	}{
		"gpu":                     {fourGPUs, "unset", options{perNode: "gpu"}, launch.Engine{}, 4},
		"some visible":            {fourGPUs, "2,0", options{perNode: "gpu"}, launch.Engine{}, 2},
		"the same number as well": {fourGPUs, "unset", options{perNode: "gpu", np: 4}, launch.Engine{}, 4},
		"auto":                    {fourGPUs, "1", options{perNode: "auto"}, launch.Engine{}, 1},
		"auto without":            {noGPU, "unset", options{perNode: "auto"}, launch.Engine{}, runtime.NumCPU()},
		"auto with none visible":  {fourGPUs, "", options{perNode: "auto"}, launch.Engine{}, runtime.NumCPU()},
		"cpu":                     {fourGPUs, "unset", options{perNode: "cpu"}, launch.Engine{}, runtime.NumCPU()},
		"the engine says gpu":     {fourGPUs, "unset", options{}, gpuAgent, 4},
		"the engine says auto":    {noGPU, "unset", options{}, autoAgent, runtime.NumCPU()},
		"the flag overrules it":   {noGPU, "unset", options{np: 3}, gpuAgent, 3},
	} {
		t.Run(name, func(t *testing.T) {
			setVisible(t, c.visible)
			c.opts.nodeRank = -1
			a := &app{opts: c.opts, engine: c.engine, root: c.root}
			p, err := a.place()
			if err != nil {
				t.Fatal(err)
			}
			if p.Local != c.want || p.World != c.want*p.Nodes {
				t.Errorf("%+v, want %d ranks on this host", p, c.want)
			}
		})
	}
}

func TestNoGPUForRanks(t *testing.T) {
	for name, c := range map[string]struct {
		root    fs.FS
		visible string
		opts    options
		engine  launch.Engine
		class   error
		want    string
	}{
		"none here":           {noGPU, "unset", options{perNode: "gpu"}, launch.Engine{}, framework.ErrUnavailable, "--nproc-per-node gpu: "},
		"none visible":        {fourGPUs, "", options{perNode: "gpu"}, launch.Engine{}, framework.ErrUnavailable, `CUDA_VISIBLE_DEVICES="" hides all 4`},
		"another number":      {fourGPUs, "unset", options{perNode: "gpu", np: 2}, launch.Engine{}, nil, "-n 2 and --nproc-per-node gpu, which is 4 here"},
		"parts of one":        {fourGPUs, "MIG-1", options{perNode: "auto"}, launch.Engine{}, framework.ErrInvalid, "--nproc-per-node auto: "},
		"the engine says gpu": {noGPU, "unset", options{}, launch.Engine{Name: "T", Role: launch.RoleAgent, Nodes: 1, PerNodeOf: "gpu"}, framework.ErrUnavailable, "T: one rank for each gpu: "},
	} {
		t.Run(name, func(t *testing.T) {
			setVisible(t, c.visible)
			c.opts.nodeRank = -1
			a := &app{opts: c.opts, engine: c.engine, root: c.root}
			p, err := a.place()
			if err == nil || c.class != nil && !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %q", p, err, c.want)
			}
		})
	}
}

// setVisible sets the variable by which CUDA hides GPUs; without a value it removes it.
func setVisible(t *testing.T, list string) {
	t.Helper()
	t.Setenv("CUDA_VISIBLE_DEVICES", list)
	if list == "unset" {
		if err := os.Unsetenv("CUDA_VISIBLE_DEVICES"); err != nil { // Setenv restores it
			t.Fatal(err)
		}
	}
}
