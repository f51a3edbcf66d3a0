// Package scripts_test runs the scripts of this folder among stand-ins for the
// programs of the system.
package scripts_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const everything = "g++ clang-19 lld-19 libclang-rt-19-dev llvm-19 openmpi-bin libopenmpi-dev protobuf-compiler python3-grpcio python3-protobuf"

// machine is a system on which deps.sh runs.
type machine struct {
	user      string   // its number; 0 is root
	installed string   // packages
	programs  string   // in PATH, besides those of every system
	unknown   string   // packages that its sources lack
	noDebian  bool     // there is no dpkg
	noUpdate  bool     // apt-get update fails
	env       []string // of the script
}

// stand-ins for programs. Packages are files in $STATE.
const (
	dpkgQuery = `for p; do :; done; [ -e "$STATE/$p" ] || exit 1
case $p in libclang*) echo installed; echo installed ;; *) echo installed ;; esac`
	aptGet = `echo "apt-get $*" >>"$STATE/.log"
case $1 in update) exit ${NOUPDATE:-0} ;; esac
shift
for p; do case $p in -* | DPkg*) ;; *) [ ! -e "$STATE/.no-$p" ] || { echo "E: Unable to locate package $p" >&2; exit 100; } ;; esac; done
for p; do case $p in -* | DPkg*) ;; *) : >"$STATE/$p" ;; esac; done`
	aptCache = `[ ! -e "$STATE/.no-$2" ]`
	goTool   = `[ "$1 $2" = "env CC" ] && echo "${CC:-gcc}"`
)

// deps runs deps.sh and returns what it printed, what apt-get was called with, and
// its exit code.
func (m machine) deps(t *testing.T, args ...string) (out, apt string, code int) {
	t.Helper()
	bin, state := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program := func(name, text string) { write(filepath.Join(bin, name), "#!/bin/sh\n"+text+"\n") }
	program("id", "echo "+m.user)
	if !m.noDebian {
		program("dpkg-query", dpkgQuery)
		program("apt-get", aptGet)
		program("apt-cache", aptCache)
	}
	for _, name := range strings.Fields(m.programs) {
		text := "exit 0"
		if name == "go" {
			text = goTool
		}
		program(name, text)
	}
	for _, p := range strings.Fields(m.installed) {
		write(filepath.Join(state, p), "")
	}
	for _, p := range strings.Fields(m.unknown) {
		write(filepath.Join(state, ".no-"+p), "")
	}
	grep, err := exec.LookPath("grep")
	if err != nil {
		t.Skip("grep is not installed")
	}
	if err := os.Symlink(grep, filepath.Join(bin, "grep")); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"deps.sh"}, args...)...)
	c.Env = append([]string{"PATH=" + bin, "STATE=" + state}, m.env...)
	if m.noUpdate {
		c.Env = append(c.Env, "NOUPDATE=100")
	}
	var text bytes.Buffer
	c.Stdout, c.Stderr = &text, &text
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(state, ".log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return text.String(), string(log), c.ProcessState.ExitCode()
}

func TestAnOrdinaryUserSeesTheMissingPackages(t *testing.T) {
	for name, c := range map[string]struct {
		m       machine
		purpose []string
		want    string
	}{
		"everything": {machine{}, nil, everything},
		"half":       {machine{installed: "g++ clang-19 lld-19 libclang-rt-19-dev llvm-19 python3-grpcio"}, nil, "openmpi-bin libopenmpi-dev protobuf-compiler python3-protobuf"},
		"kernels":    {machine{installed: "g++"}, []string{"kernels"}, "clang-19 lld-19 libclang-rt-19-dev llvm-19"},
		"mpi":        {machine{}, []string{"mpi"}, "openmpi-bin libopenmpi-dev"},
		"proto":      {machine{}, []string{"proto"}, "protobuf-compiler python3-grpcio python3-protobuf"},
		"engines":    {machine{}, []string{"engines"}, "slurmctld slurmd slurm-client munge mpich openmpi-bin openssh-client openssh-server iproute2"},
		"rdma":       {machine{}, []string{"rdma"}, "qemu-system-x86 cpio busybox-static iproute2 xz-utils libibverbs1 ibverbs-providers libibverbs-dev perftest"},
		"to build":   {machine{programs: "go"}, []string{"build"}, "g++"},
		"C alone":    {machine{programs: "go gcc"}, []string{"build"}, "g++"},
		"C++ alone":  {machine{programs: "go g++"}, []string{"build"}, "g++"},
	} {
		t.Run(name, func(t *testing.T) {
			c.m.user = "1000"
			out, apt, code := c.m.deps(t, c.purpose...)
			want := "deps: missing: " + c.want + "\ndeps: as root: apt-get install --no-install-recommends " + c.want + "\n"
			if out != want || apt != "" || code != 1 {
				t.Errorf("code %d, %q, want 1 and %q; apt-get: %q", code, out, want, apt)
			}
		})
	}
}

func TestRootInstallsWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		m       machine
		purpose []string
		want    string // the packages
	}{
		"everything":            {machine{}, nil, everything},
		"two":                   {machine{installed: strings.Replace(everything, "llvm-19 openmpi-bin", "", 1)}, nil, "llvm-19 openmpi-bin"},
		"to build":              {machine{programs: "go"}, []string{"build"}, "g++"},
		"with the lists it has": {machine{noUpdate: true}, []string{"mpi"}, "openmpi-bin libopenmpi-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			c.m.user = "0"
			out, apt, code := c.m.deps(t, c.purpose...)
			calls := strings.Split(strings.TrimSpace(apt), "\n")
			if code != 0 || len(calls) != 2 || !strings.HasPrefix(calls[0], "apt-get update ") ||
				!strings.HasPrefix(calls[1], "apt-get install ") || !strings.HasSuffix(calls[1], " "+c.want) || !strings.Contains(calls[1], " --no-install-recommends ") {
				t.Errorf("code %d, %q, %s", code, calls, out)
			}
			if c.m.noUpdate != strings.Contains(out, "update failed") {
				t.Errorf("%q", out)
			}
		})
	}
}

// A compiler is one wherever it comes from, and of a build that can go on nothing is
// said.
func TestCompilersFromAnywhere(t *testing.T) {
	for name, m := range map[string]machine{
		"gcc and g++":      {programs: "go gcc g++"},
		"clang":            {programs: "go mycc clang++", env: []string{"CC=mycc -m64"}},
		"a C++ of its own": {programs: "go gcc myc++", env: []string{"CXX=myc++"}},
		"another go":       {programs: "go1.26 go gcc g++", env: []string{"GO=go"}},
		"no Debian":        {programs: "go gcc g++", noDebian: true},
	} {
		m.user = "1000"
		if out, apt, code := m.deps(t, "build"); out != "" || apt != "" || code != 0 {
			t.Errorf("%s: code %d, %q, %q", name, code, out, apt)
		}
	}
}

func TestAllInstalled(t *testing.T) {
	for _, user := range []string{"0", "1000"} {
		if out, apt, code := (machine{user: user, installed: everything}).deps(t); out != "deps: all installed\n" || apt != "" || code != 0 {
			t.Errorf("user %s: code %d, %q, %q", user, code, out, apt)
		}
	}
}

func TestPackagesThatCannotBeInstalledAreNamed(t *testing.T) {
	for want, c := range map[string]struct {
		m       machine
		purpose string
		code    int
	}{
		"deps: not among the package sources of this system: clang-19 llvm-19\n":    {machine{user: "0", unknown: "clang-19 llvm-19"}, "kernels", 1},
		"deps: could not be installed: openmpi-bin libopenmpi-dev\n":                {machine{user: "0", unknown: "openmpi-bin"}, "mpi", 1},
		"deps: not a Debian system; install the counterparts of: g++\n":             {machine{user: "0", noDebian: true, programs: "go"}, "build", 1},
		"deps: go is not in PATH: expected Go 1.26 or newer":                        {machine{user: "0", programs: "gcc g++"}, "build", 1},
		"CC names something else: mycc":                                             {machine{user: "0", programs: "go g++", installed: "g++", env: []string{"CC=mycc"}}, "build", 1},
		"deps: docs: expected build, kernels, mpi, proto, engines, rdma or nothing": {machine{user: "0"}, "docs", 2},
	} {
		if out, _, code := c.m.deps(t, c.purpose); code != c.code || !strings.Contains(out, want) {
			t.Errorf("code %d, %q; want %d, %q", code, out, c.code, want)
		}
	}
}
