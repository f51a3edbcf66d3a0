package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// direction says what the packages below a folder may import of this module. The
// first rule that fits a package counts. Standard library and other modules are
// free unless std is set.
type direction struct {
	of   string   // folder, or folder/ for what is below it
	may  []string // folders whose packages may be imported; "" is the root package
	std  bool     // nothing but the standard library beside that
	why  string
	test []string // imports that its tests may have in addition
}

// belowEngines lists the imports of every engine of collectives, and sharedByEngines the common ones of those over
// hosts.
var (
	belowEngines    = []string{"framework/", "collectives/internal/engine", "collectives/internal/kernelargs", "collectives/internal/hostreduce"}
	sharedByEngines = append([]string{
		"collectives/internal/inter/crosshost", "collectives/internal/inter/inside", "collectives/internal/inter/lanes", "collectives/internal/inter/lifetime",
		"collectives/internal/inter/offers", "collectives/internal/inter/placement", "collectives/internal/inter/streamgate",
	}, belowEngines...)
)

var directions = []direction{
	{of: "framework", std: true, may: []string{"framework"}, why: "the contract imports the standard library alone"},
	{of: "framework/transporttest/", may: []string{"framework/"}, test: []string{"plugins/", "transports/"},
		why: "the suite knows the contract, not a transport"},
	{of: "framework/", may: []string{"framework/"}, test: []string{"transports/shm"},
		why: "framework imports nothing that is built on it"},
	{of: "plugins/", may: []string{"framework/", "plugins/", "internal/"}, test: []string{"transports/"},
		why: "the process boundary knows the contract and no side of it"},
	{of: "transports/internal/", may: []string{"framework/", "transports/internal/"}, why: "what transports share knows none of them"},
	{of: "transports", may: []string{"framework/", "plugins", "transports/"}, why: "the list of transports built in"},
	{of: "transports/", may: []string{"framework/", "transports/internal/", "internal/", "collectives/image"}, test: []string{"plugins/"},
		why: "a transport knows neither another one, nor how it is served, nor what is built on it; compiled kernels are data"},
	{of: "collectives/devicetest", may: nil, test: []string{"framework/", "collectives/", "transports/cudaipc", "transports/nvls", "transports/tcp", "transports/ib-host", "transports/ib-nonatomic", "bench/", "internal/ranktest", "internal/traces"}, why: "it runs the collectives as jobs on GPUs do, and beside others, and reads their traces"},
	{of: "collectives/hiptest", may: nil, test: []string{"framework/", "collectives/", "inference", "inference/inferencetest", "inference/moe", "inference/moe/moetest", "internal/gfx/gpus", "transports/xgmi", "transports/ib-host", "transports/ib-nonatomic"}, why: "it runs the collectives as jobs on AMD's GPUs do"},
	{of: "collectives/internal/hostreduce", may: []string{"framework/kernel"}, why: "it knows elements, and no calls"},
	{of: "collectives/internal/inter/placement", why: "it computes, and communicates nothing"},
	{of: "collectives/internal/inter/lifetime", may: []string{"framework/"}, why: "it knows communicators alone"},
	{of: "collectives/internal/inter/streamgate", may: []string{"framework/", "collectives/internal/inter/lifetime"}, why: "it knows streams and the host, and no calls"},
	{of: "collectives/internal/inter/lanes", may: append([]string{"collectives/internal/inter/lifetime"}, belowEngines...), test: []string{"transports/shm"}, why: "lanes know no engine that uses them"},
	{of: "collectives/internal/inter/flat", may: append([]string{"collectives/internal/inter/lanes", "collectives/internal/inter/offers"}, belowEngines...), why: "it needs nothing but lanes"},
	{of: "collectives/internal/inter/twolevel", may: sharedByEngines, why: "no engine knows another one"},
	{of: "collectives/internal/inter/staged", may: append([]string{"collectives/internal/inter/enqueue"}, sharedByEngines...), why: "no engine knows another one"},
	{of: "collectives/internal/inter/direct", may: append([]string{"collectives/internal/inter/enqueue"}, sharedByEngines...), why: "no engine knows another one"},
	{of: "collectives/internal/kernelargs", may: []string{"framework/", "collectives/kernels"}, why: "arguments of kernels do not know the packages that fill them"},
	{of: "collectives/internal/coverage", may: []string{"framework/", "collectives/internal/choose", "collectives/internal/engine", "collectives/internal/kernelargs"}, why: "it describes kernels, and knows no engine"},
	{of: "collectives/internal/engine", may: []string{"framework/", "collectives/internal/kernelargs"}, why: "what engines have in common knows none of them"},
	{of: "collectives/internal/choose/", may: []string{"framework/", "collectives/internal/choose/", "collectives/internal/engine", "collectives/internal/kernelargs"},
		why: "choosing depends on tables and offers, and knows no engine"},
	{of: "collectives/internal/intra/", may: []string{"framework/", "internal/streamorder", "collectives/internal/intra/", "collectives/internal/choose/", "collectives/internal/engine", "collectives/internal/kernelargs"},
		test: []string{"collectives/image"}, why: "an engine knows neither another one nor the face"},
	{of: "collectives/internal/inter/", may: []string{"framework/", "collectives/internal/inter/", "collectives/internal/choose/", "collectives/internal/engine", "collectives/internal/kernelargs", "collectives/internal/hostreduce"},
		test: []string{"transports/shm"}, why: "an engine knows neither another one nor the face"},
	{of: "collectives/", may: []string{"framework/", "collectives/"}, test: []string{"transports/shm", "plugins/plugintest", "simulate", "internal/proven", "internal/gfx/"},
		why: "collectives work over any transport"},
	{of: "launch/enginetest", may: nil, test: []string{"", "framework/"}, why: "engines start the product from outside"},
	{of: "launch/manifest", may: []string{"framework"}, why: "a manifest is text"},
	{of: "launch/remote", may: []string{"framework/", "internal/", "launch"}, why: "the launcher does not know what it launches"},
	{of: "launch", may: []string{"framework/", "internal/"}, why: "the launcher does not know what it launches"},
	{of: "capi/internal/", may: []string{"framework"}, why: "the parts of the C library know nothing of jobs"},
	{of: "capi/libmscclpp", may: []string{"capi/", "framework/", "collectives", "plugins", "internal/", "plan/attach", "plan/dsl/session", "plan/exec", "plan/schema", "plan/verify", "inference", "inference/moe"}, why: "it is built on what puts jobs together, and not on the package of Go programs"},
	{of: "capi", may: nil, test: []string{"", "framework/", "collectives/collectivetest", "launch"}, why: "the folder has the header, and tests that use the library as programs do"},
	{of: "nccl/torchtest", may: nil, test: []string{"framework/", "collectives/collectivetest"}, why: "tests that have PyTorch use the library"},
	{of: "nccl", may: nil, test: []string{"framework/", "collectives/collectivetest", "internal/gfx/gpus", "plugins", "transports"}, why: "the library is written in C; the package has tests that use it as programs do"},
	{of: "python", may: nil, test: []string{"internal/promise", "framework/device/cuda", "framework/device/cuda/emulated"}, why: "the package is written in Python; its tests use it as programs do"},
	{of: "internal/setup", may: []string{"framework/", "collectives", "launch", "plugins", "transports", "internal/", "plan/attach", "plan/schema"},
		why: "it puts jobs together for the libraries of all languages, none of which it knows"},
	{of: "internal/ownkernel", may: []string{"framework", "framework/comm", "framework/device", "framework/kernel", "framework/kernel/image"}, test: []string{"internal/ranktest"}, why: "it loads a kernel and says how launches ended, and knows no calls"},
	{of: "internal/ownmemory", may: []string{"framework", "framework/comm", "framework/device"}, why: "it holds memory, and knows no calls"},
	{of: "internal/ranktest", may: []string{"framework/", "transports/shm", "transports/cudaipc", "transports/nvls", "transports/tcp", "collectives/collectivetest", "internal/promise"}, why: "it starts ranks for tests of what runs over any transport"},
	{of: "internal/traces", may: []string{"framework/", "internal/"}, why: "it reads what ranks write, and starts none"},
	{of: "internal/streamorder", may: []string{"framework", "framework/device"}, why: "it orders streams, and knows no calls"},
	{of: "internal/", may: []string{"internal/"}, why: "small tools know nothing of the rest"},
	{of: "plan/dsl/session", may: []string{"plan/dsl", "plan/schema"}, why: "messages become calls of the language, and of nothing else"},
	{of: "plan/dsl", may: []string{"framework", "plan/schema"}, test: []string{"plan/verify"}, why: "the compiler knows the format that it writes, and nobody who runs it"},
	{of: "plan/library", may: []string{"framework", "plan/dsl", "plan/schema"}, test: []string{"plan/verify"}, why: "plans are programs of the language, and of nothing else"},
	{of: "plan/schema", may: []string{"framework"}, why: "a file format knows nothing of who uses it"},
	{of: "plan/attach", may: []string{"framework", "framework/kernel", "collectives", "plan/exec", "plan/schema", "plan/verify"}, test: []string{"framework/", "transports/shm", "plan/", "collectives/collectivetest"},
		why: "plans become algorithms of collectives as those of programs do"},
	{of: "plan/exec", may: []string{"framework/", "internal/ownkernel", "internal/streamorder", "plan/image", "plan/kernels", "plan/schema", "plan/verify"}, test: []string{"internal/ranktest", "plan/", "collectives/collectivetest"},
		why: "the executor runs plans over any transport, whoever made or proved them"},
	{of: "plan/image", may: []string{"framework/kernel/image"}, why: "compiled kernels are data"},
	{of: "inference/inferencetest", may: []string{"framework/kernel", "inference"}, why: "what is right is computed from the call alone"},
	{of: "inference/image", may: []string{"framework/kernel/image"}, why: "compiled kernels are data"},
	{of: "inference/moe/image", may: []string{"framework/kernel/image"}, why: "compiled kernels are data"},
	{of: "inference/moe/kernels", why: "sources of kernels are data"},
	{of: "inference/moe/moetest", may: []string{"inference/moe"}, why: "what is right is computed from the call alone"},
	{of: "inference/moe", may: []string{"framework/", "internal/ownkernel", "internal/ownmemory", "internal/streamorder", "inference/moe/"}, test: []string{"inference/moe/", "internal/ranktest", "collectives/collectivetest"},
		why: "experts are reached over any transport"},
	{of: "inference/kernels", why: "sources of kernels are data"},
	{of: "inference", may: []string{"framework/", "internal/ownkernel", "internal/ownmemory", "internal/streamorder", "inference/image", "inference/kernels"}, test: []string{"inference/", "internal/ranktest", "collectives/collectivetest"},
		why: "operators run over any transport, beside the collectives and not on them"},
	{of: "plan/kernels", why: "sources of kernels are data"},
	{of: "plan/verify", may: []string{"framework", "plan/schema"}, why: "a plan is proven from its text alone"},
	{of: "simulate", std: true, may: []string{"framework/collective"}, why: "a model of machines knows none, and of collectives the names"},
	{of: "scripts", why: "scripts are tested as programs"},
	{of: "bench/", may: []string{"", "framework/", "collectives/", "bench/"}, test: []string{"transports/"}, why: "measurements use what users use"},
}

