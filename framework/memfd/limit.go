package memfd

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// fits refuses what the system cannot give. The kernel itself does not refuse
// shared memory, it kills a process to make room; so the question has to be asked
// before. Another process may take the memory in between: this is a guard against
// sizes that never fit, not a reservation.
func fits(size uint64) error {
	if err := filelimit.Check(size); err != nil {
		return fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	root := os.DirFS("/")
	if size <= available(root, false) { // all but ever; the kernel takes long to count what it could drop
		return nil
	}
	if have := available(root, true); size > have {
		return fmt.Errorf("%w: memory of %d bytes refused: %d bytes are available to this process (MemAvailable and the limits of its control group)",
			framework.ErrUnavailable, size, have)
	}
	return nil
}

// available reads what is free on the machine and in the process's control groups,
// with or without the page cache of those groups that the kernel drops on demand. A
// file that cannot be read limits nothing.
func available(root fs.FS, cache bool) uint64 {
	have := uint64(math.MaxUint64)
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		if kib, ok := field(text, "MemAvailable:"); ok {
			have = kib << 10
		}
	}
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return have
	}
	for line := range strings.Lines(string(text)) {
		// "0::/path" is version 2; "4:memory:/path" is version 1.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount, limit, usage := "sys/fs/cgroup", "memory.max", "memory.current"
		if parts[0] != "0" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			mount, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		// Inside a container the path may be that of the host: then only the
		// mount's own directory exists, and it is the right one.
		for dir := path.Join(mount, parts[2]); len(dir) >= len(mount); dir = path.Dir(dir) {
			max, ok1 := number(root, path.Join(dir, limit))
			used, ok2 := number(root, path.Join(dir, usage))
			if ok1 && ok2 {
				reclaim := uint64(0)
				if cache {
					if stat, err := fs.ReadFile(root, path.Join(dir, "memory.stat")); err == nil {
						reclaim, _ = field(stat, "inactive_file")
					}
				}
				have = min(have, max-min(max, used-min(used, reclaim)))
			}
		}
	}
	return have
}

func number(root fs.FS, name string) (uint64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil // "max" limits nothing
}

// field finds "name 123 …" at the start of a line.
func field(text []byte, name string) (uint64, bool) {
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		words := strings.Fields(s.Text())
		if len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseUint(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
