package checks

import (
	"bytes"
	"fmt"
	"os"
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
	for _, name := range []string{"GOFLAGS", "GOAMD64", "CC", "CXX", "CGO_CFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS"} {
		fmt.Fprintf(&b, "%s=%s\n", name, os.Getenv(name))
	}
	return b.Bytes(), nil
}
