package nccl

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// folders are removed when all tests have ended.
var folders struct {
	sync.Mutex
	list []string
}

// folder makes one for what several tests use.
func folder() (string, error) {
	dir, err := os.MkdirTemp("", "mscclpp-nccl-test-*")
	if err == nil {
		folders.Lock()
		defer folders.Unlock()
		folders.list = append(folders.list, dir)
	}
	return dir, err
}

func scratch(t *testing.T) string {
	t.Helper()
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// kept are the paths of what tests share, by what it is: programs, which some tests run many times, and images of kernels, for
// which a look at the sources takes a third of a second.
var kept struct {
	sync.Mutex
	made map[string]func() (string, error)
}

// keep has the first test that asks for something make it.
func keep(t *testing.T, what string, build func() (string, error)) string {
	t.Helper()
	kept.Lock()
	one := kept.made[what]
	if one == nil {
		if kept.made == nil {
			kept.made = map[string]func() (string, error){}
		}
		one = sync.OnceValues(build)
		kept.made[what] = one
	}
	kept.Unlock()
	path, err := one()
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no compiler: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// emulatedImages is the folder of kernels for emulated GPUs.
func emulatedImages(t *testing.T, from ...emulated.Source) string {
	t.Helper()
	return keep(t, fmt.Sprintf("images of %+v", from), func() (string, error) {
		dir, err := folder()
		if err == nil {
			err = emulated.Prepare(t.Context(), dir, from...)
		}
		return dir, err
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range folders.list {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}
