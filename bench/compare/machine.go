package compare

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine says when and where numbers were taken. What cannot be found out is
// "unknown", which stops no comparison.
type Machine struct {
	Date, CPU, Kernel string
	CPUs              int
}

// Here returns the description of this machine, now.
func Here() Machine {
	m := Machine{Date: time.Now().UTC().Format("2006-01-02"), CPUs: runtime.NumCPU(), Kernel: "unknown"}
	info, _ := os.ReadFile("/proc/cpuinfo")
	m.CPU = field(string(info), "model name")
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		// Without what a distributor or a cloud appends.
		m.Kernel, _, _ = strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	}
	return m
}

// field finds "key : value" among lines.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