// lazilyLinked may not become part of a library that other programs load.
const lazilyLinked = module + "/framework/topo/nvml"

// everywhere know nothing of this module, and are what packages of any kind would
// otherwise write again.
var everywhere = []string{"internal/fastpath", "internal/onfirstuse", "internal/suggest", "internal/atomicfile", "internal/beforeexec", "internal/filelimit", "internal/lastwords", "internal/leaktest", "internal/loopback", "internal/lograte", "internal/ownfile", "internal/promise", "internal/strict"}

// Imports checks that imports run one way.
func Imports(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.AST == nil {
			continue
		}
		d := directionOf(f.Package())
		for _, spec := range f.AST.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err == nil && path == lazilyLinked && !f.Test() && !strings.Contains("/"+f.Package()+"/", "/cmd/") {
				out = append(out, Problem{f.Path, f.at(spec.Pos()), fmt.Sprintf("imports %s: it needs lazy linking, so programs and plugins alone may", path)})
				continue
			}
			if err != nil || d == nil || d.allows(f, path) {
				continue
			}
			out = append(out, Problem{f.Path, f.at(spec.Pos()), fmt.Sprintf("imports %s: %s", path, d.why)})
		}
	}
	return out
}

func directionOf(pkg string) *direction {
	if strings.Contains(pkg+"/", "/cmd/") || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "examples") || pkg == "" {
		return nil // programs import anything
	}
	for i := range directions {
		if within(pkg, directions[i].of) {
			return &directions[i]
		}
	}
	return nil
}

func (d *direction) allows(f *File, path string) bool {
	pkg, ours := strings.CutPrefix(path, module)
	if !ours {
		return !d.std || !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
	}
	pkg = strings.TrimPrefix(pkg, "/")
	if pkg == f.Package() || slices.Contains(everywhere, pkg) && !d.std || d.of == "transports/" && ownTransport(f.Package(), pkg) {
		return true
	}
	for _, m := range d.may {
		if within(pkg, m) {
			return true
		}
	}
	if f.Test() {
		for _, m := range d.test {
			if within(pkg, m) {
				return true
			}
		}
	}
	return false
}

// ownTransport reports whether two packages belong to one transport.
func ownTransport(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

// within reports whether pkg is folder, or lies below it if folder ends in a slash.
func within(pkg, folder string) bool {
	base, below := strings.CutSuffix(folder, "/")
	return pkg == base || below && strings.HasPrefix(pkg, folder)
}
