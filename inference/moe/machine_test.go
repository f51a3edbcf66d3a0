package moe

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
)

// The kernels in the emulator, with blocks of several threads as on a GPU: under seeded schedules, and with ThreadSanitizer.
func TestKernelWithThreads(t *testing.T) {
	program := check.Program{Source: filepath.Join("kernels", "testdata", "moe.cc"), Include: []string{"../kernels"}}
	for _, m := range []check.Mode{check.Seeds, check.Races} {
		t.Run(m.Name, func(t *testing.T) {
			m.Seeds = min(m.Seeds, 8)
			executable, err := program.Build(t.Context(), m)
			if errors.Is(err, framework.ErrUnavailable) {
				t.Skipf("needs clang-19 and libclang-rt-19-dev: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			r, err := check.Run(ctx, executable, m)
			if err != nil || r.Exit != 0 {
				t.Errorf("%v, exit code %d\n%.4000s", err, r.Exit, strings.TrimSpace(r.Output))
			}
		})
	}
}
