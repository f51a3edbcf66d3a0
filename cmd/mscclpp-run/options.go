package main

import (
	"math"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/apart"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch/manifest"
	"github.com/mscclpp-go/mscclpp/launch/remote"
)

// options are the launcher's own flags, which stand before the program, or on any
// side of the verb.
type options struct {
	np          int
	perNode     string
	nnodes      int
	nodeRank    int
	masterAddr  string
	masterPort  int
	rendezvous  string
	standalone  bool
	configFile  string
	set         []string
	export      []string
	dir         string
	tee         bool
	noStdin     bool
	showBinding bool
	dryRun      bool
	quiet       bool
	version     bool
	help        bool
	hostfile    string
	hosts       string
	ssh         string
	agent       string
	serve       bool
	emit        emitOptions
}

// listsHosts reports whether the job is one over ssh, on a list of hosts.
func (o *options) listsHosts() bool { return o.hostfile != "" || o.hosts != "" }

// named are the flags that set a key of the configuration.
var named = []struct{ flag, key, help string }{
	{"transports", "transports", "transports to use, in order of preference: shm,tcp"},
	{"log-level", "log.level", "debug, info, warn, error or none"},
	{"bind-to", "launch.bind", "tie ranks to processors: none, core, numa, socket or auto"},
	{"trace", "observe.trace", "write a trace of all ranks into this file, for ui.perfetto.dev and mscclpp-run trace"},
	{"metrics", "observe.metrics", "answer Prometheus there while the job runs: PORT of the loopback address, HOST:PORT or unix:PATH"},
	{"output-dir", "launch.output_dir", "write the output of each rank to rank-N.out and rank-N.err in this folder"},
	{"linger", "launch.linger", "time for the other ranks to report after the first failure"},
	{"grace", "launch.grace", "time between SIGTERM and SIGKILL"},
}

// switches are those of them that take no value.
var switches = []struct{ flag, key, help string }{
	{"tag-output", "launch.tag_output", "put the rank in front of each line"},
	{"timestamp", "launch.timestamp", "put the time in front of each line"},
}

// aliases are other spellings that users of mpirun and torchrun know.
var aliases = map[string]string{
	"n": "np", "nproc": "np",
	"wdir": "chdir", "rdzv-endpoint": "rendezvous",
	"timestamp-output": "timestamp",
	"hosts":            "host", "machinefile": "hostfile",
}

// accepted are flags of mpirun and torchrun that are true here anyway.
var accepted = []string{"oversubscribe", "allow-run-as-root", "use-hwthread-cpus", "no-python"}

// numbers are the flags with a number, and which ones a user can mean. How many ranks a host takes
// is asked later: with a list of hosts -n counts those of all.
var numbers = []struct {
	flag, as    string
	least, most int
	expected    string
}{
	{"np", "-n", 1, math.MaxInt, "at least 1"},
	{"max-restarts", "--max-restarts", 0, math.MaxInt, "0 or more"},
	{"nnodes", "--nnodes", 1, math.MaxInt, "at least 1"},
	{"node-rank", "--node-rank", 0, math.MaxInt, "0 or more, and below --nnodes"},
	{"master-port", "--master-port", 0, math.MaxUint16, "1 to 65535, or 0 for the default"},
}

// needed are flags that mean nothing without a value, and a job on this host alone, or
// without a configuration, where one was expected.
var needed = []string{"hostfile", "host", "config", "chdir", "emit", "master-addr", "rendezvous"}

// startFlags say how ranks are started, or where.
var startFlags = []string{
	"np", "nproc-per-node", "export", "nccl", "tee", "report-bindings", "chdir", "no-stdin", "nnodes", "node-rank",
	"master-addr", "master-port", "rendezvous", "dry-run", "ssh", "agent", "max-restarts", "module",
}

// meant refuses values that nobody can mean. 0, or -1, is what options hold when there
// was no flag.
func meant(f *pflag.FlagSet) error {
	for _, name := range needed {
		if flag := f.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return verb.Usage("--%s is empty: expected a value, or no flag; a variable of the shell may not be set", name)
		}
	}
	for _, name := range []string{"image", "job-name", "secret-name", "gpus-per-node"} {
		if f.Changed(name) && !f.Changed("emit") {
			return verb.Usage("--%s describes a manifest: expected --emit as well; without it the job would start here", name)
		}
	}
	if f.Changed("rendezvous") {
		if err := verb.Beside(f, "--rendezvous", "both name the host of rank 0", "master-addr", "master-port"); err != nil {
			return verb.Usage("%v", err)
		}
	}
	for _, n := range numbers {
		if v, err := f.GetInt(n.flag); f.Changed(n.flag) && err == nil && (v < n.least || v > n.most) {
			return verb.Usage("%s %d: expected %s", n.as, v, n.expected)
		}
	}
	return nil
}

