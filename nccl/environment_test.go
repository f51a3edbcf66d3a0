package nccl

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports"
)

// reader is a program that prints what the library makes of the variables.
var reader struct {
	sync.Once
	path string
}

func compileReader(t *testing.T, path string, flags ...string) string {
	t.Helper()
	args := append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-o", path, "testdata/settings.c"}, flags...)
	for _, s := range []string{"settings", "variables", "adapters", "interfaces", "env", "log", "config"} {
		args = append(args, "src/"+s+".c")
	}
	run(t, exec.Command("cc", append(args, "-lpthread")...))
	return path
}

func readVariables(t *testing.T, args []string, variables ...string) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	reader.Do(func() {
		reader.path = compileReader(t, filepath.Join(scratch(t), "settings"))
	})
	c := exec.Command(reader.path, args...)
	c.Env = append([]string{"HOME=" + t.TempDir()}, variables...)
	return run(t, c)
}

// Each variable of NCCL becomes settings of this project's configuration, NCCL's own configuration, a line of the log, or
// nothing.
func TestVariables(t *testing.T) {
	const info, warn = "NCCL_DEBUG=INFO", "NCCL_DEBUG=WARN"
	const gpu, host = "0", "-1"
	const ib = "MSCCLPP_TRANSPORTS=cudaipc,ib-host,ib-nonatomic"
	const tcp = "MSCCLPP_TRANSPORTS=shm,tcp"
	both := func(key string) []string {
		return []string{"\ntransport.ib-host." + key + "\n", "\ntransport.ib-nonatomic." + key + "\n"}
	}
	for _, c := range []struct {
		device    string
		variables []string
		want      []string // parts of the output; those that begin with ! are not there
	}{
		{gpu, nil, []string{"\ndevice=cuda:0\n", "\ndefault check.overlap=false\n", "\ndefault bootstrap.timeout=30m\n", "\ndefault collectives.preload=true\n", "!transports=", "!gpu_memory", "!transport.", "!check.signatures", "!bootstrap.interface", "!bootstrap.family"}},
		// interfaces
		{host, []string{tcp, "NCCL_SOCKET_IFNAME==lo"}, []string{"bootstrap.interface=lo\n", "transport.tcp.interface=lo\n"}},
		{host, []string{"NCCL_SOCKET_IFNAME==lo"}, []string{"bootstrap.interface=lo\n", "!transport.tcp.interface"}}, // options of others would be refused
		{gpu, []string{"NCCL_IB_SL=4"}, []string{"!service_level"}},
		{host, []string{"NCCL_NET=Socket", "NCCL_SOCKET_IFNAME==lo"}, []string{"transport.tcp.interface=lo\n"}},
		{host, []string{"NCCL_SOCKET_IFNAME=^lo,l"}, []string{"!interface=lo"}},
		{host, []string{tcp, "NCCL_OOB_NET_IFNAME=lo"}, []string{"bootstrap.interface=lo\n", "!transport.tcp.interface"}},
		{host, []string{tcp, "NCCL_SOCKET_FAMILY=AF_INET"}, []string{"bootstrap.family=inet\n", "transport.tcp.family=inet\n"}},
		{host, []string{tcp, "NCCL_SOCKET_FAMILY=AF_INET6"}, []string{"bootstrap.family=inet6\n", "transport.tcp.family=inet6\n"}},
		// keys whose own variables are set
		{host, []string{"MSCCLPP_BOOTSTRAP__INTERFACE=eth9", tcp, "NCCL_SOCKET_IFNAME==lo"}, []string{"!bootstrap.interface", "transport.tcp.interface=lo\n"}},
		{gpu, []string{ib, "MSCCLPP_TRANSPORT__IB_HOST__GID_INDEX=1", "NCCL_IB_GID_INDEX=3"}, []string{"\ntransport.ib-nonatomic.gid_index=3\n", "!ib-host.gid_index"}},
		{gpu, []string{"MSCCLPP_COMM__MAX_BLOCKS=4", "NCCL_MAX_CTAS=8"}, []string{"!comm.max_blocks"}},
		{gpu, []string{ib, "MSCCLPP_TRANSPORT__IB_HOST__DEVICES=nodev_1", "NCCL_IB_HCA==nodev_0:2"},
			[]string{"!ib-host.devices", "!ib-host.port", "\ntransport.ib-nonatomic.devices=nodev_0\n", "\ntransport.ib-nonatomic.port=2\n"}}, // a port is one of devices
		{gpu, []string{ib, "MSCCLPP_TRANSPORT__IB_HOST__GID_INDEX=", "NCCL_IB_GID_INDEX=3"}, both("gid_index=3")}, // empty: as if it were not set
		{gpu, []string{ib, "MSCCLPP_IB_GID_INDEX=", "NCCL_IB_GID_INDEX=3"}, both("gid_index=3")},
		{gpu, []string{"MSCCLPP_DEVICE=cuda:3"}, []string{"\ndevice=cuda:0\n"}}, // a communicator is on the current one
		// adapters
		{gpu, []string{ib, "NCCL_IB_HCA==nodev_0:1,nodev_1:1"}, append(both("devices=nodev_0,nodev_1"), both("port=1")...)},
		{gpu, []string{ib, "NCCL_IB_GID_INDEX=3"}, both("gid_index=3")},
		{gpu, []string{ib, "NCCL_IB_GID_INDEX=300"}, both("gid_index=255")},                        // the most that the transports take
		{gpu, []string{ib, warn, "NCCL_IB_ADDR_FAMILY=AF_INET"}, []string{"!gid_family", "!WARN"}}, // which they prefer anyway
		{gpu, []string{ib, warn, "NCCL_IB_ADDR_RANGE=10.1.0.0/16"}, append(both("gid_range=10.1.0.0/16"), "!gid_family", "!WARN")},
		{gpu, []string{ib, "NCCL_IB_ADDR_FAMILY=AF_INET6", "NCCL_IB_ADDR_RANGE=fd00::/8"}, append(both("gid_family=inet6"), both("gid_range=fd00::/8")...)},
		{gpu, []string{ib, warn, "NCCL_IB_ADDR_FAMILY=inet", "NCCL_IB_ADDR_RANGE="}, []string{"!gid_family", "!gid_range", "!WARN"}},
		{gpu, []string{ib, warn, "NCCL_IB_ADDR_RANGE=fd00::/8"}, []string{"!gid_range", "NCCL_IB_ADDR_RANGE=fd00::/8 does not count: expected a network of NCCL_IB_ADDR_FAMILY, AF_INET"}},
		{gpu, []string{ib, warn, "NCCL_IB_ADDR_FAMILY=AF_INET6", "NCCL_IB_ADDR_RANGE=10.0.0.0/8"}, []string{"!gid_range", "does not count: expected a network of NCCL_IB_ADDR_FAMILY, AF_INET6"}},
		{gpu, []string{ib, "NCCL_IB_ADDR_RANGE=10.1.0.0"}, []string{"!gid_range"}},
		{gpu, []string{ib, "NCCL_IB_ADDR_RANGE=10.1.0.0/33"}, []string{"!gid_range"}},
		{gpu, []string{ib, "NCCL_IB_ADDR_RANGE=10.1.0.0/016"}, []string{"!gid_range"}},
		{gpu, []string{ib, "NCCL_IB_ADDR_RANGE=10.1/16"}, []string{"!gid_range"}},
		{gpu, []string{ib, "NCCL_IB_TIMEOUT=22"}, both("ack_timeout=22")},
		{gpu, []string{ib, "NCCL_IB_TIMEOUT=99"}, both("ack_timeout=31")},
		{gpu, []string{ib, "NCCL_IB_RETRY_CNT=7"}, both("retries=6")},
		{gpu, []string{ib, "NCCL_IB_SL=4"}, both("service_level=4")},
		{gpu, []string{ib, "NCCL_IB_TC=106"}, both("traffic_class=106")},
		{gpu, []string{ib, "NCCL_IB_QPS_PER_CONNECTION=4"}, both("queue_pairs=4")},
		{gpu, []string{ib, "NCCL_IB_QPS_PER_CONNECTION=128"}, both("queue_pairs=64")}, // the most that a connection has
		{gpu, []string{ib, "NCCL_DMABUF_ENABLE=0"}, both("gpu_direct=false")},
		{gpu, []string{ib, "NCCL_NET_GDR_LEVEL=LOC"}, both("gpu_direct=false")},
		{gpu, []string{"NCCL_NET_GDR_LEVEL=SYS"}, []string{"!gpu_direct"}},
		{gpu, []string{info, "NCCL_IB_PCI_RELAXED_ORDERING=1", "NCCL_IB_ROCE_VERSION_NUM=2"},
			[]string{"NCCL_IB_PCI_RELAXED_ORDERING=1 has no effect", "NCCL_IB_ROCE_VERSION_NUM=2 has no effect", "!WARN"}},
		// transports and features
		{gpu, []string{"NCCL_NET=Socket"}, []string{"\ntransports=cudaipc,tcp\n"}},
		{gpu, []string{"NCCL_NET=IB"}, []string{"\ntransports=cudaipc,ib-host\n"}},
		{gpu, []string{"TEST_NET=socket"}, []string{"\ntransports=cudaipc,tcp\n"}},
		{gpu, []string{"TEST_NET=IB", "NCCL_NET=Socket"}, []string{"\ntransports=cudaipc,ib-host\n"}},
		{gpu, []string{"MSCCLPP_TRANSPORTS=cudaipc,ib-nonatomic,tcp", "NCCL_NET=IB"}, []string{"\ntransports=cudaipc,ib-nonatomic\n"}},
		{gpu, []string{"MSCCLPP_TRANSPORTS=cudaipc,ib-host,ib-nonatomic,tcp", "NCCL_IB_DISABLE=1"}, []string{"\ntransports=cudaipc,tcp\n"}},
		{gpu, []string{"MSCCLPP_TRANSPORTS=cudaipc,tcp", "NCCL_NET=Socket", "NCCL_IB_DISABLE=1"}, []string{"!transports="}},
		{gpu, []string{"NCCL_IB_DISABLE=1"}, []string{"!transports="}},
		{gpu, []string{"TEST_LISTED=cudaipc,ib-host,tcp", "NCCL_IB_DISABLE=1", "NCCL_SOCKET_IFNAME==lo"}, []string{"\ntransports=cudaipc,tcp\n", "\ntransport.tcp.interface=lo\n"}}, // a file has the list
		{gpu, []string{"MSCCLPP_TRANSPORTS=cudaipc", "TEST_LISTED=tcp", "NCCL_IB_DISABLE=1"}, []string{"!transports="}},
		{gpu, []string{"NCCL_P2P_DISABLE=1"}, []string{"\ngpu_memory=host\n", "!transports="}},
		{gpu, []string{"NCCL_P2P_LEVEL=LOC"}, []string{"\ngpu_memory=host\n"}},
		{gpu, []string{"NCCL_P2P_LEVEL=NVL"}, []string{"\ntransport.cudaipc.require_nvlink=true\n"}},
		{gpu, []string{"NCCL_P2P_LEVEL=SYS"}, []string{"!gpu_memory", "!require_nvlink"}},
		{gpu, []string{"NCCL_SHM_DISABLE=1"}, []string{"!transports="}},
		{gpu, []string{"NCCL_SHM_DISABLE=1", "NCCL_P2P_DISABLE=1"}, []string{"\ntransports=tcp\n"}},
		{host, []string{"NCCL_SHM_DISABLE=1"}, []string{"\ntransports=tcp\n"}},
		{host, []string{"NCCL_P2P_DISABLE=1"}, []string{"!gpu_memory", "!transports="}},
		{gpu, []string{"NCCL_MNNVL_ENABLE=0"}, []string{"\ntransport.cudaipc.fabric=false\n"}},
		{gpu, []string{info, "NCCL_NVLS_ENABLE=0"}, []string{"!NVLS", "!transport"}},
		{gpu, []string{info, "NCCL_CUMEM_ENABLE=0"}, []string{"NCCL_CUMEM_ENABLE=0 has no effect", "!WARN"}},
		// NCCL's own configuration
		{gpu, []string{"NCCL_COMM_BLOCKING=0"}, []string{"blocking=0"}},
		{gpu, []string{"NCCL_MAX_CTAS=8", "NCCL_MIN_CTAS=2"}, []string{"comm.max_blocks=8", "minCTAs=2"}},
		{gpu, []string{"NCCL_MAX_NCHANNELS=6", "NCCL_MIN_NCHANNELS=3"}, []string{"comm.max_blocks=6", "minCTAs=3"}},
		{gpu, []string{"NCCL_MAX_CTAS=8", "NCCL_MAX_NCHANNELS=6"}, []string{"comm.max_blocks=8"}},
		{gpu, []string{"NCCL_MAX_CTAS=5000", "NCCL_MIN_CTAS=2000"}, []string{"comm.max_blocks=1024", "minCTAs=1024"}},
		{gpu, []string{"NCCL_CGA_CLUSTER_SIZE=2"}, []string{"cgaClusterSize=2"}},
		{gpu, []string{info, "NCCL_CTA_POLICY=2"}, []string{"CTAPolicy=2", "NCCL_CTA_POLICY set by environment to 2."}},
		{gpu, []string{"NCCL_CTA_POLICY=9"}, []string{"CTAPolicy=0"}},
		{gpu, []string{"NCCL_NVLS_NCHANNELS=4"}, []string{"nvlsCTAs=4"}},
		{gpu, []string{"NCCL_NCHANNELS_PER_NET_PEER=3"}, []string{"nChannelsPerNetPeer=3"}},
		{gpu, []string{"NCCL_COMM_SPLIT_SHARE_RESOURCES=1"}, []string{"splitShare=1"}},
		{gpu, []string{info, "NCCL_GRAPH_MIXING_SUPPORT=0"}, []string{"NCCL_GRAPH_MIXING_SUPPORT=0 has no effect"}},
		// checks
		{gpu, []string{"NCCL_CHECK_MODE=DEBUG_GLOBAL"}, []string{"\ncheck.signatures=always\n"}},
		{gpu, []string{"NCCL_CHECK_MODE=DEBUG_LOCAL"}, []string{"!check.signatures"}},
		{gpu, []string{"NCCL_CHECKS_DISABLE=1"}, []string{"\ncheck.signatures=never\n"}},
		// ignored, with a line
		{gpu, []string{info, "NCCL_TOPO_FILE=x", "NCCL_TOPO_DUMP_FILE=y", "NCCL_CROSS_NIC=1", "NCCL_IGNORE_DISK_MISMATCH=1", "NCCL_NET_MERGE_LEVEL=PIX", "NCCL_IB_MERGE_NICS=0"},
			[]string{"NCCL_TOPO_FILE=x has", "NCCL_TOPO_DUMP_FILE=y has", "NCCL_CROSS_NIC=1 has", "NCCL_IGNORE_DISK_MISMATCH=1 has", "NCCL_NET_MERGE_LEVEL=PIX has", "NCCL_IB_MERGE_NICS=0 has", "!WARN"}},
		{gpu, []string{warn, "NCCL_TOPO_FILE=x"}, []string{"!NCCL_TOPO_FILE"}},
		// ignored, with a warning that names the setting of this project
		{gpu, []string{warn, "NCCL_ALGO=allreduce:tree"}, []string{"NCCL WARN NCCL_ALGO=allreduce:tree has no effect on this library: MSCCLPP_COLLECTIVES__TABLE"}},
		{gpu, []string{warn, "NCCL_ALGO=^NVLS"}, []string{"!NCCL_ALGO"}},
		{gpu, []string{warn, "NCCL_PROTO=^LL128", "NCCL_NTHREADS=512", "NCCL_LL_THRESHOLD=9", "NCCL_TREE_THRESHOLD=0"},
			[]string{"NCCL_PROTO=", "NCCL_NTHREADS=512 has", "NCCL_LL_THRESHOLD=9 has", "NCCL_TREE_THRESHOLD=0 has"}},
		{gpu, []string{warn, "NCCL_BUFFSIZE=1", "NCCL_P2P_NET_CHUNKSIZE=1"}, []string{"NCCL_BUFFSIZE=1 has no effect on this library: MSCCLPP_COMM__SCRATCH", "NCCL_P2P_NET_CHUNKSIZE=1 has"}},
		{gpu, []string{warn, "NCCL_PXN_DISABLE=1", "NCCL_NET_SHARED_COMMS=0", "NCCL_RUNTIME_CONNECT=0", "NCCL_LAUNCH_MODE=GROUP"},
			[]string{"NCCL_PXN_DISABLE=1 has no effect on this library: MSCCLPP_TRANSPORTS", "NCCL_NET_SHARED_COMMS=0 has", "NCCL_RUNTIME_CONNECT=0 has", "NCCL_LAUNCH_MODE=GROUP has"}},
		{gpu, []string{warn, "NCCL_NET_PLUGIN=aws", "NCCL_TUNER_PLUGIN=x", "NCCL_ENV_PLUGIN=y"}, []string{"NCCL_NET_PLUGIN=aws has", "NCCL_TUNER_PLUGIN=x has", "NCCL_ENV_PLUGIN=y has"}},
		// silent
		{gpu, []string{info, "NCCL_RAS_ENABLE=1", "NCCL_RAS_ADDR=x", "NCCL_COLLNET_ENABLE=1", "NCCL_SYM_GIN_KERNELS_ENABLE=0", "NCCL_MULTI_RANK_GPU_ENABLE=1", "NCCL_WIN_ENABLE=1",
			"NCCL_LOCAL_REGISTER=1", "NCCL_GRAPH_REGISTER=1", "NCCL_IGNORE_CPU_AFFINITY=1", "NCCL_SET_THREAD_NAME=1", "NCCL_ASYNC_ERROR_HANDLING=1", "NCCL_NO_SUCH_THING=1", "TORCH_NCCL_ASYNC=1"},
			[]string{"!has no effect", "!WARN", "!transport"}},
		// the log
		{gpu, []string{warn, "NCCL_DEBUG_TIMESTAMP_FORMAT=<%Y> ", "NCCL_NTHREADS=1"}, []string{"\n<20"}},
		{gpu, []string{warn, "NCCL_DEBUG_TIMESTAMP_FORMAT=<%3f!", "NCCL_DEBUG_TIMESTAMP_LEVELS=INFO", "NCCL_NTHREADS=1"}, []string{"!<"}},
		{gpu, []string{info, "NCCL_DEBUG_TIMESTAMP_FORMAT=<%%> ", "NCCL_DEBUG_TIMESTAMP_LEVELS=INFO"}, []string{"<%> "}},
		{gpu, []string{info, "NCCL_DEBUG_SUBSYS=^ENV", "NCCL_TOPO_FILE=x"}, []string{"!NCCL_TOPO_FILE"}},
		{gpu, []string{"NCCL_NTHREADS=1"}, []string{"!NCCL_NTHREADS"}},
	} {
		got := "\n" + readVariables(t, []string{c.device}, c.variables...)
		for _, want := range c.want {
			part, not := strings.CutPrefix(want, "!")
			if strings.Contains(got, part) == not {
				t.Errorf("%v: expected %q in\n%s", c.variables, want, got)
			}
		}
		if n := strings.Count(got, "NCCL_NTHREADS=1 has"); n > 1 {
			t.Errorf("%v: a warning %d times:\n%s", c.variables, n, got)
		}
	}
}

