package verbs

import (
	"net/netip"
	"runtime"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Config holds the options of the transports. Take Defaults and change what matters.
type Config struct {
	Library      string        `help:"Path or name of libibverbs. Empty: libibverbs.so.1."`
	Devices      []string      `help:"RDMA devices, or their network devices, that may be used: the nearest to the rank's device, the first named of equally near ones. Empty: all, and ranks of a host take equally near ones in turn."`
	Port         int           `help:"Port of the device; 0: the first that is active."`
	GIDIndex     int           `option:"gid_index" help:"Index of the port's address; -1: found by scanning, RoCE v2 with an IP address first."`
	GIDFamily    string        `option:"gid_family" help:"Family of the port's address on RoCE, where it is found by scanning: inet, inet6, or empty for either, IPv4 first. Where no adapter has one as gid_family and gid_range prefer, another one is used, with a warning."`
	GIDRange     string        `option:"gid_range" help:"Network in which the port's address on RoCE should be, such as 10.1.0.0/16, where it is found by scanning. Empty: any."`
	Fabric       string        `help:"Name of the network. Ranks with different names are not connected. Empty: the InfiniBand subnet, or one name for all of RoCE."`
	MTU          int           `option:"mtu" help:"Largest packet in bytes: 256, 512, 1024, 2048 or 4096; 0: what the port has. The smaller one of both sides is used."`
	TrafficClass int           `help:"Traffic class of RoCE packets, 0 to 255. Lossless classes are a matter of the network."`
	ServiceLevel int           `help:"InfiniBand service level, 0 to 15."`
	AckTimeout   int           `help:"How long a packet may be unanswered before it is sent again: 4.096 µs × 2^n, n from 1 to 31."`
	Retries      int           `help:"How often it is sent again before the peer counts as dead, 0 to 6. The 7 that other programs use is endless on some adapters."`
	GPUDirect    bool          `option:"gpu_direct" help:"Whether memory of GPUs is registered where it is, by its dma-buf. If not, collectives take what is on a GPU through memory of the host, and port channels over memory of a GPU are refused."`
	DataDirect   bool          `help:"Whether memory of GPUs is registered over the direct path that some of NVIDIA's adapters have to GPUs. Without effect where signals are no atomics: they could overtake the data."`
	MLX5Library  string        `option:"mlx5_library" help:"Path or name of libmlx5, which finds that path. Empty: libmlx5.so.1."`
	QueuePairs   int           `help:"Queue pairs to each peer. Port channels use them in turn, each of them one."`
	QueueDepth   int           `help:"Work requests that a connection may have under way. More wait in the ring."`
	Receives     int           `help:"Signals that a peer may have under way before it waits; for write-with-immediate."`
	Inline       int           `help:"Bytes up to which data travels inside the work request; less where the device wants less."`
	DrainSpin    time.Duration `help:"How long an idle proxy polls before it starts to yield its core."`
	DrainYield   time.Duration `help:"How long an idle proxy yields its core before it sleeps until it is woken."`
	DrainCPU     int           `help:"Core on which proxies run; -1 leaves it to the system."`
}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config {
	return Config{
		GIDIndex: -1, GPUDirect: true, DataDirect: true, AckTimeout: 16, Retries: 6, QueuePairs: 1, QueueDepth: 256, Receives: 256, Inline: 64,
		DrainSpin: 20 * time.Microsecond, DrainYield: time.Millisecond, DrainCPU: -1,
	}
}

// Validate says what is wrong with a Config.
func (c Config) Validate() error {
	for _, n := range []struct {
		name             string
		value, low, high int
	}{
		{"port", c.Port, 0, 255},
		{"gid_index", c.GIDIndex, -1, 255},
		{"traffic_class", c.TrafficClass, 0, 255},
		{"service_level", c.ServiceLevel, 0, 15},
		{"ack_timeout", c.AckTimeout, 1, 31},
		{"retries", c.Retries, 0, 6},
		{"queue_pairs", c.QueuePairs, 1, framework.MostLinks},
		{"queue_depth", c.QueueDepth, minDepth, 1 << 15},
		{"receives", c.Receives, 4, 1 << 14},
		{"inline", c.Inline, 0, 1 << 12},
		{"drain_cpu", c.DrainCPU, -1, 1023},
	} {
		if n.value < n.low || n.value > n.high {
			return framework.BadOption(n.name, "%s %d: expected %d to %d", n.name, n.value, n.low, n.high)
		}
	}
	if c.GIDFamily != "" && c.GIDFamily != "inet" && c.GIDFamily != "inet6" {
		return framework.BadOption("gid_family", "gid_family %q: expected inet, inet6, or nothing", c.GIDFamily)
	}
	if _, err := netip.ParsePrefix(c.GIDRange); c.GIDRange != "" && err != nil {
		return framework.BadOption("gid_range", "gid_range %q: expected a network such as 10.1.0.0/16 or fd00::/8", c.GIDRange)
	}
	if c.MTU != 0 && mtuCode(c.MTU) == 0 {
		return framework.BadOption("mtu", "mtu %d: expected 256, 512, 1024, 2048, 4096, or 0 for what the port has", c.MTU)
	}
	const most = time.Minute
	for name, d := range map[string]time.Duration{"drain_spin": c.DrainSpin, "drain_yield": c.DrainYield} {
		if d < 0 || d > most {
			return framework.BadOption(name, "%s %v: expected 0 to %v", name, d, most)
		}
	}
	if c.DrainCPU >= runtime.NumCPU() {
		return framework.BadOption("drain_cpu", "drain_cpu %d: this process may use %d cores", c.DrainCPU, runtime.NumCPU())
	}
	return nil
}

// minDepth leaves room for a batch beside what completes later.
const minDepth = 4 * batch

// mtuCode is the library's number for a size of packets; 0 if there is none.
func mtuCode(bytes int) int {
	for code := 1; code <= 5; code++ {
		if bytes == 128<<code {
			return code
		}
	}
	return 0
}

// Mode is how a transport signals.
type Mode uint8