func newFlags(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("mscclpp-run", pflag.ContinueOnError)
	f.SetInterspersed(false) // arguments behind the program belong to the program
	f.SortFlags = false
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-")
		if a, ok := aliases[name]; ok {
			name = a
		}
		return pflag.NormalizedName(name)
	})
	f.IntVarP(&o.np, "np", "n", 0, "ranks to start on this host (also -np, --nproc)")
	f.StringVar(&o.perNode, "nproc-per-node", "", "the same, as torchrun has it: a number, gpu or cpu for one for each, auto for gpu where there is one")
	f.StringArrayVarP(&o.export, "export", "x", nil, "VAR or VAR=VALUE for the ranks' environment; may be repeated")
	f.Bool("nccl", false, "let programs that use NCCL run on this library instead: LD_PRELOAD of what mscclpp-run nccl prints")
	f.StringVar(&o.configFile, "config", "", "configuration of the job, a YAML or TOML file")
	f.StringArrayVar(&o.set, "set", nil, "KEY=VALUE of the configuration; may be repeated")
	for _, n := range named {
		f.String(n.flag, "", n.help)
	}
	for _, s := range switches {
		f.Bool(s.flag, false, s.help)
	}
	f.BoolVar(&o.tee, "tee", false, "with --output-dir: print the output as well")
	f.BoolVar(&o.showBinding, "report-bindings", false, "print the processors of each rank")
	f.StringVar(&o.dir, "chdir", "", "start the program in this folder")
	f.BoolVar(&o.noStdin, "no-stdin", false, "give rank 0 no standard input")
	f.Int("max-restarts", 0, "start all ranks again, so often at most, when one has failed; for a job on this host alone")
	f.IntVarP(&o.nnodes, "nnodes", "N", 0, "hosts in the job, when each of them runs mscclpp-run")
	f.IntVar(&o.nodeRank, "node-rank", -1, "index of this host, from 0")
	f.StringVar(&o.masterAddr, "master-addr", "", "host of rank 0")
	f.IntVar(&o.masterPort, "master-port", 0, "port on the host of rank 0; default: a free one, 29400 with several hosts")
	f.StringVar(&o.rendezvous, "rendezvous", "", "HOST[:PORT], instead of the two before (also --rdzv-endpoint)")
	f.BoolVar(&o.standalone, "standalone", false, "a job on this host alone: ignore the engine that started mscclpp-run")
	f.Bool("module", false, "the program is a module of Python, as python -m has it (also -m, before the program)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be started")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no line about the rank that failed")
	f.BoolVarP(&o.version, "version", "V", false, "print the version")
	f.BoolVarP(&o.help, "help", "h", false, "print this")
	f.StringVar(&o.hostfile, "hostfile", "", "start the job over ssh on the hosts in this file, one a line: HOST [slots=N]; -n is the number of all ranks then")
	f.StringVar(&o.hosts, "host", "", "the same for a list: HOST[:N],HOST[:N]")
	f.StringVar(&o.ssh, "ssh", "ssh -T -o BatchMode=yes -o ConnectTimeout=10", "with a list of hosts: the command that runs another one there")
	f.StringVar(&o.agent, "agent", "", "with a list of hosts: path of mscclpp-run there; default: where it is here")
	emitFlags(f, &o.emit)
	f.BoolVar(&o.serve, strings.TrimPrefix(remote.AgentFlag, "--"), false, "")
	f.Lookup(strings.TrimPrefix(remote.AgentFlag, "--")).Hidden = true
	f.Bool(strings.TrimPrefix(apart.Flag, "--"), false, "")
	f.Lookup(strings.TrimPrefix(apart.Flag, "--")).Hidden = true
	for _, name := range accepted {
		f.Bool(name, false, "")
		f.Lookup(name).Hidden = true
	}
	return f
}

// doubleDash rewrites the long flags with one dash that mpirun knows (-np 4,
// -bind-to core), up to the program. pflag would read -np as -n p.
func doubleDash(f *pflag.FlagSet, args []string) []string {
	out := append([]string(nil), args...)
	for i := 0; i < len(out); i++ {
		arg := out[i]
		if arg == "--" || len(arg) < 2 || arg[0] != '-' {
			break
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := f.Lookup(name)
		if arg[1] != '-' {
			if name == "m" && len(arg) == 2 { // which is a letter of a verb's
				out[i], flag = "--module", f.Lookup("module")
			} else if len(name) == 1 {
				flag = f.ShorthandLookup(name)
			} else if flag != nil {
				out[i] = "-" + arg
			} else if flag = f.ShorthandLookup(name[:1]); flag != nil {
				hasValue = true // -n4
			}
		}
		if flag != nil && flag.NoOptDefVal == "" && !hasValue {
			i++ // its value
		}
	}
	return out
}

// settings returns what flags say about the configuration.
func (o *options) settings(f *pflag.FlagSet) ([]config.Setting, error) {
	var out []config.Setting
	for _, n := range named {
		if flag := f.Lookup(n.flag); flag.Changed {
			out = append(out, config.Setting{Key: n.key, Value: flag.Value.String(), Flag: "--" + n.flag})
		}
	}
	for _, s := range switches {
		if flag := f.Lookup(s.flag); flag.Changed {
			out = append(out, config.Setting{Key: s.key, Value: flag.Value.String(), Flag: "--" + s.flag})
		}
	}
	for _, s := range o.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, verb.Usage("--set %s: expected KEY=VALUE", s)
		}
		out = append(out, config.Setting{Key: key, Value: value, Flag: "--set"})
	}
	return out, nil
}

// emitOptions are the flags that only matter to --emit.
type emitOptions struct {
	kind   string
	image  string
	name   string
	secret string
	gpus   int
}

func emitFlags(f *pflag.FlagSet, o *emitOptions) {
	f.StringVar(&o.kind, "emit", "", "print a manifest for another engine and start nothing: "+strings.Join(manifest.Kinds(), ", ")+"; -n ranks on each of --nnodes hosts")
	f.StringVar(&o.image, "image", "", "with --emit: image of the containers")
	f.StringVar(&o.name, "job-name", "", "with --emit: name of the job; default: that of the program")
	f.StringVar(&o.secret, "secret-name", "", "with --emit: name of the Kubernetes secret; default: JOB-secret")
	f.IntVar(&o.gpus, "gpus-per-node", 0, "with --emit: GPUs that each host is to have")
}