// The table of variables has every one that the sources read, and docs/nccl.md has every one of the table.
func TestVariablesAreListed(t *testing.T) {
	read := func(pattern string) string {
		t.Helper()
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    \{"([A-Z0-9_*]+)", (?:USED|NOTED|WARNED),`).FindAllStringSubmatch(read("src/variables.c"), -1) {
		listed[m[1]] = true
	}
	if len(listed) < 60 {
		t.Fatalf("%d variables", len(listed))
	}
	sources := read("src/*.c") + read("src/rccl/*.c") + read("src/*.h")
	names := regexp.MustCompile(`"((?:NCCL|MSCCLPP|NVTX|CUDA|HIP)_[A-Z0-9_]+|HOME|TMPDIR)"`)
	for _, m := range names.FindAllStringSubmatch(sources, -1) {
		if !listed[m[1]] && !strings.HasPrefix(m[1], "MSCCLPP_SHRINK") && m[1] != "CUDA_VISIBLE_DEVICES" {
			t.Errorf("%s is not in the table", m[1])
		}
	}
	if n := len(regexp.MustCompile(`\bgetenv\(`).FindAllString(sources, -1)); n > 0 {
		t.Errorf("%d calls of getenv: expected variable or setting", n)
	}
	// A row of the page has names in full, and ends of others that begin alike.
	words := regexp.MustCompile(`[A-Z0-9_*/]+`)
	documented := map[string]bool{}
	for line := range strings.Lines(strings.ReplaceAll(read("../docs/nccl.md"), `\`, "")) {
		var begins []string
		for _, w := range words.FindAllString(strings.ReplaceAll(line, "MIN/MAX", "MIN"), -1) {
			documented[w] = true
			for _, b := range begins {
				documented[b+w] = true
			}
			for i, c := range w + "_" {
				if c == '_' && i > 3 {
					begins = append(begins, w[:min(i, len(w))])
				}
			}
		}
	}
	for name := range listed {
		all := slices.ContainsFunc(slices.Collect(maps.Keys(documented)), func(d string) bool {
			begin, star := strings.CutSuffix(d, "*")
			return star && len(begin) > 8 && strings.HasPrefix(name, begin)
		})
		if !all && !documented[name] && !documented[strings.Replace(name, "_MAX_", "_MIN_", 1)] {
			t.Errorf("docs/nccl.md has no %s", name)
		}
	}
}

// A process that has rights which its user has not takes no variables from that user.
func TestVariablesOfSetUID(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a program that changes its user")
	}
	readVariables(t, []string{"0"}) // compiles it
	folder := scratch(t)
	program := filepath.Join(folder, "program")
	text, err := os.ReadFile(reader.path)
	if err == nil {
		err = errors.Join(os.Chmod(folder, 0o755), os.WriteFile(program, text, 0o755), os.Chmod(program, 0o755|os.ModeSetuid))
	}
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]bool{0: true, 65534: false} { // root's rights are its own
		c := exec.Command(program, "0")
		c.Dir = "/"
		c.Env = []string{"NCCL_MAX_CTAS=7", "NCCL_DEBUG=INFO", "MSCCLPP_TRANSPORTS=cudaipc,tcp", "NCCL_NET=IB"}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 65534}}
		got := run(t, c)
		for _, part := range []string{"comm.max_blocks=7", "NCCL_MAX_CTAS set by environment to 7", "transports="} {
			if strings.Contains(got, part) != want {
				t.Errorf("user %d: %q is there: %v, expected %v, in\n%s", uid, part, !want, want, got)
			}
		}
	}
}

// Variables count before the files, and the file that NCCL_CONF_FILE names before that of the machine.
func TestVariablesOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf")
	text := "# of this job\n  NCCL_CTA_POLICY = 2\nNCCL_MAX_CTAS=4\nnonsense\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := readVariables(t, []string{"0"}, "NCCL_CONF_FILE="+file, "NCCL_MAX_CTAS=9")
	if !strings.Contains(got, "CTAPolicy=2") || !strings.Contains(got, "comm.max_blocks=9") {
		t.Errorf("got\n%s", got)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".nccl.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readVariables(t, []string{"0"}, "HOME="+home); !strings.Contains(got, "comm.max_blocks=4") {
		t.Errorf("got\n%s", got)
	}
}

// The file of the machine counts behind both, and a file that is named and is not there is a warning.
func TestVariablesOfTheMachine(t *testing.T) {
	readVariables(t, []string{"0"}) // there is a compiler
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	machines := write("machine", "NCCL_CTA_POLICY=1\nNCCL_MAX_CTAS=3\nNCCL_MIN_CTAS=2\nNCCL_MIN_CTAS=1\nNCCL_COMM_SPLIT_SHARE_RESOURCES=1\n")
	program := compileReader(t, filepath.Join(dir, "settings"), "-DMACHINES_FILE=\""+machines+"\"")
	said := func(variables ...string) string {
		c := exec.Command(program, "0")
		c.Env = append([]string{"HOME=" + dir}, variables...)
		return run(t, c)
	}
	got := said("NCCL_CONF_FILE="+write("job", "NCCL_MAX_CTAS=4\n"), "NCCL_CTA_POLICY=2", "NCCL_DEBUG=WARN")
	expectText(t, got, "comm.max_blocks=4\n", "CTAPolicy=2\n", "minCTAs=2\n", "splitShare=1\n", "!NCCL_CONF_FILE")
	got = said("NCCL_CONF_FILE="+dir+"/none", "NCCL_DEBUG=WARN")
	expectText(t, got, "NCCL WARN NCCL_CONF_FILE="+dir+"/none: no such file", "comm.max_blocks=3\n")
	expectText(t, said("NCCL_CONF_FILE=/dev/null", "NCCL_DEBUG=WARN"), "!WARN", "comm.max_blocks=3\n")
	expectText(t, said("NCCL_CONF_FILE="+dir, "NCCL_DEBUG=WARN"), "NCCL WARN NCCL_CONF_FILE="+dir+": no such file")
}

// NCCL_DEBUG_FILE names a file, which is emptied, by patterns; one that cannot be made leaves lines where they were, and so does the
// level VERSION.
func TestDebugFile(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	for pattern, want := range map[string]string{"a-%h": "a-" + host, "b-%%p": "b-%p", "c-%x-%": "c-%x-%", "d-%h-%p": "d-" + host + "-[0-9]*", "e": "e"} {
		path := filepath.Join(dir, "e")
		if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		printed := readVariables(t, []string{"0"}, "NCCL_DEBUG=WARN", "NCCL_NTHREADS=1", "NCCL_DEBUG_FILE="+dir+"/"+pattern)
		files, err := filepath.Glob(filepath.Join(dir, want))
		if err != nil || len(files) != 1 {
			t.Errorf("%s: files %v, %v: expected %s", pattern, files, err, want)
			continue
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		expectText(t, string(text), "NCCL WARN NCCL_NTHREADS=1", "!old")
		expectText(t, printed, "!NCCL WARN")
	}
	expectText(t, readVariables(t, []string{"0"}, "NCCL_DEBUG=WARN", "NCCL_NTHREADS=1", "NCCL_DEBUG_FILE="+dir+"/none/file"), "NCCL WARN NCCL_NTHREADS=1")
	_ = readVariables(t, []string{"0"}, "NCCL_DEBUG=VERSION", "NCCL_DEBUG_FILE="+dir+"/version")
	if _, err := os.Stat(dir + "/version"); err == nil {
		t.Error("level VERSION makes a file")
	}
}

// NCCL_IB_HCA names devices by how they begin, exactly, or all but some.
func TestAdapters(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"mlx5_0", "mlx5_1", "mlx5_10", "mlx4_0"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for list, want := range map[string]string{
		"mlx5":             "mlx5_0,mlx5_1,mlx5_10 0\n",
		"=mlx5_1":          "mlx5_1 0\n",
		"mlx5_1":           "mlx5_1,mlx5_10 0\n",
		"=mlx5_1:2,mlx4_0": "mlx4_0,mlx5_1 2\n",
		"^mlx5_1":          "mlx4_0,mlx5_0 0\n",
		"^=mlx5_1":         "mlx4_0,mlx5_0,mlx5_10 0\n",
		"^mlx":             " 0\n",
		"=other:1":         "other 1\n",
	} {
		if got := readVariables(t, []string{"0", folder}, "NCCL_IB_HCA="+list); got != want {
			t.Errorf("%s: %q, expected %q", list, got, want)
		}
	}
}

// A communicator takes the settings that variables become.
func TestVariablesAreTaken(t *testing.T) {
	t.Parallel()
	alone(t, "arguments.c", "NCCL_IB_HCA==nodev_0:1", "NCCL_IB_GID_INDEX=3", "NCCL_IB_TIMEOUT=22", "NCCL_IB_RETRY_CNT=7", "NCCL_IB_SL=4",
		"NCCL_IB_TC=106", "NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_DMABUF_ENABLE=0", "NCCL_SOCKET_FAMILY=AF_INET", "NCCL_SOCKET_IFNAME==lo",
		"NCCL_CHECK_MODE=DEBUG_GLOBAL", "NCCL_SET_THREAD_NAME=1")
}

// Variables of this project under other names than those of their keys count before NCCL's: all that docs/config.md has for keys that
// variables of NCCL set.
func TestOtherNamesCountBeforeNCCLs(t *testing.T) {
	page, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	variables := []string{"MSCCLPP_TRANSPORTS=cudaipc,ib-host,ib-nonatomic,tcp", "NCCL_IB_HCA==nodev_0:1", "NCCL_IB_GID_INDEX=3", "NCCL_IB_TIMEOUT=22", "NCCL_IB_RETRY_CNT=5",
		"NCCL_IB_SL=4", "NCCL_IB_TC=106", "NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_DMABUF_ENABLE=0", "NCCL_SOCKET_FAMILY=AF_INET", "NCCL_IB_ADDR_FAMILY=AF_INET6",
		"NCCL_IB_ADDR_RANGE=fd00::/8", "NCCL_SOCKET_IFNAME==lo", "NCCL_P2P_LEVEL=NVL", "NCCL_MNNVL_ENABLE=0", "NCCL_CHECK_MODE=DEBUG_GLOBAL", "NCCL_MAX_CTAS=8"}
	set := "\n" + readVariables(t, []string{"0"}, variables...)
	compared := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `(MSCCLPP_[A-Z_]+)` \\| sets (`.*)\\|$").FindAllStringSubmatch(string(page), -1) {
		for _, key := range regexp.MustCompile("`([a-z0-9_.-]+)`").FindAllStringSubmatch(row[2], -1) {
			line := "\n" + key[1] + "="
			if !strings.Contains(set, line) {
				continue
			}
			compared++
			if got := "\n" + readVariables(t, []string{"0"}, append(variables, row[1]+"=1")...); strings.Contains(got, line) {
				t.Errorf("%s does not count before the variable of NCCL for %s", row[1], key[1])
			}
		}
	}
	if compared != 8 {
		t.Errorf("%d keys are compared, expected 8 of 5 variables", compared)
	}
}

// The options of transports that variables become are options that these transports have.
func TestVariablesAreOptions(t *testing.T) {
	got := readVariables(t, []string{"0"}, "MSCCLPP_TRANSPORTS=cudaipc,ib-host,ib-nonatomic,tcp", "NCCL_IB_HCA==nodev_0:1", "NCCL_IB_GID_INDEX=3", "NCCL_IB_TIMEOUT=22",
		"NCCL_IB_RETRY_CNT=7", "NCCL_IB_SL=4", "NCCL_IB_TC=106", "NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_DMABUF_ENABLE=0", "NCCL_SOCKET_FAMILY=AF_INET",
		"NCCL_IB_ADDR_FAMILY=AF_INET6", "NCCL_IB_ADDR_RANGE=fd00::/8",
		"NCCL_SOCKET_IFNAME==lo", "NCCL_P2P_LEVEL=NVL", "NCCL_MNNVL_ENABLE=0")
	n := 0
	for line := range strings.Lines(got) {
		key, ok := strings.CutPrefix(line, "transport.")
		if !ok {
			continue
		}
		n++
		key, _, _ = strings.Cut(key, "=")
		name, key, _ := strings.Cut(key, ".")
		b := slices.IndexFunc(transports.List, func(b transports.BuiltIn) bool { return b.Name == name })
		if b < 0 || !slices.ContainsFunc(transports.List[b].Schema(), func(o plugins.Option) bool { return o.Name == key }) {
			t.Errorf("transport %s has no option %s", name, key)
		}
	}
	if n != 2*11+4 {
		t.Errorf("%d options, expected 26, in\n%s", n, got)
	}
}
