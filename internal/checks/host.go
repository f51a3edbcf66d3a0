package checks

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Host describes this machine: its identity, its kernel, its processor, and what of the
// environment decides how programs are built.
func Host() ([]byte, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	var b bytes.Buffer
	for _, field := range [][65]byte{u.Sysname, u.Release, u.Version, u.Machine} {
		fmt.Fprintln(&b, unix.ByteSliceToString(field[:]))
	}
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("identity of the machine: %w", err)
	}
	b.Write(id)
	fmt.Fprintf(&b, "user %d\n", os.Geteuid()) // tests that need root are not proven by another user
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, fmt.Errorf("processor: %w", err)
	}
	for line := range strings.Lines(string(cpu)) {
		if key, _, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" || strings.TrimSpace(key) == "flags" {
			b.WriteString(line)
		}
		if line == "\n" {
			break // the first processor stands for all
		}
	}
	settings, err := exec.Command("go", append([]string{"env"}, goSettings...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	b.Write(settings)
	environ := os.Environ()
	slices.Sort(environ)
	for _, e := range environ {
		if settingName.MatchString(e) {
			fmt.Fprintf(&b, "%q\n", e)
		}
	}
	return b.Bytes(), nil
}

// goSettings are what `go env` says, from the environment and from its own file, that
// decides what is built and how it runs.
var goSettings = []string{
	"GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOFLAGS", "GOEXPERIMENT", "GODEBUG", "GOFIPS140", "GOTOOLCHAIN", "GOWORK",
	"CGO_ENABLED", "CC", "CXX", "AR", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "PKG_CONFIG",
}

// settingName are variables that programs and tests of this tree read, or the Go runtime
// and the loader in them, or launchers around them.
var settingName = regexp.MustCompile(`^(MSCCLPP_\w+|GO(MAXPROCS|GC|MEMLIMIT|TRACEBACK|RACE)|LD_\w+|(ENGINE|TCP|LAUNCH)_TEST_\w+|RDMA_REQUIRED|` +
	`(OMPI|PMIX?|PRTE|SLURM|FLUX|NCCL|IBV|RDMAV|MLX5)_\w+|RANK|WORLD_SIZE|LOCAL_\w+|MASTER_\w+|CUDA_\w+)=`)
