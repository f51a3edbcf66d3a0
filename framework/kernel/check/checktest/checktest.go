// Package checktest runs programs of package check in tests.
package checktest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
)

// Build compiles a program, and skips the test where there is no compiler for it.
func Build(t *testing.T, p check.Program, m check.Mode) string {
	t.Helper()
	executable, err := p.Build(t.Context(), m)
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("needs clang-19 and libclang-rt-19-dev: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return executable
}

// Run runs a program in some modes, each of which is a test, on so many schedules at most.
func Run(t *testing.T, p check.Program, schedules int, modes ...check.Mode) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			m.Seeds = min(m.Seeds, schedules)
			executable := Build(t, p, m)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			r, err := check.Run(ctx, executable, m)
			if err != nil || r.Exit != 0 {
				t.Errorf("%v, exit code %d\n%.4000s", err, r.Exit, strings.TrimSpace(r.Output))
			}
		})
	}
}
