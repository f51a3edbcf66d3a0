package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
)

// gpuHost is a file system with what the driver shows: folders for known GPUs, and
// nodes with the given minors.
func gpuHost(known int, minors ...int) fstest.MapFS {
	root := fstest.MapFS{
		"dev/nvidiactl":                    {Mode: fs.ModeDevice},
		"dev/nvidia-uvm":                   {Mode: fs.ModeDevice},
		"dev/nvidia-caps/nvidia-cap1":      {Mode: fs.ModeDevice},
		"proc/driver/nvidia/version":       {Data: []byte("NVRM version: …\n")},
		"proc/driver/nvidia/params":        {Data: []byte("Mobile: 4294967295\n")},
		"proc/driver/nvidia/capabilities/": {Mode: fs.ModeDir},
	}
	for i := range known {
		// Later on the bus does not mean a higher minor.
		text := fmt.Sprintf("Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t GPU-%d%da-11\nDevice Minor: \t %d\n", i, i, known-1-i)
		root[fmt.Sprintf("proc/driver/nvidia/gpus/0000:%02x:00.0/information", 16+i)] = &fstest.MapFile{Data: []byte(text)}
	}
	for _, m := range minors {
		root[fmt.Sprintf("dev/nvidia%d", m)] = &fstest.MapFile{Mode: fs.ModeDevice}
	}
	return root
}

func noVariable(string) (string, bool) { return "", false }

func cudaVisible(list string) func(string) (string, bool) {
	return func(name string) (string, bool) { return list, name == "CUDA_VISIBLE_DEVICES" }
}

func TestGPUsAreCounted(t *testing.T) {
	silent := gpuHost(2, 0)
	for name := range silent {
		if strings.HasSuffix(name, "/information") {
			silent[name] = &fstest.MapFile{Data: []byte("Model: unknown\nDevice Minor: many\n")}
		}
	}
	for name, c := range map[string]struct {
		root fs.FS
		want int
	}{
		"a whole host":                          {gpuHost(8, 0, 1, 2, 3, 4, 5, 6, 7), 8},
		"a container with two of eight":         {gpuHost(8, 3, 6), 2},
		"a container with one of ten or more":   {gpuHost(12, 11), 1},
		"no node yet: nobody used the driver":   {gpuHost(4), 4},
		"nodes alone: /proc/driver is hidden":   {gpuHost(0, 0, 1, 2), 3},
		"a node whose GPU is gone":              {gpuHost(2, 0, 1, 2), 2},
		"a driver that does not tell the minor": {silent, 1},
	} {
		if got, err := GPUs(c.root, noVariable); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}

func TestVisibleGPUs(t *testing.T) {
	root := gpuHost(4, 0, 1, 2, 3) // GPU-00a-11, GPU-11a-11, …
	for list, want := range map[string]int{
		"0": 1, "3,0": 2, " 1 , 2 ": 2, "0,1,2,3": 4,
		"1,-1,2": 1, "2,9,3": 1, "0,": 1, "0,zero": 1, // CUDA stops at the first that is none
		"GPU-00a-11": 1, "GPU-1,GPU-2": 2, "GPU-33a,0": 2, "0,GPU-": 1, "0,GPU-9": 1,
	} {
		if got, err := GPUs(root, cudaVisible(list)); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", list, got, err, want)
		}
	}
}

func TestNoGPUToCount(t *testing.T) {
	for name, c := range map[string]struct {
		root   fs.FS
		lookup func(string) (string, bool)
		class  error
		want   string
	}{
		"no driver":        {fstest.MapFS{}, noVariable, framework.ErrUnavailable, "expected one in /proc/driver/nvidia/gpus, with a device node /dev/nvidiaN"},
		"no GPU":           {gpuHost(0), noVariable, framework.ErrUnavailable, "/dev/nvidiaN"},
		"none given to us": {gpuHost(2, 7), noVariable, framework.ErrUnavailable, "/dev/nvidiaN"},
		"an empty list":    {gpuHost(2, 0, 1), cudaVisible(""), framework.ErrUnavailable, `CUDA_VISIBLE_DEVICES="" hides all 2`},
		"minus one":        {gpuHost(2, 0, 1), cudaVisible("-1"), framework.ErrUnavailable, `"-1" hides all 2`},
		"one too high":     {gpuHost(2, 0, 1), cudaVisible("2"), framework.ErrUnavailable, `"2" hides all 2`},
		"twice":            {gpuHost(2, 0, 1), cudaVisible("1,GPU-11"), framework.ErrInvalid, "names a GPU twice"},
		"MIG":              {gpuHost(2, 0, 1), cudaVisible("MIG-3f2a"), framework.ErrInvalid, "expected a number of ranks"},
	} {
		got, err := GPUs(c.root, c.lookup)
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) || got != 0 {
			t.Errorf("%s: %d, %v; want %q", name, got, err, c.want)
		}
	}
}
