package config

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Prefix begins the name of every variable that is a configuration key. Levels are
// separated by two underscores: MSCCLPP_COMM__SCRATCH is comm.scratch. In names of
// transports an underscore stands for a hyphen.
const Prefix = "MSCCLPP_"

// EnvWarned lists, separated by commas, the variables about which mscclpp-run has warned:
// it sets it for the ranks, which do not repeat the warnings.
const EnvWarned = "MSCCLPP_WARNED"

// EnvFlags lists, separated by commas, the variables that mscclpp-run has set for a flag,
// each as VARIABLE=FLAG: mistakes that only ranks can find are to be blamed on the flag.
const EnvFlags = "MSCCLPP_FLAGS"

// reserved are names with our prefix that are not configuration.
var reserved = map[string]bool{
	"MSCCLPP_CONFIG":               true, // path of the job file
	"MSCCLPP_UNIQUE_ID":            true, // given to ranks by mscclpp-run
	"MSCCLPP_LISTEN_FD":            true, // listener that rank 0 inherits
	"MSCCLPP_LISTEN_KEEPER":        true, // process that keeps a copy of it
	"MSCCLPP_JOB_ID":               true, // name of a job, the same on all hosts
	"MSCCLPP_LAUNCH_ID":            true, // marks the processes of one mscclpp-run
	"MSCCLPP_OBSERVE_MEMORY":       true, // where ranks say what they do
	"MSCCLPP_OBSERVE_REGION":       true, // the same for plugins of one rank
	EnvWarned:                      true,
	EnvFlags:                       true,
	"MSCCLPP_HOME":                 true, // where the headers are, for scripts
	"MSCCLPP_NVLS":                 true, // 0: no multicast, as NCCL_NVLS_ENABLE
	"MSCCLPP_CUDA_LIBRARY":         true, // which NVIDIA driver library to open
	"MSCCLPP_HIP_LIBRARY":          true, // which HIP runtime to open
	"MSCCLPP_NCCL_DESTROY_SECONDS": true, // of libnccl, which is no Go
	"MSCCLPP_NCCL_VERSION":         true,
	"MSCCLPP_NCCL_LIBRARY":         true, // which NCCL to compare with

	"MSCCLPP_GDRCOPY_LIBRARY": true, // which library of GDRCopy to open

	"MSCCLPP_NCCL_LIB_PATH":                 true, // of libnccl: the library to which operations fall back
	"MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION": true,

	"MSCCLPP_BUILTIN_PLUGINS": true, // where mscclpp-run's own plugins are
}

// Reserve excludes a variable from configuration, for packages with variables of
// their own. It is to be called before Load.
func Reserve(name string) { reserved[name] = true }

// envKey turns a variable's name into a path, or nil if it is no key.
func envKey(name string) []string {
	rest := strings.ToLower(strings.TrimPrefix(name, Prefix))
	path := strings.Split(rest, "__")
	if len(path) > 1 && (path[0] == "transport" || path[0] == "devices" || path[0] == "plugins" && path[1] == "path") {
		at := len(path) - 1
		if path[0] != "plugins" {
			at = 1
		} else if at > 2 {
			at = 2
		}
		path[at] = strings.ReplaceAll(path[at], "_", "-")
	}
	for _, p := range path {
		if p == "" {
			return nil
		}
	}
	if n := schema().find(path); n == nil {
		return nil
	}
	return path
}

// EnvName is the variable for a key: the inverse of what the environment layer
// does. mscclpp-run uses it to hand flags to the ranks.
func EnvName(key string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(strings.ReplaceAll(key, ".", "__"), "-", "_"))
}

// Variables are the settings of a launcher as its ranks get them, besides the environment
// that it has itself, and EnvFlags. That names the flags of launchers around this one too:
// their variables are still there.
func Variables(environ []string, settings []Setting) []string {
	if len(settings) == 0 {
		return nil
	}
	var out, pairs []string
	flags := flagsOf(environ)
	for _, s := range settings {
		out = append(out, EnvName(s.Key)+"="+s.Value)
		flags[EnvName(s.Key)] = s.Flag
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		pairs = append(pairs, name+"="+flags[name])
	}
	return append(out, EnvFlags+"="+strings.Join(pairs, ","))
}

// flagsOf returns the flag of each variable in EnvFlags.
func flagsOf(environ []string) map[string]string {
	flags := map[string]string{}
	for _, e := range environ {
		if list, ok := strings.CutPrefix(e, EnvFlags+"="); ok {
			for pair := range strings.SplitSeq(list, ",") {
				name, flag, _ := strings.Cut(pair, "=")
				flags[name] = flag
			}
		}
	}
	return flags
}

// readEnviron reads the environment layer as a raw tree of strings. It returns the
// variable of each key, and the warnings about names with our prefix that have no effect,
// by name; names in EnvWarned are there without any.
func readEnviron(environ []string) (tree map[string]any, from map[string]string, warnings map[string][]string, err error) {
	from, warnings = map[string]string{}, map[string][]string{}
	direct := map[string]string{} // keys set under their own name
	flat := map[string]string{}   // variables of MSCCL++ that set keys
	for _, e := range environ {
		if name, _, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, Prefix) && !reserved[name] {
			if path := envKey(name); path != nil {
				direct[dotted(path)] = name
			}
		}
	}
	warned := map[string]bool{}
	for _, e := range environ {
		if names, ok := strings.CutPrefix(e, EnvWarned+"="); ok {
			for name := range strings.SplitSeq(names, ",") {
				warned[name] = true
			}
		}
	}
	warn := func(name, format string, args ...any) {
		texts := warnings[name]
		if !warned[name] {
			texts = append(texts, "environment variable "+name+" "+fmt.Sprintf(format, args...))
		}
		warnings[name] = texts
	}
	k := koanf.New(delimiter)
	err = k.Load(env.Provider(delimiter, env.Opt{
		Prefix:      Prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if reserved[name] || value == "" {
				return "", nil
			}
			if path := envKey(name); path != nil {
				from[dotted(path)] = name
				return strings.Join(path, delimiter), value
			}
			old, known := flatNames[name]
			switch {
			case !known:
				warn(name, "is not known%s", suggest.Hint(nearestVariable(name)))
			case len(old.keys) == 0:
				warn(name, "has no effect: %s", old.note)
			default:
				flat[name] = value
			}
			return "", nil
		},
	}), nil)
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		for _, key := range flatNames[name].keys {
			if own := direct[key]; own != "" {
				warn(name, "is ignored: %s is set", own)
			} else if err == nil {
				from[key] = name
				err = k.Set(strings.ReplaceAll(key, ".", delimiter), flatNames[name].value(flat[name]))
			}
		}
	}
	return k.Raw(), from, warnings, err
}

func nearestVariable(wrong string) string {
	var names []string
	schema().leaves(func(n *node) { names = append(names, EnvName(n.key)) })
	for name := range flatNames {
		names = append(names, name)
	}
	sort.Strings(names)
	return suggest.Name(wrong, names)
}
