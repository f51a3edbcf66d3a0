package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// Mode is a way to run a program.
type Mode struct {
	Name     string
	sanitize string // build variant
	Seeds    int    // 0: one plain run
}

// The four modes.
var (
	Plain  = Mode{Name: "plain"}
	Seeds  = Mode{Name: "seeds", Seeds: 200}
	Races  = Mode{Name: "races", sanitize: "thread", Seeds: 10}
	Memory = Mode{Name: "memory", sanitize: "address,undefined"}
)

// Modes lists all.
var Modes = []Mode{Plain, Seeds, Races, Memory}

// Exit codes of a program.
const (
	ExitDeadlock = 3
	ExitWrong    = 4  // an expectation of the test
	ExitBarrier  = 5  // threads of a block at different barriers, or gone
	ExitRace     = 66 // ThreadSanitizer
	ExitMemory   = 67 // AddressSanitizer
)

// Program is the source of a checking program.
type Program struct {
	Source  string   // C++ file
	Include []string // folders beside that of the device headers
	Headers string   // folder of mscclpp/device.h; "": image.FindHeaders
	Flags   []string // more of the compiler's
}

const compilerName = "clang++-19"

// Build compiles the program for a mode and returns the executable. Executables are
// kept in the user's cache and built anew when a source has changed. ErrUnavailable:
// clang-19 or its sanitizers are missing.
func (p Program) Build(ctx context.Context, m Mode) (string, error) {
	cxx, err := exec.LookPath(compilerName)
	if err != nil {
		return "", fmt.Errorf("check: %w: no %s: install clang-19 and libclang-rt-19-dev", framework.ErrUnavailable, compilerName)
	}
	headers := p.Headers
	if headers == "" {
		if headers, err = image.FindHeaders(); err != nil {
			return "", err
		}
	}
	version, err := exec.CommandContext(ctx, cxx, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("check: %s --version: %w", cxx, err)
	}
	args := append([]string{"-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-DMSCCLPP_CHECK", "-ffp-contract=off", "-fdebug-compilation-dir=."}, p.Flags...)
	if m.sanitize != "" {
		args = append(args, "-fsanitize="+m.sanitize, "-fno-sanitize-recover=all")
	}
	for _, dir := range append([]string{headers}, p.Include...) {
		args = append(args, "-I"+relative(dir))
	}
	dir, name := filepath.Split(p.Source)
	sum, err := image.HashSources(dir, []string{name}, headers, p.Include...)
	if err != nil {
		return "", fmt.Errorf("check: %w", err)
	}
	out, unlock, err := cached(name, sum, append(slices.Clone(args), p.Source, string(version)))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	tmp := out + ".new"
	cmd := exec.CommandContext(ctx, cxx, append(args, p.Source, "-o", tmp)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		if m.sanitize != "" && strings.Contains(string(text), "libclang_rt") {
			return "", fmt.Errorf("check: %w: sanitizer libraries: install libclang-rt-19-dev", framework.ErrUnavailable)
		}
		return "", fmt.Errorf("check: %s: %w\n%s", p.Source, err, text)
	}
	return out, os.Rename(tmp, out)
}

// relative is a folder as it is seen from this one: an executable is the same for each
// copy of a tree, and so is built once for all.
func relative(dir string) string {
	here, err := os.Getwd()
	if err != nil {
		return dir
	}
	if rel, err := filepath.Rel(here, dir); err == nil {
		return rel
	}
	return dir
}

// Environ are the variables of a run, which decide with the executable how it ends.
var Environ = []string{
	"TSAN_OPTIONS=halt_on_error=1:exitcode=66", "ASAN_OPTIONS=exitcode=67:detect_leaks=0", "UBSAN_OPTIONS=exitcode=67:print_stacktrace=1",
}

// Result is how a run ended.
type Result struct {
	Exit   int
	Output string
}

// Run runs an executable in its mode. Arguments such as "--test", "name" follow
// those of the mode.
func Run(ctx context.Context, executable string, m Mode, args ...string) (Result, error) {
	if m.Seeds > 0 {
		args = append(args, "--seeds", strconv.Itoa(m.Seeds))
	}
	cmd := exec.CommandContext(ctx, executable, args...)
	cmd.Env = append(os.Environ(), Environ...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("check: %s: %w", filepath.Base(executable), ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("check: %w", err)
	}
	return Result{Exit: cmd.ProcessState.ExitCode(), Output: string(out)}, nil
}
