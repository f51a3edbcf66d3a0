package inspect

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// examineAMD lists AMD's GPUs, their links, and the variables that hide some. There is nothing to list without their driver.
func examineAMD(root fs.FS, lookup func(string) (string, bool)) []finding {
	const area = "AMD GPUs"
	gpus, err := kfd.GPUs(root)()
	if err != nil {
		return []finding{{area, warn, err.Error()}}
	}
	if len(gpus) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %s", len(gpus), gpus[0].Arch)
	if gpus[0].Partition != "" {
		text += ", " + gpus[0].Partition
	}
	if len(gpus) > 1 {
		text += "; xGMI " + joined(gpus)
	}
	visible, reasons := kfd.Visible(gpus, lookup)
	out := []finding{{area, good, text}}
	if len(reasons) > 0 {
		out = append(out, finding{area, note, fmt.Sprintf("programs see %d of them: %s", len(visible), strings.Join(reasons, ", "))})
	}
	return out
}

// joined says how many pairs of devices have links.
func joined(gpus []topo.GPU) string {
	count, pairs := 0, 0
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			pairs++
			if n, _ := a.NVLinks(b); n > 0 {
				count++
			}
		}
	}
	return fmt.Sprintf("links join %d of %d pairs", count, pairs)
}

// examineHost looks at what every job needs of the system. root is "/" but in tests.
func examineHost(root string) []finding {
	var u unix.Utsname
	_ = unix.Uname(&u) // its only error is a bad address
	out := []finding{{"system", good, fmt.Sprintf("Linux %s, %d processors", unix.ByteSliceToString(u.Release[:]), runtime.NumCPU())}}
	out = append(out, examineMemory(), examineShm(filepath.Join(root, "dev/shm")))
	out = append(out, examineLimit("memlock", unix.RLIMIT_MEMLOCK, 64<<20, warn, "registering memory with a NIC needs more: ulimit -l unlimited"))
	out = append(out, examineLimit("open files", unix.RLIMIT_NOFILE, 1024, fail, "ranks of a host exchange descriptors: ulimit -n 65536"))
	scope := readFirst(filepath.Join(root, "proc/sys/kernel/yama/ptrace_scope"))
	if scope == "" || scope == "0" {
		out = append(out, finding{"peer memory", good, "ranks may read each other's heap"})
	} else {
		out = append(out, finding{"peer memory", warn, "kernel.yama.ptrace_scope=" + scope + ": ranks may not read each other's heap, so large messages from ordinary buffers are copied once more"})
	}
	if id := readFirst(filepath.Join(root, "proc/sys/kernel/random/boot_id")); id == "" {
		out = append(out, finding{"host identity", warn, "no boot id: set bootstrap.host_id, the same for all ranks of this host"})
	}
	return out
}

// examineMemory makes a sealed memfd of the default scratch, as every rank will.
func examineMemory() finding {
	const area = "shared memory"
	fd, err := unix.MemfdCreate("mscclpp-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return finding{area, fail, "memfd_create: " + err.Error()}
	}
	defer unix.Close(fd)
	size := config.Bytes(collectives.HostScratch)
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return finding{area, fail, fmt.Sprintf("%v for the scratch of one rank: %v; comm.scratch makes it smaller", size, err)}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return finding{area, fail, "seal a memfd: " + err.Error()}
	}
	return finding{area, good, fmt.Sprintf("memfd of %v allocated and sealed", size)}
}

func examineShm(dir string) finding {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return finding{"/dev/shm", note, err.Error() + "; not used here, but other libraries need it"}
	}
	free := config.Bytes(s.Bavail*uint64(s.Bsize)) &^ (1<<20 - 1)
	if free < 64<<20 {
		return finding{"/dev/shm", note, fmt.Sprintf("%v free; not used here, but other libraries need it", free)}
	}
	return finding{"/dev/shm", good, fmt.Sprintf("%v free", free)}
}

// examineLimit compares a resource limit with what is sensible.
func examineLimit(area string, which int, least uint64, below grade, advice string) finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return finding{area, warn, err.Error()}
	}
	text := fmt.Sprint(l.Cur)
	switch {
	case l.Cur == unix.RLIM_INFINITY:
		text = "unlimited"
	case which == unix.RLIMIT_MEMLOCK:
		text = config.Bytes(l.Cur).String()
	}
	if l.Cur < least {
		return finding{area, below, fmt.Sprintf("%s: %s", text, advice)}
	}
	return finding{area, good, text}
}

// tools are programs that a user may need, and for what.
var tools = []struct{ names, purpose string }{
	{"g++ clang++-19 clang++ c++", "make kernels (images for this processor)"},
	{"clang++-19", "GPU images"},
	{"ld.lld-19", "images for AMD GPUs"},
	{"protoc", "make proto"},
	{"mpirun", "make bench-mpi"},
}

func examineTools() []finding {
	var out []finding
	for _, t := range tools {
		found := ""
		for _, name := range strings.Fields(t.names) {
			if path, err := exec.LookPath(name); err == nil {
				found = path
				break
			}
		}
		if found == "" {
			out = append(out, finding{"tool", note, "none of " + t.names + ": needed only for " + t.purpose + "; make deps installs it on Debian"})
		} else {
			out = append(out, finding{"tool", good, found + ", for " + t.purpose})
		}
	}
	return out
}

// devices are recognized by the files of their drivers.
var devices = []struct{ what, pattern string }{
	{"NVIDIA GPU", "dev/nvidia[0-9]*"},
	{"AMD GPU", "dev/kfd"},
	{"RDMA NIC", "sys/class/infiniband/*"},
}

// examineDevices lists them. Others says that the configuration brings devices, too.
func examineDevices(root string, others bool) []finding {
	var out []finding
	for _, d := range devices {
		if list, _ := filepath.Glob(filepath.Join(root, d.pattern)); len(list) > 0 {
			out = append(out, finding{"device", good, fmt.Sprintf("%s: %d", d.what, len(list))})
		}
	}
	if len(out) == 0 && !others {
		out = append(out, finding{"device", note, "no GPU and no RDMA NIC: jobs run on the processors"})
	}
	return out
}

// imageBound is how long a plugin may take to hand out one image.
const imageBound = 10 * time.Second

// examineImages fetches one kernel image of each kind that a plugin lists. Those
// for this processor are compiled where they run, so they may be missing.
func examineImages(f *found) finding {
	area := "kernels " + f.Name
	images := f.info.Description.Images
	if len(images) == 0 {
		return finding{area, good, "none: this transport needs none"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), imageBound)
	defer cancel()
	c, err := plugins.Open(ctx, plugins.Spec{Name: f.Name, Path: f.Path, SHA256: f.SHA256, Log: quietLog()})
	if err != nil {
		return finding{area, warn, err.Error()}
	}
	defer c.Shutdown()
	archs := map[string]int{}
	var order []string
	for _, i := range images {
		if archs[i.Arch] == 0 {
			order = append(order, i.Arch)
			if _, err := c.Image(ctx, i.ID); err != nil {
				return finding{area, warn, err.Error()}
			}
		}
		archs[i.Arch]++
	}
	var words []string
	for _, arch := range order {
		words = append(words, fmt.Sprintf("%s: %d", arch, archs[arch]))
	}
	return finding{area, good, "images for " + strings.Join(words, ", ")}
}

// readFirst returns the first line of a small file, or "".
func readFirst(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}
